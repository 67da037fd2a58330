"""The rows of an extract, whatever it is written in: lines of text, or records by a copybook."""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from flows.extracts.decode import BLOCK, Readable
from flows.extracts.line_kinds import Kind
from flows.extracts.reader import Block, Extract
from flows.extracts.records.extract import RecordExtract
from schemas.issuer import SourceSettings


class Rows(Protocol):
    """An extract, open at its first row; see `reader.Extract`."""

    header: tuple[str, ...]
    before: list[str]
    kinds: Counter[Kind]
    trailer_count: int | None

    @property
    def lines(self) -> int:
        """All lines or records so far."""
        ...

    @property
    def height(self) -> int:
        """Those that are rows, refused ones included."""
        ...

    @property
    def record_size(self) -> int:
        """The fields of a record; of a fixed size its characters."""
        ...

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, once."""
        ...


def open_rows(
    stream: Readable,
    settings: SourceSettings,
    name: str,
    *,
    proven: bool = False,
    block: int = BLOCK,
) -> Rows:
    """Open the rows of an extract; `proven`: its run has proven it whole. Raises ExtractError."""
    kind = Extract if settings.copybook is None else RecordExtract
    return kind(stream, settings, name, proven=proven, block=block)
