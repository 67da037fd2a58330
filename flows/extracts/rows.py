"""The rows of an extract, whatever it is written in: lines of text, or records by a copybook."""

from flows.extracts.decode import BLOCK, Readable
from flows.extracts.errors import EmptyExtractError
from flows.extracts.joined.rows import JoinedRows, JoinFileError
from flows.extracts.opening import Pair
from flows.extracts.reader import Extract
from flows.extracts.records.extract import RecordExtract
from flows.extracts.row_source import Rows
from schemas.source import SourceSettings


def open_rows(
    stream: Readable,
    settings: SourceSettings,
    name: str,
    *,
    proven: bool = False,
    block: int = BLOCK,
) -> Rows:
    """Open the rows of an extract; `proven`: its run has proven it whole. Raises ExtractError."""
    if settings.join is None:
        return _open_file(stream, settings, name, proven=proven, block=block)
    if not isinstance(stream, Pair):
        raise JoinFileError(name=name, problem="its run had none")
    first = _open_file(stream.first, settings, name, proven=proven, block=block)
    try:
        second = _open_file(
            stream.second, settings.second_file, stream.name, proven=proven, block=block
        )
        return JoinedRows(first, second, settings.join, name)
    except EmptyExtractError:
        pass  # that of the extract itself means that there is nobody to send
    raise JoinFileError(name=name, problem=f"{stream.name} is empty")


def _open_file(
    stream: Readable, settings: SourceSettings, name: str, *, proven: bool, block: int
) -> Rows:
    kind = Extract if settings.copybook is None else RecordExtract
    return kind(stream, settings, name, proven=proven, block=block)
