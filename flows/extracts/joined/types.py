"""Record types in one file that are joined by key: each other type is read like a second file."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from flows.errors import ExtractError
from flows.extracts.decode import BLOCK
from flows.extracts.joined.aside import LINES, Aside
from flows.extracts.joined.rows import JoinedRows, Joining, Others
from flows.extracts.reader import Block, Extract
from flows.extracts.records.segments import part_names
from flows.extracts.row_source import Rows
from flows.extracts.segments import settings_of
from schemas.manifest import JoinedRows as Tally
from schemas.source import SourceSettings

MISSING: Final = "segment.key.missing"
AMBIGUOUS: Final = "segment.key.ambiguous"


class TypeMissingError(ExtractError):
    """A file has no record of a type that all its rows need."""

    message = "{name} has no record of type {kind}, which each row needs."
    next_step = (
        "Compare segments and segment_field in [source] with the file, or ask the issuer what "
        "changed; a type that rows may lack belongs in segment_optional."
    )


class TypedRows:
    """Rows with the records of other types beside them; see `rows.Rows`."""

    def __init__(self, rows: Rows, aside: Aside, source: SourceSettings, name: str) -> None:
        self._rows = rows
        self._aside = aside
        self._joined = rows
        keys = source.segment_keys
        for kind in source.segments:
            if kind == source.row_segment:
                continue
            joining = Joining(
                keys[source.row_segment],
                keys[kind],
                prefix=kind,
                missing=MISSING,
                ambiguous=AMBIGUOUS,
                other=f"{kind} record",
                needed=kind not in source.segment_optional,
            )
            others: Others
            if source.copybook is None:
                others = _LinesOfType(kind, aside, source, name)
            else:
                others = _RecordsOfType(kind, aside, source, name)
            self._joined = JoinedRows(self._joined, others, joining, name)

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of all types."""
        return self._joined.header

    @property
    def before(self) -> list[str]:
        """The lines before the data."""
        return self._rows.before

    @property
    def set_aside(self) -> dict[str, int]:
        """The lines or records that are no rows, by kind."""
        return self._rows.set_aside

    @property
    def trailer_count(self) -> int | None:
        """The count in the trailer."""
        return self._rows.trailer_count

    @property
    def lines(self) -> int:
        """All lines or records so far."""
        return self._rows.lines

    @property
    def height(self) -> int:
        """The rows so far."""
        return self._rows.height

    @property
    def record_size(self) -> int:
        """The size of a record of the rows' type."""
        return self._rows.record_size

    @property
    def tally(self) -> Tally | None:
        """What became of the records of other types, once all are read."""
        return self._joined.tally

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; what the extract raises, TypeMissingError and SpillError."""
        with self._aside.opened():
            yield from self._joined


class _LinesOfType:
    """The lines of one type, which were put aside."""

    def __init__(self, kind: str, aside: Aside, source: SourceSettings, name: str) -> None:
        self._kind = kind
        self._aside = aside
        self._source = settings_of(kind, source)
        self._name = name
        self._is_needed = kind not in source.segment_optional
        self.header = source.record_types.names(kind)
        self.height = 0

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; TypeMissingError."""
        lines = _Lines(self._aside.taken(self._kind))
        if lines.is_empty:
            _refuse_missing(self._kind, self._name, needed=self._is_needed)
            return
        extract = Extract(lines, self._source, self._name, block=BLOCK)
        for block in extract:
            self.height = extract.height
            yield block


class _Lines:
    """Whole lines as a stream."""

    def __init__(self, frames: Iterator[pl.DataFrame]) -> None:
        self._pieces: Iterator[bytes] = (frame[LINES].item() for frame in frames)
        self._unread: bytes = next(self._pieces, b"")
        self.is_empty = not self._unread

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, fewer than `size` where a piece ends."""
        if not self._unread:
            self._unread = next(self._pieces, b"")
        end = len(self._unread) if size < 0 else size
        data = self._unread[:end]
        self._unread = self._unread[end:]
        return data


class _RecordsOfType:
    """The records of one type by a copybook, which were put aside as cells."""

    def __init__(self, kind: str, aside: Aside, source: SourceSettings, name: str) -> None:
        self._kind = kind
        self._aside = aside
        self._name = name
        self._is_needed = kind not in source.segment_optional
        self.header = part_names(kind, source)
        self.height = 0

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; TypeMissingError."""
        self.height = self._aside.refused[self._kind]
        for cells in self._aside.taken(self._kind):
            self.height += cells.height
            yield Block(cells, cells.clear())
        if not self.height:
            _refuse_missing(self._kind, self._name, needed=self._is_needed)


def _refuse_missing(kind: str, name: str, *, needed: bool) -> None:
    if needed:
        raise TypeMissingError(name=name, kind=kind)
