"""Record types in one file: a record of one type is a row, others are parts of it.

By key they are put aside and joined like a second file (`joined/types.py`); else by their order.

Types are named in the order of the file: those before the type of the rows are above them, such as
a customer before his cards, and count for all rows up to the next; those after it follow their row,
such as an address. What belongs to no row is refused, and so is a row with the same part twice.

Lines become longer lines: a row has its parts behind it, and leaves blank lines in their place, so
that every line keeps its number. A line that is refused says why in itself (`grammar.refused`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import polars as pl

from flows.extracts import grammar
from flows.extracts.decode import decodes
from flows.extracts.joined.aside import LINES, Aside
from flows.extracts.records.text import text_encoding
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


def row_lines(
    blocks: Iterator[bytes], source: SourceSettings, aside: Aside | None, parts: Counter[str]
) -> Iterator[bytes]:
    """Yield whole lines, as many as there are, in which each record is a row; see `as_rows`.

    `parts` counts the records that are none, by type.
    """
    if source.segment_key and aside is not None:
        return KeyedLines(source, aside, parts).rows(blocks)
    return SegmentLines(source, parts).joined(blocks)


def as_rows(source: SourceSettings) -> SourceSettings:
    """Return how the lines of `row_lines` are written."""
    types = source.record_types
    names = types.together()
    width = types.width_together
    if source.segment_key:
        names = types.columns[types.row]
        width = partial(types.width_of, types.row)
    is_fixed = source.format == "fixed"
    return source.model_copy(update={"names": names, "width": width() if is_fixed else None})


class _Line(NamedTuple):
    """A record in a line, and why it cannot be read, "" where it can."""

    text: bytes
    code: str


class _Types:
    """Tells of which type a line is, and which lines are no records."""

    def __init__(self, source: SourceSettings) -> None:
        types = source.record_types
        field = source.segment_field or ""
        columns = types.columns[types.row]
        self.is_fixed = source.format == "fixed"
        self.encoding = text_encoding(source)
        place = list(columns).index(field)
        self._span = columns[field] if isinstance(columns, dict) else (place, place)
        self._delimiter = source.delimiter
        self._comment = source.comment_form
        self._trailer = source.trailer

    def of(self, lines: pl.Series) -> pl.Series:
        """Return the type of each line, "" where it has none; null where it is no record."""
        first, last = self._span
        if self.is_fixed:
            kinds = lines.str.slice(first - 1, last - first + 1)
        else:
            cell = f"[^{re.escape(self._delimiter)}]*"
            kinds = lines.str.extract(f"^(?:{cell}{re.escape(self._delimiter)}){{{first}}}({cell})")
        is_record = lines.str.contains(r"\S") & (lines != "\x1a")
        if self._comment is not None:
            is_record &= ~lines.str.contains(self._comment)
        if self._trailer is not None:
            is_record &= ~lines.str.contains(self._trailer)
        known = kinds.str.strip_chars(' "').fill_null("")
        return pl.select(pl.when(is_record).then(known)).to_series()


class SegmentLines:
    """Makes lines of several types to lines of one, by their order."""

    def __init__(self, source: SourceSettings, parts: Counter[str]) -> None:
        types = source.record_types
        self._parts = parts
        self._types = _Types(source)
        self._delimiter = b"" if self._types.is_fixed else source.delimiter.encode()
        self._grammars = {kind: _grammar_of(kind, source) for kind in types.columns}
        self._nothing = {
            kind: self._delimiter * (len(types.names(kind)) - 1) for kind in types.columns
        }
        self._widths: dict[str, int] = {}
        if self._types.is_fixed:
            self._widths = {kind: types.width_of(kind) for kind in types.columns}
        self._rows = Rows[_Line](tuple(types.columns), types.row)
        self._held: list[bytes] = []  # from the open row on: its place, then the lines after it

    def joined(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield whole lines, as many as there are: of a row with its parts, then blank ones."""
        ends_in_newline = True
        for block in blocks:
            ends_in_newline = block.endswith(b"\n")
            lines = block.removesuffix(b"\n").split(b"\n")
            texts = pl.Series([self._text(line) for line in lines], dtype=pl.String)
            kinds = self._types.of(texts).to_list()
            done = chain.from_iterable(map(self._take, lines, texts, kinds))
            yield b"".join(line + b"\n" for line in done)
        last_row = b"\n".join(self._released(self._rows.open))
        if last_row:
            yield last_row + b"\n" * ends_in_newline

    def _text(self, line: bytes) -> str:
        return line.removesuffix(b"\r").decode(self._types.encoding, "replace")

    def _take(self, line: bytes, text: str, kind: str | None) -> list[bytes]:
        """Take the next line; return those that are complete with it."""
        if kind is None:
            return self._passed(line)
        record = _Line(self._padded(line.removesuffix(b"\r"), text, kind), self._fault(text, kind))
        before = self._rows.open
        verdict = self._rows.take(kind, record)
        done = [] if self._rows.open is before else self._released(before)
        if verdict.place is Place.REFUSED:
            return [*done, grammar.refused(verdict.code)]
        if verdict.place is Place.PART:
            self._parts[kind] += 1
        if self._rows.open is None:  # it is above the rows that follow
            return [*done, b""]
        self._held.append(b"")
        return done

    def _padded(self, line: bytes, text: str, kind: str) -> bytes:
        """Return a record in fixed format as long as its type is; any other as it is."""
        return line + b" " * (self._widths.get(kind, 0) - len(text))

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
            row.parts[kind].text if kind in row.parts else self._lacking(kind)
            for kind in self._grammars
            if kind != self._rows.kind
        ]
        return [self._delimiter.join([row.record.text, *parts]), *after]

    def _lacking(self, kind: str) -> bytes:
        return b" " * self._widths[kind] if self._widths else self._nothing[kind]

    def _fault(self, text: str, kind: str) -> str:
        """Return why a line is no record of its type."""
        known = self._grammars.get(kind)
        return "" if known is None or known.is_record(text) else known.fault(text)


