"""Records of several types in one file, as lines: a row has its parts behind it.

Types are named in the order of the file: those before the type of the rows are above them, such as
a customer before his cards, and count for all rows up to the next; those after it follow their row,
such as an address. What belongs to no row is refused, and so is a row with the same part twice. By
key, records of other types are put aside, and joined like a second file.

Parts leave blank lines in their place, so that every line keeps its number. A line that is refused
says why in itself (`grammar.refused`).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from flows.extensions.formats.record_lines import TypedLines
from flows.extensions.formats.settings import FormatSettings
from flows.extensions.formats.spill import Aside
from flows.extracts import grammar
from flows.extracts.grammar import Fault

ORPHAN = grammar.refused(Fault("segment.order.orphan"))
REPEATED = grammar.refused(Fault("segment.order.repeated"))
UNKNOWN = grammar.refused(Fault("segment.type.unknown"))
_OF_TYPES = (
    "segments",
    "segment_field",
    "segment_key",
    "comment",
    "header_record",
    "trailer",
    "hash_total",
)


def together(source: FormatSettings) -> FormatSettings:
    """Return how the lines of rows are written, which have their parts behind them by order."""
    types = source.record_types
    kinds = [types.row] if source.segment_key else types.columns
    names = types.columns[types.row] if source.segment_key else types.together()
    width = sum(map(types.width_of, kinds)) if source.format == "fixed" else None
    return source.model_copy(update={"names": names, "width": width})


def alone(kind: str, source: FormatSettings) -> FormatSettings:
    """Return how the records of one type are written, where they stand alone."""
    types = source.record_types
    is_fixed = source.format == "fixed"
    written: dict[str, Any] = {
        "names": types.columns[kind],
        "width": types.width_of(kind) if is_fixed else None,
        "final_newline": False,
    }
    unset = {name: FormatSettings.model_fields[name].default for name in _OF_TYPES}
    return source.model_copy(update=written | unset)


class TextTypes:
    """Tells of which type the lines of a file are, and which are no records."""

    def __init__(self, source: FormatSettings) -> None:
        types = source.record_types
        field = source.segment_field or ""
        columns = types.columns[types.row]
        self._is_fixed = source.format == "fixed"
        self._encoding = source.encoding
        place = list(columns).index(field)
        self._span = columns[field] if isinstance(columns, dict) else (place, place)
        self._delimiter = re.escape(source.delimiter)
        self._controls = [form for form in (source.comment_form, source.trailer) if form]

    def typed(self, blocks: Iterator[bytes]) -> Iterator[TypedLines]:
        """Yield the lines of blocks with their types."""
        for block in blocks:
            lines = block.removesuffix(b"\n").split(b"\n")
            texts = [text_of(line, self._encoding) for line in lines]
            kinds = self._kinds(pl.Series(texts, dtype=pl.String)).to_list()
            yield TypedLines(lines, kinds, block.endswith(b"\n"))

    def _kinds(self, lines: pl.Series) -> pl.Series:
        """Return the type of each line, "" where it has none; null where it is no record."""
        first, last = self._span
        if self._is_fixed:
            kinds = lines.str.slice(first - 1, last - first + 1)
        else:
            cell = f"[^{self._delimiter}]*"
            kinds = lines.str.extract(f"^(?:{cell}{self._delimiter}){{{first}}}({cell})")
        is_record = lines.str.contains(r"\S") & (lines != "\x1a")
        for form in self._controls:
            is_record &= ~lines.str.contains(form)
        known = kinds.str.strip_chars(' "').fill_null("")
        return pl.select(pl.when(is_record).then(known)).to_series()


def text_of(line: bytes, encoding: str) -> str:
    """Return the text of a line, with a mark for what is no text in its encoding."""
    return line.removesuffix(b"\r").decode(encoding, "replace")


class _Record(NamedTuple):
    """A record in a line, and the line that refuses it, b"" where it can be read."""

    line: bytes
    refusal: bytes


class _Row:
    """A row with its parts by type, and the line that refuses it; `after`: what follows it."""

    def __init__(self, record: _Record, above: dict[str, _Record]) -> None:
        self.record = record
        self.parts = dict(above)
        self.refusal = b""
        self.after: list[bytes] = []

    @property
    def refusals(self) -> Iterator[bytes]:
        """Why it is refused, the first reason first."""
        yield self.refusal
        yield self.record.refusal
        for part in self.parts.values():
            yield part.refusal


class Ordered:
    """Makes lines of several types to lines of one, by their order; counts the `parts` by type."""

    def __init__(self, source: FormatSettings, parts: Counter[str]) -> None:
        types = source.record_types
        kinds = tuple(types.columns)
        place = kinds.index(types.row)
        self._row = types.row
        self._above = kinds[:place]
        self._below = kinds[place + 1 :]
        self._parts = parts
        self._encoding = source.encoding
        self._widths = dict.fromkeys(kinds, 0)
        self._delimiter = source.delimiter.encode()
        if source.format == "fixed":
            self._widths = {kind: types.width_of(kind) for kind in kinds}
            self._delimiter = b""
        self._grammars = {
            kind: grammar.Records(alone(kind, source), len(types.names(kind))) for kind in kinds
        }
        self._lacking = {
            kind: self._delimiter * (len(types.names(kind)) - 1) + b" " * self._widths[kind]
            for kind in kinds
        }
        self._context: dict[str, _Record] = {}  # what is above the rows that follow
        self._open: _Row | None = None  # the row whose parts may follow

    def lines(self, blocks: Iterator[TypedLines]) -> Iterator[bytes]:
        """Yield whole lines, as many as there are: of a row with its parts, then blank ones."""
        ends_in_newline = True
        for block in blocks:
            done: list[bytes] = []
            for line, kind in zip(block.lines, block.kinds, strict=True):
                done += self._passed(line) if kind is None else self._taken(line, kind)
            yield b"".join(line + b"\n" for line in done)
            ends_in_newline = block.ends_in_newline
        last_row = b"\n".join(self._released())
        if last_row:
            yield last_row + b"\n" * ends_in_newline

    def _passed(self, line: bytes) -> list[bytes]:
        """Return a line that is no record; behind an open row it waits for that."""
        if self._open is None:
            return [line]
        self._open.after.append(line)
        return []

    def _taken(self, line: bytes, kind: str) -> list[bytes]:
        """Take the next record; return the lines that are complete with it."""
        if kind in self._below:
            return self._add(kind, self._record(line, kind))
        done = self._released()
        if kind == self._row:
            return [*done, *self._begin(self._record(line, kind))]
        if kind not in self._above:
            return [*done, UNKNOWN]
        for lower in self._above[self._above.index(kind) :]:
            self._context.pop(lower, None)
        self._context[kind] = self._record(line, kind)
        self._parts[kind] += 1
        return [*done, b""]

    def _begin(self, record: _Record) -> list[bytes]:
        if len(self._context) < len(self._above):
            return [ORPHAN]
        self._open = _Row(record, self._context)
        return []

    def _add(self, kind: str, record: _Record) -> list[bytes]:
        if self._open is None:
            return [ORPHAN]
        if kind in self._open.parts:
            self._open.refusal = REPEATED
        self._open.parts[kind] = record
        self._open.after.append(b"")
        self._parts[kind] += 1
        return []

    def _released(self) -> list[bytes]:
        """Return the line of the open row, and those after it; none where there is no row."""
        row = self._open
        if row is None:
            return []
        self._open = None
        refusal = next(filter(None, row.refusals), b"")
        if refusal:
            return [refusal, *row.after]
        lines = [row.record.line]
        for kind in (*self._above, *self._below):
            lines.append(row.parts[kind].line if kind in row.parts else self._lacking[kind])
        return [self._delimiter.join(lines), *row.after]

    def _record(self, line: bytes, kind: str) -> _Record:
        """Return a record, in fixed format as long as its type is."""
        text = text_of(line, self._encoding)
        padded = line.removesuffix(b"\r") + b" " * (self._widths[kind] - len(text))
        known = self._grammars[kind]
        if known.is_record(text):
            return _Record(padded, b"")
        is_refusal = grammar.refusal(text) is not None
        return _Record(padded, line if is_refusal else grammar.refused(Fault(known.fault(text))))


class Keyed:
    """Puts aside the lines of other types than that of the rows, and leaves blank ones."""

    def __init__(self, source: FormatSettings, aside: Aside, parts: Counter[str]) -> None:
        self._row = source.row_segment
        self._others = [kind for kind in source.segments if kind != self._row]
        self._aside = aside
        self._parts = parts

    def lines(self, blocks: Iterator[TypedLines]) -> Iterator[bytes]:
        """Yield whole lines, as many as there are: those of rows, and those of no record."""
        for block in blocks:
            kept: list[bytes] = []
            others = defaultdict[str, list[bytes]](list)
            for line, kind in zip(block.lines, block.kinds, strict=True):
                if kind is None or kind == self._row:
                    kept.append(line)
                elif kind in self._others:
                    kept.append(b"")
                    others[kind].append(line + b"\n")
                else:
                    kept.append(UNKNOWN)
            for kind, lines in others.items():
                self._parts[kind] += len(lines)
                self._aside.put(kind, b"".join(lines))
            yield b"\n".join(kept) + b"\n" * block.ends_in_newline
