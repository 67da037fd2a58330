"""The rows of an extract, whatever it is written in: lines of text, or a form of an extension."""

from flows.extensions import hooks
from flows.extracts.decode import BLOCK, Readable
from flows.extracts.reader import Extract
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
    for open_form in hooks("open_rows"):
        rows: Rows | None = open_form(stream, settings, name, proven=proven, block=block)
        if rows is not None:
            return rows
    return Extract(stream, settings, name, proven=proven, block=block)