def _grammar_of(kind: str, source: SourceSettings) -> grammar.Records:
    return grammar.Records(settings_of(kind, source), len(source.record_types.names(kind)))


def settings_of(kind: str, source: SourceSettings) -> SourceSettings:
    """Return how the records of one type are written, where they stand alone."""
    types = source.record_types
    is_fixed = source.format == "fixed"
    alone: dict[str, Any] = {
        "names": types.columns[kind],
        "width": types.width_of(kind) if is_fixed else None,
        "encoding": text_encoding(source),
        "final_newline": False,
    }
    others = ("segments", "segment_field", "segment_key", "comment", "trailer", "hash_total")
    unset = {name: SourceSettings.model_fields[name].default for name in (*others, "record_format")}
    return source.model_copy(update=alone | unset)


class KeyedLines:
    """Puts aside the lines of other types than that of the rows, and leaves blank ones."""

    def __init__(self, source: SourceSettings, aside: Aside, parts: Counter[str]) -> None:
        self._parts = parts
        self._types = _Types(source)
        self._row = source.row_segment
        self._others = [kind for kind in source.segments if kind != self._row]
        self._aside = aside

    def rows(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield whole lines, as many as there are: those of rows, and those of no record."""
        for block in blocks:
            encoding = self._encoding_of(block)
            text = block if encoding == "utf-8" else block.decode(encoding).encode()
            lines = pl.read_lines(text).to_series()
            kinds = self._types.of(lines)
            for kind in self._others:
                self._put(kind, lines.filter(kinds == kind), encoding)
            stays = kinds.is_null() | (kinds == self._row)
            is_other = kinds.is_in(self._others)
            unknown = grammar.refused(UNKNOWN).decode()
            kept = (
                pl.when(stays)
                .then(lines)
                .when(is_other)
                .then(pl.lit(""))
                .otherwise(pl.lit(unknown))
            )
            end = "\n" if block.endswith(b"\n") else ""
            yield ("\n".join(pl.select(kept).to_series().to_list()) + end).encode(encoding)

    def _encoding_of(self, block: bytes) -> str:
        """Return an encoding in which all bytes of a block are text, and can be written again."""
        is_utf8 = block.isascii() or (self._types.encoding == "utf-8" and decodes(block, "utf-8"))
        return "utf-8" if is_utf8 else "latin-1"

    def _put(self, kind: str, lines: pl.Series, encoding: str) -> None:
        self._parts[kind] += len(lines)
        if len(lines):
            data = "".join(f"{line}\n" for line in lines).encode(encoding)
            self._aside.put(kind, pl.DataFrame({LINES: [data]}, schema={LINES: pl.Binary}))
