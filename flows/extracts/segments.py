"""Record types in one file: a record of one type is a row, others are parts of it, by their order.

Types are named in the order of the file: those before the type of the rows are above them, such as
a customer before his cards, and count for all rows up to the next; those after it follow their row,
such as an address. What belongs to no row is refused, and so is a row with the same part twice.

Lines become longer lines: a row has its parts behind it, and leaves blank lines in their place, so
that every line keeps its number. A line that is refused says why in itself (`grammar.refused`).
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from flows.extracts import grammar
from schemas.source import SourceSettings

ORPHAN = "segment.order.orphan"
REPEATED = "segment.order.repeated"
UNKNOWN = "segment.type.unknown"

T = TypeVar("T")


class Place(Enum):
    """What a record is: a row, a part of one, or one that is refused."""

    ROW = "row"
    PART = "part"
    REFUSED = "refused"


class Verdict(NamedTuple):
    """What a record is, and why it is refused."""

    place: Place
    code: str = ""


class Row(Generic[T]):
    """A row with its parts by type, and why it is refused, "" where it is not."""

    def __init__(self, record: T, parts: dict[str, T]) -> None:
        self.record = record
        self.parts = parts
        self.code = ""


class Rows(Generic[T]):
    """Puts records together to rows, one after another; `open`: the row whose parts may follow."""

    def __init__(self, types: Sequence[str], row: str) -> None:
        place = types.index(row)
        self._above = tuple(types[:place])
        self._below = tuple(types[place + 1 :])
        self.kind = row
        self.context: dict[str, T] = {}
        self.open: Row[T] | None = None

    def take(self, kind: str, record: T) -> Verdict:
        """Take the next record, and say what it is."""
        if kind == self.kind:
            return self._begin(record)
        if kind in self._below:
            return self._add(kind, record)
        self.open = None
        if kind not in self._above:
            return Verdict(Place.REFUSED, UNKNOWN)
        for lower in self._above[self._above.index(kind) :]:
            self.context.pop(lower, None)
        self.context[kind] = record
        return Verdict(Place.PART)

    def _begin(self, record: T) -> Verdict:
        self.open = None
        if any(kind not in self.context for kind in self._above):
            return Verdict(Place.REFUSED, ORPHAN)
        self.open = Row(record, dict(self.context))
        return Verdict(Place.ROW)

    def _add(self, kind: str, record: T) -> Verdict:
        if self.open is None:
            return Verdict(Place.REFUSED, ORPHAN)
        if kind in self.open.parts:
            self.open.code = REPEATED
        self.open.parts[kind] = record
        return Verdict(Place.PART)


class _Line(NamedTuple):
    """A record in a line, and why it cannot be read, "" where it can."""

    text: bytes
    code: str


class SegmentLines:
    """Makes lines of several types to lines of one, of an extract with delimiters."""

    def __init__(self, source: SourceSettings) -> None:
        columns = source.segment_columns
        self._delimiter = source.delimiter.encode()
        self._grammars = {
            kind: grammar.Records(source, len(names)) for kind, names in columns.items()
        }
        self._nothing = {
            kind: self._delimiter * (len(names) - 1) for kind, names in columns.items()
        }
        self._place = columns[source.row_segment].index(source.segment_field or "")
        self._comment = (source.comment or "").encode()
        self._trailer = None if source.trailer is None else re.compile(source.trailer.encode())
        self._rows = Rows[_Line](tuple(source.segments), source.row_segment)
        self._held: list[bytes] = []  # from the open row on: its place, then the lines after it

    def joined(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield whole lines, as many as there are: of a row with its parts, then blank ones."""
        ends_in_newline = True
        for block in blocks:
            ends_in_newline = block.endswith(b"\n")
            lines = block.removesuffix(b"\n").split(b"\n")
            done = chain.from_iterable(map(self._take, lines))
            yield b"".join(line + b"\n" for line in done)
        last_row = b"\n".join(self._released(self._rows.open))
        if last_row:
            yield last_row + b"\n" * ends_in_newline

    def _take(self, line: bytes) -> list[bytes]:
        """Take the next line; return those that are complete with it."""
        text = line.removesuffix(b"\r")
        if self._is_no_record(text):
            return self._passed(line)
        kind = self._kind(text)
        record = _Line(text, self._fault(text, kind))
        before = self._rows.open
        verdict = self._rows.take(kind, record)
        done = [] if self._rows.open is before else self._released(before)
        if verdict.place is Place.REFUSED:
            return [*done, grammar.refused(verdict.code)]
        if self._rows.open is None:  # it is above the rows that follow
            return [*done, b""]
        self._held.append(b"")
        return done

    def _passed(self, line: bytes) -> list[bytes]:
        """Return a line that is no record; behind an open row it waits for that."""
        if not self._held:
            return [line]
        self._held.append(line)
        return []

    def _released(self, row: Row[_Line] | None) -> list[bytes]:
        """Return the line of a row, and those after it; none where there is no row."""
        if row is None:
            return []
        _, *after = self._held
        self._held = []
        records = [row.record, *row.parts.values()]
        code = next(filter(None, [row.code, *(record.code for record in records)]), "")
        if code:
            return [grammar.refused(code), *after]
        parts = [
            row.parts[kind].text if kind in row.parts else nothing
            for kind, nothing in self._nothing.items()
            if kind != self._rows.kind
        ]
        return [self._delimiter.join([row.record.text, *parts]), *after]

    def _is_no_record(self, text: bytes) -> bool:
        if not text.strip() or text == b"\x1a":
            return True
        if self._comment and text.startswith(self._comment):
            return True
        return self._trailer is not None and self._trailer.search(text) is not None

    def _kind(self, text: bytes) -> str:
        """Return the type of a line, "" where it has none."""
        fields = text.split(self._delimiter, self._place + 1)
        if len(fields) <= self._place:
            return ""
        return fields[self._place].strip(b' "').decode("utf-8", "replace")

    def _fault(self, text: bytes, kind: str) -> str:
        """Return why a line is no record of its type."""
        known = self._grammars.get(kind)
        line = text.decode("utf-8", "replace")
        return "" if known is None or known.is_record(line) else known.fault(line)
