"""The rows of an extract, whatever it is written in: lines of text, or records by a copybook."""

from collections.abc import Iterator

from flows.extracts.decode import BLOCK, Readable
from flows.extracts.errors import EmptyExtractError
from flows.extracts.joined.aside import Aside
from flows.extracts.joined.rows import JoinedRows, JoinFileError, joining_of
from flows.extracts.joined.types import TypedRows
from flows.extracts.opening import Pair
from flows.extracts.reader import Block, Extract
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
    except EmptyExtractError:
        pass  # that of the extract itself means that there is nobody to send
    else:
        return JoinedRows(first, _SecondFile(second, name), joining_of(settings.join), name)
    raise JoinFileError(name=name, problem=f"{stream.name} is empty")


class _SecondFile:
    """The rows of a second file, which has some."""

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name  # of the extract
        self.header = rows.header

    @property
    def height(self) -> int:
        """Its rows so far."""
        return self._rows.height

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; JoinFileError where it has no row."""
        try:
            yield from self._rows
            return
        except EmptyExtractError:
            pass  # the extract itself has rows
        raise JoinFileError(name=self._name, problem="the second file has no row")


def _open_file(
    stream: Readable, settings: SourceSettings, name: str, *, proven: bool, block: int
) -> Rows:
    kind = Extract if settings.copybook is None else RecordExtract
    if not settings.segment_key:
        return kind(stream, settings, name, proven=proven, block=block)
    aside = Aside()
    rows = kind(stream, settings, name, proven=proven, block=block, aside=aside)
    return TypedRows(rows, aside, settings, name)
