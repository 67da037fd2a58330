"""The strict streaming reader: the line grammar decides, then the parser reads.

Nothing is guessed.

An extract is whole or refused, by the same checks in a submit and in a dry run: sidecar and
sequence number before a row is read; the end of the file, trailer, hash total and the sidecar's
count after the last. They do not shape rows, so they are no part of a run's settings, and a run
that has proven its extract reads it again without proving it again. The last record is cut where it
is the last thing in the file, is refused, and is shorter than a record or opens quotes that nothing
closes.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.extracts import grammar
from flows.extracts.decode import BLOCK, Readable, as_utf8, line_blocks, without_escapes
from flows.extracts.errors import EmptyExtractError, HeaderError, TrailerError, TruncatedError
from flows.extracts.header import header_names, is_closed, is_sep_line, otherwise_closed
from flows.extracts.line_kinds import (
    Kind,
    Kinds,
    LineKinds,
    height,
    numbered,
    set_aside,
    with_faults,
)
from flows.extracts.parsing import Parser
from flows.extracts.trailer import ControlRecords, HashTotal
from schemas.manifest import JoinedRows
from schemas.source import SourceSettings

PEEKED = 20  # lines after the header that are read before its names are shown in an error


class Block(NamedTuple):
    """One block: `rows` (row, line, then the extract's headers, all text) and `refused`.

    `refused` has row, line, code and `found`: its size, where that is wrong. `alone` are rows that
    could be read, without the part of another file that they need: with code and `found` too.
    """

    rows: pl.DataFrame
    refused: pl.DataFrame
    alone: pl.DataFrame | None = None


class Extract:
    """An extract (plain, gzip, zstd or in a ZIP), open at its first row.

    It has the lines `before`, its `header`, and its blocks, which can be read once; after that, the
    `kinds` of its lines and the `trailer_count` are final. `proven`: its run has proven it whole.
    `lines`: whole lines that were made of the stream, which is not read then. Raises ExtractError.
    """

    def __init__(
        self,
        stream: Readable,
        settings: SourceSettings,
        name: str,
        *,
        proven: bool = False,
        block: int = BLOCK,
        lines: Iterator[bytes] | None = None,
        controls: ControlRecords | None = None,
    ) -> None:
        self.kinds: Counter[Kind] = Counter()
        self.before: list[str] = []
        self.tally: JoinedRows | None = None  # nothing is joined here
        self._blocks = lines or line_blocks(stream, settings.encoding, name, block)
        self._settings = settings
        self._encoding = settings.encoding
        self._name = name
        self._proven = proven
        self._line_ends = 0
        self._ended = True  # the last bytes were a line end
        self._open = False  # no newline ends the lines before the data
        self._cut = ""  # why the last record seems to be cut off
        self._data = b""  # decoded, not read yet
        self._header_line = ""
        self.header = self._read_header()
        if self._open and self.kinds[Kind.HEADER] and settings.final_newline and not proven:
            raise TruncatedError(name=name, problem="it ends within its header")
        self._controls = controls or ControlRecords(settings, name)
        self._total: HashTotal | None = None if proven else self._controls.sum_up(self.header)
        self._controls.take_header(self.before)
        self._line_kinds = LineKinds(settings, self._header_line, len(self.header))
        self._closed = False  # its lines end in a delimiter
        self.fit_header()
        self._parser = Parser(settings, self.header)

    @property
    def trailer_count(self) -> int | None:
        """The row count that header or trailer record state, once they were read."""
        return self._controls.count

    @property
    def record_size(self) -> int:
        """The fields of a record; in fixed format its characters."""
        return self._line_kinds.expected_size

    @property
    def lines(self) -> int:
        """All lines so far, by their ends; the kinds are counted apart from them."""
        return self._line_ends + (not self._ended)

    @property
    def _lines_read(self) -> int:
        return self.kinds.total()

    @property
    def set_aside(self) -> dict[str, int]:
        """The lines that are no rows, by kind, once all were read."""
        return set_aside(self.kinds)

    @property
    def height(self) -> int:
        """The lines so far that begin a row, refused ones included."""
        return height(self.kinds)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; EmptyExtractError, EncodingError, TrailerError or TruncatedError."""
        for raw in self._blocks:
            data = self._data
            self._data = b""
            block, unread = self._read(data, last=False)
            del data  # free it before the block goes along the route
            yield block
            del block  # free it before the next is read
            self._data = unread + self._decode(raw, unread.count(b"\n"))
        block, _ = self._read(self._data, last=True)
        yield block
        self._check_whole()

    # Before the data

    def _read_header(self) -> tuple[str, ...]:
        """Consume the `sep=` line, comments, blank lines and the header; return the names."""
        headings = self._settings.header_rows  # lines of the header that are still to come
        start = 0
        while (line_and_next := self._line_from(start)) is not None:
            line, following = line_and_next
            kind = self._kind_before_data(line, headings)
            if kind is None:
                break
            if kind == Kind.HEADER:
                self._header_line = line
                headings -= 1
            self.kinds[kind] += 1
            self.before.append(line)
            start = following
        if headings:
            raise EmptyExtractError(name=self._name, problem="it has no header")
        self._open = start > len(self._data)
        self._data = self._data[start:]
        if self._settings.format == "fixed":
            return tuple(self._settings.names) or (grammar.RECORD,)
        if not self._header_line:
            return tuple(self._settings.names)
        return header_names(self._header_line, self._settings, self._name)

    def _line_from(self, start: int) -> tuple[str, int] | None:
        """Return the line from a byte of the data, and the start of the next line.

        None at the end of the extract.
        """
        while start >= len(self._data):
            raw = next(self._blocks, None)
            if raw is None:
                return None
            self._data += self._decode(raw)
        end = self._data.find(b"\n", start)
        if end < 0:
            end = len(self._data)
        return self._data[start:end].decode().removesuffix("\r"), end + 1

    def _kind_before_data(self, line: str, headings: int) -> Kind | None:
        """Return the kind of a line before the data, None for the first of the data."""
        comment = self._settings.comment_form
        if self._lines_read == 0 and is_sep_line(line, self._settings, self._name):
            return Kind.COMMENT
        if comment is not None and re.search(comment, line):
            return Kind.COMMENT
        if not headings:
            return None
        return Kind.HEADER if line.strip() else Kind.BLANK

    def fit_header(self) -> None:
        """Refuse a header that fits none of the next lines, also with a delimiter more or less.

        It is refused before another error shows names that may be cells.
        """
        while self._data.count(b"\n") < PEEKED and (raw := next(self._blocks, None)) is not None:
            self._data += self._decode(raw, self._data.count(b"\n"))
        if self._settings.format == "fixed" or not self._data:
            return
        lines = pl.read_lines(self._data, n_rows=PEEKED).to_series()
        kinds = self._line_kinds.of(lines, quoted=True, last=False)
        is_open = self._line_kinds.join(lines, kinds, last=False) < len(kinds)
        refused = np.flatnonzero(kinds == Kind.REFUSED)
        records = lines.filter(kinds == Kind.RECORD)
        if not is_open and refused.size > len(records):
            records = self._with_other_closing(lines, records)
            if records.is_empty():
                problem = self._problem_of_header(lines[int(refused[0])])
                raise HeaderError(name=self._name, problem=problem)
        self._closed = is_closed(self.header) and self._are_closed(records)

    def _with_other_closing(self, lines: pl.Series, records: pl.Series) -> pl.Series:
        """Take a delimiter from the end of the header, or put one there, where it then fits more
        lines; return the records.
        """
        header = otherwise_closed(self.header)
        line_kinds = LineKinds(self._settings, self._header_line, len(header))
        others = lines.filter(line_kinds.of(lines, quoted=True, last=False) == Kind.RECORD)
        is_column = is_closed(header) and not self._are_closed(others)  # it has cells
        if is_column or len(others) <= len(records):
            return records
        self.header = header
        self._line_kinds = line_kinds
        return others

    def _are_closed(self, records: pl.Series) -> bool:
        return bool(records.str.ends_with(self._settings.delimiter).all())

    def _problem_of_header(self, line: str) -> str:
        """Return what is wrong with the header where no line after it is a record, by the first."""
        code = self._line_kinds.fault(line)
        if code in (grammar.TOO_FEW, grammar.TOO_MANY):
            columns = len(self.header)
            problem = f"it has {columns} columns, and none of the lines after it has as many"
        else:
            problem = f"it may be data, since none of the lines after it is a record ({code})"
        for quoting, mark in (("backslash", '\\"'), ("excel", '="')):
            if mark in line:
                return f"{problem}; quoting = {quoting!r} may help"
        return problem

    # The data

    def _decode(self, raw: bytes, lines_before: int = 0) -> bytes:
        self._line_ends += raw.count(b"\n")
        self._ended = raw.endswith(b"\n") if raw else self._ended
        block = as_utf8(raw, self._encoding, self._name, self._lines_read + lines_before + 1)
        if self._settings.quoting == "backslash" and b"\\" in block:
            return without_escapes(block, self._settings.delimiter)
        return block

    def _read(self, data: bytes, *, last: bool) -> tuple[Block, bytes]:
        """Read whole lines.

        Return a block, and the bytes of a record that may continue after them.
        """
        lines = pl.read_lines(data).to_series()
        quoted = self._settings.format == "csv" and b'"' in data
        kinds = self._line_kinds.of(lines, quoted, last)
        lines_as_read = lines
        if self._closed:
            lines = self._line_kinds.close(lines, kinds)
        complete = self._line_kinds.join(lines, kinds, last) if quoted else len(kinds)
        complete = min(complete, self._line_kinds.end_of_rows(lines, kinds, last))
        unread = b""
        if complete < len(kinds):
            # what is after the last newline counts as a line here
            unread = b"\n".join(data.split(b"\n")[complete - len(kinds) - 1 :])
            lines = lines.head(complete)
            kinds = kinds[:complete]
        self._check_trailer(lines, kinds)
        faults = self._line_kinds.faults(lines, kinds)
        if (kinds <= Kind.REFUSED).any():
            self._cut = self._line_kinds.cut_off(lines, kinds, faults, self._lines_read + 1)
        numbers = numbered(kinds, self.kinds)
        is_record = kinds == Kind.RECORD
        has_record = is_record[kinds <= Kind.REFUSED]
        refused = with_faults(numbers.filter(~has_record), faults.values())
        numbers = numbers.filter(has_record)
        if is_record.all() and not unread and lines is lines_as_read:
            text = data
        else:
            record_lines = lines.filter(is_record | (kinds == Kind.CONTINUES))
            text = "\n".join(record_lines.to_list()).encode()
        cells = self._parser.parse(text, numbers.height, quoted)
        rows = pl.concat([numbers, cells], how="horizontal")
        if self._total is not None:
            self._total.add(rows)
        return Block(rows, refused), unread

    # The end

    def _check_trailer(self, lines: pl.Series, kinds: Kinds) -> None:
        """Take the trailer's count; TrailerError if data or another trailer follow it."""
        trailers = np.flatnonzero(kinds == Kind.TRAILER).tolist()
        earlier = self.kinds[Kind.TRAILER]
        if not trailers and not earlier:
            return
        first = -1 if earlier else trailers[0]
        rows = np.flatnonzero(kinds <= Kind.REFUSED)
        rows_after = rows[rows > first].tolist()
        before = self._lines_read + 1
        if rows_after:
            problem = f"data follows it on line {before + rows_after[0]}"
            raise TrailerError(name=self._name, problem=problem)
        if len(trailers) + earlier > 1:
            problem = f"a second one is on line {before + trailers[-1]}"
            raise TrailerError(name=self._name, problem=problem)
        if trailers:
            self._controls.take_trailer(lines[first], before + first)

    def _check_whole(self) -> None:
        """Raise an ExtractError unless the extract was read to its end, and has rows."""
        # first: an issuer may allow empty extracts, not those cut to nothing
        missing = self._missing_end()
        if missing:
            problem = f"{missing}; {self.height} rows were read"
            raise TruncatedError(name=self._name, problem=problem)
        if not self.height:
            raise EmptyExtractError(name=self._name, problem="it has no data row")
        if self._total is not None:
            self._total.check(self.height, self.kinds[Kind.REFUSED])

    def _missing_end(self) -> str:
        """Return what shows that the end of the extract is missing, "" where nothing does."""
        has_trailer = self.kinds[Kind.TRAILER] > 0
        if self._settings.trailer is not None and not has_trailer:
            return "it has no trailer, which its settings require"
        if self._proven:
            return ""
        if self._cut and not has_trailer:
            return (
                f"{self._cut} (a last line that is not a record: "
                "describe it with `trailer` or `comment` in [source])"
            )
        if not self._settings.final_newline or self._ends_in_newline():
            return ""
        hint = "if the issuer always writes it so, set final_newline = false in [source]"
        return f"its last line, line {self._lines_read}, has no newline ({hint})"

    def _ends_in_newline(self) -> bool:
        return not self._open and self._data.rstrip(b"\x1a")[-1:] in (b"", b"\n")
