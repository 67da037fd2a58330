"""The strict streaming reader: the line grammar decides, then the parser reads, and nothing is
guessed.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.errors import BugError
from flows.extracts import grammar
from flows.extracts.decode import BLOCK, MARKS, Readable, as_utf8, line_blocks, without_escapes
from flows.extracts.errors import EmptyExtractError, HeaderError, TrailerError, TruncatedError
from schemas.issuer import SourceSettings

Kinds = npt.NDArray[np.uint8]

PEEKED = 20  # lines after the header that are read before its names are shown in an error


class Kind(IntEnum):
    """What a physical line is; RECORD and REFUSED begin a row and have a row number."""

    RECORD = 0
    REFUSED = 1
    CONTINUES = 2  # the record of an earlier line
    BLANK = 3
    COMMENT = 4
    REPEATED_HEADER = 5
    TRAILER = 6
    HEADER = 7


class Block(NamedTuple):
    """One block: `rows` (row, line, then the extract's headers, all text) and `refused` (row, line,
    code).
    """

    rows: pl.DataFrame
    refused: pl.DataFrame


class Extract:
    """An extract (plain, gzip or zstd), open at its first row: the lines `before`, its `header`,
    its blocks (once).

    After the iteration, the `kinds` of its lines and the `trailer_count` are final. `again`: its
    run has proven it whole. ExtractError.
    """

    def __init__(
        self,
        stream: Readable,
        settings: SourceSettings,
        name: str,
        *,
        again: bool = False,
        block: int = BLOCK,
    ) -> None:
        self.kinds: Counter[Kind] = Counter()
        self.trailer_count: int | None = None
        self.before: list[str] = []
        self._blocks = line_blocks(stream, settings.encoding, name, block)
        self._settings, self._name, self._again = settings, name, again
        self._open = False  # no newline ends the lines before the data
        self._cut = ""  # why the last record seems to be cut off
        self._data = b""  # decoded, not read yet
        self._header_line = ""
        self.header = self._read_header()
        if self._open and self.kinds[Kind.HEADER] and settings.final_newline and not again:
            raise TruncatedError(name=name, problem="it ends within its header")
        self._total = (
            None
            if again or settings.hash_total is None
            else grammar.HashTotal(settings, self.header, name)
        )
        self._grammar = grammar.Records(settings, len(self.header))
        self._check_header_fits()

    @property
    def lines(self) -> int:
        """All lines so far."""
        return self.kinds.total()

    @property
    def height(self) -> int:
        """The lines so far that begin a row, refused ones included."""
        return self.kinds[Kind.RECORD] + self.kinds[Kind.REFUSED]

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; raises EmptyExtractError, EncodingError, TrailerError or
        TruncatedError.
        """
        for raw in self._blocks:
            block, rest = self._read(self._data, last=False)
            yield block
            del block  # free it before the next is read
            self._data = rest + self._decode(raw, rest.count(b"\n"))
        block, _ = self._read(self._data, last=True)
        yield block
        # first: an issuer may allow empty extracts, not those cut to nothing
        if problem := self._missing_end():
            raise TruncatedError(
                name=self._name, problem=f"{problem}; {self.height} rows were read"
            )
        if not self.height:
            raise EmptyExtractError(name=self._name, problem="it has no data row")
        if self._total is not None:
            self._total.check(self.height, self.kinds[Kind.REFUSED])

    def _missing_end(self) -> str:
        """Return what shows that the end of the extract is missing, "" where nothing does."""
        settings, trailed = self._settings, self.kinds[Kind.TRAILER] > 0
        if settings.trailer is not None and not trailed:
            return "it has no trailer, which its settings require"
        if self._again:
            return ""
        if self._cut and not trailed:
            return f"{self._cut} (a last line that is no record: describe it with `trailer` or `comment` in [source])"
        if settings.final_newline and (
            self._open or self._data.rstrip(b"\x1a")[-1:] not in (b"", b"\n")
        ):
            hint = "where the issuer writes it so, set final_newline = false in [source]"
            return f"its last line, line {self.lines}, has no newline ({hint})"
        return ""

    def _decode(self, raw: bytes, lines_before: int = 0) -> bytes:
        block = as_utf8(raw, self._settings.encoding, self._name, self.lines + lines_before + 1)
        escaped = self._settings.quoting == "backslash" and b"\\" in block
        return without_escapes(block, self._settings.delimiter) if escaped else block

    # Before the data

    def _read_header(self) -> tuple[str, ...]:
        """Consume the `sep=` line, comments, blank lines and the header; return the names."""
        settings, left, at = self._settings, self._settings.header_rows, 0
        while (found := self._line_at(at)) is not None:
            line, after = found
            sep = self.lines == 0 and grammar.is_sep_line(line, settings, self._name)
            if sep or (settings.comment is not None and line.startswith(settings.comment)):
                kind = Kind.COMMENT
            elif not left:
                break
            elif not line.strip():
                kind = Kind.BLANK
            else:
                kind, self._header_line, left = Kind.HEADER, line, left - 1
            self.kinds[kind], at = self.kinds[kind] + 1, after
            self.before.append(line)
        if left:
            raise EmptyExtractError(name=self._name, problem="it has no header")
        self._open = at > len(self._data)
        self._data = self._data[at:]
        if settings.format == "fixed":
            return (grammar.RECORD,)
        return (
            grammar.header_names(self._header_line, settings, self._name)
            if self._header_line
            else settings.names
        )

    def _line_at(self, at: int) -> tuple[str, int] | None:
        """Return the line at a byte of the data, and the start of the next; None at the end of the
        extract.
        """
        while at >= len(self._data):
            if (raw := next(self._blocks, None)) is None:
                return None
            self._data += self._decode(raw)
        end = self._data.find(b"\n", at)
        end = len(self._data) if end < 0 else end
        return self._data[at:end].decode().removesuffix("\r"), end + 1

    def _check_header_fits(self) -> None:
        """Refuse a header that fits none of the next lines, before an error shows names that may be
        cells.
        """
        while self._data.count(b"\n") < PEEKED and (raw := next(self._blocks, None)) is not None:
            self._data += self._decode(raw, self._data.count(b"\n"))
        if self._settings.format == "fixed" or not self._data:
            return
        lines = pl.read_lines(self._data, n_rows=PEEKED).to_series()
        kinds = self._kinds(lines, quoted=True, last=False)
        open_at = self._join(lines, kinds, last=False)
        if (
            (kinds == Kind.REFUSED).any()
            and not (kinds == Kind.RECORD).any()
            and open_at == len(kinds)
        ):
            line = lines[int(np.flatnonzero(kinds == Kind.REFUSED)[0])]
            code = self._grammar.fault(line)
            problem = (
                f"it has {len(self.header)} columns, and none of the lines after it has as many"
            )
            if code not in (grammar.TOO_FEW, grammar.TOO_MANY):
                problem = f"it may be data, since none of the lines after it is a record ({code})"
            form = next(
                (form for form, mark in (("backslash", '\\"'), ("excel", '="')) if mark in line), ""
            )
            raise HeaderError(
                name=self._name,
                problem=problem + (f"; quoting = {form!r} may help" if form else ""),
            )

    # The data

    def _read(self, data: bytes, *, last: bool) -> tuple[Block, bytes]:
        """Read whole lines; return a block, and the bytes of a record that may continue after
        them.
        """
        lines = pl.read_lines(data).to_series()
        quoted = self._settings.format == "csv" and b'"' in data
        kinds = self._kinds(lines, quoted, last)
        rest = b""
        if quoted:
            keep = self._join(lines, kinds, last)
            rest = (
                b"\n".join(data.split(b"\n")[keep - len(kinds) - 1 :]) if keep < len(kinds) else b""
            )
            lines, kinds = lines.head(keep), kinds[:keep]
        self._check_trailer(lines, kinds)
        suspects = np.flatnonzero(kinds == Kind.REFUSED).tolist()
        codes = [self._grammar.fault(lines[at]) for at in suspects]
        if (kinds <= Kind.REFUSED).any():
            whole = np.flatnonzero((kinds == Kind.RECORD) | (kinds == Kind.CONTINUES)).max(
                initial=-1
            )
            tail = [(at, code) for at, code in zip(suspects, codes, strict=True) if at > whole]
            self._cut = self._cut_off(tail, lines)
        places, begins = self._number(kinds), kinds <= Kind.REFUSED
        refused = places.filter(kinds[begins] == Kind.REFUSED).with_columns(
            pl.Series("code", codes, dtype=pl.String)
        )
        records = kinds == Kind.RECORD
        places = places.filter(records[begins])
        if records.all() and not rest:
            text = data
        else:
            text = "\n".join(lines.filter(records | (kinds == Kind.CONTINUES)).to_list()).encode()
        rows = pl.concat([places, self._parse(text, places.height, quoted)], how="horizontal")
        if self._total is not None:
            self._total.add(rows)
        return Block(rows, refused), rest

    def _cut_off(self, tail: list[tuple[int, str]], lines: pl.Series) -> str:
        """Return why the last record seems to be cut off, by the refused lines after the last whole
        one; else "".
        """
        for at, code in tail[-grammar.LONGEST_RECORD :]:
            if (
                code == grammar.UNTERMINATED
                and self._grammar.fault("\n".join(lines[at:])) == grammar.UNTERMINATED
            ):
                return f"its last record, line {self.lines + at + 1}, ends inside quotes"
        if not tail or tail[-1][1] not in (grammar.TOO_FEW, grammar.TOO_SHORT):
            return ""
        at, line = tail[-1][0], lines[tail[-1][0]]
        if self._settings.format == "fixed":
            found = f"{len(line)} instead of {self._settings.width} characters"
        else:
            fields = re.sub('"[^"]*"', "", line).count(self._settings.delimiter) + 1
            found = f"{fields} instead of {len(self.header)} fields"
        return f"its last record, line {self.lines + at + 1}, has {found}"

    def _kinds(self, lines: pl.Series, quoted: bool, last: bool) -> Kinds:
        """Return the kind of each line by itself."""
        settings = self._settings
        holds = self._grammar.holds(lines, quoted).to_numpy()
        kinds: Kinds = np.where(holds, Kind.RECORD, Kind.REFUSED).astype(np.uint8)
        if self._header_line:
            kinds[(lines == self._header_line).to_numpy()] = Kind.REPEATED_HEADER
        if settings.comment is not None:
            kinds[lines.str.starts_with(settings.comment).to_numpy()] = Kind.COMMENT
        if settings.trailer is not None:
            kinds[lines.str.contains(settings.trailer).to_numpy()] = Kind.TRAILER
        for at in np.flatnonzero(kinds == Kind.REFUSED).tolist():
            # Ctrl-Z, the end of file in DOS
            ends_dos = last and at == len(kinds) - 1 and lines[at] == "\x1a"
            if ends_dos or not lines[at].strip():
                kinds[at] = Kind.BLANK
        return kinds

    def _join(self, lines: pl.Series, kinds: Kinds, last: bool) -> int:
        """Mark the records that span lines; return how many lines can be read without the next
        block.

        A record ends at the first line that closes its quotes, so each opening line has one
        candidate, and a stray quote never consumes the file.
        """
        odd, end = (
            [
                at
                for at in np.flatnonzero(kinds == Kind.REFUSED).tolist()
                if lines[at].count('"') % 2
            ],
            -1,
        )
        for first, closing in pairwise(odd):
            near = first > end and closing - first < grammar.LONGEST_RECORD
            if near and self._grammar.joins(lines[first : closing + 1].to_list()):
                kinds[first], kinds[first + 1 : closing + 1], end = (
                    Kind.RECORD,
                    Kind.CONTINUES,
                    closing,
                )
        still_open = (
            not last and odd and odd[-1] > end and len(kinds) - odd[-1] < grammar.LONGEST_RECORD
        )
        return odd[-1] if still_open else len(kinds)

    def _number(self, kinds: Kinds) -> pl.DataFrame:
        """Return row and line of each line that begins a row; count all lines."""
        lines = np.flatnonzero(kinds <= Kind.REFUSED).astype(np.uint32) + np.uint32(self.lines + 1)
        rows = np.arange(self.height + 1, self.height + 1 + lines.size, dtype=np.uint32)
        self.kinds.update(
            dict(zip(Kind, np.bincount(kinds, minlength=len(Kind)).tolist(), strict=True))
        )
        return pl.DataFrame({"row": rows, "line": lines})

    def _check_trailer(self, lines: pl.Series, kinds: Kinds) -> None:
        """Take the trailer's count; raises TrailerError if data or another trailer follow it."""
        before = self.lines + 1
        found = np.flatnonzero(kinds == Kind.TRAILER).tolist()
        rows = np.flatnonzero(kinds <= Kind.REFUSED)
        earlier = self.kinds[Kind.TRAILER]
        first = -1 if earlier else found[0] if found else len(kinds)
        after = rows[rows > first].tolist()
        if after:
            raise TrailerError(
                name=self._name, problem=f"data follows it on line {before + after[0]}"
            )
        if len(found) + earlier > 1:
            raise TrailerError(
                name=self._name, problem=f"a second one is on line {before + found[-1]}"
            )
        if found:
            count = grammar.trailer_number(
                lines[found[0]], self._settings, self._name, before + found[0]
            )
            self.trailer_count = count
            if self._total is not None:
                self._total.take(lines[found[0]], before + found[0])

    def _parse(self, text: bytes, expected: int, quoted: bool) -> pl.DataFrame:
        """Return the columns; BugError if the parser does not find the grammar's records."""
        if self._settings.format == "fixed":
            return pl.read_lines(text, name=grammar.RECORD)
        if not expected:
            return pl.DataFrame(schema=dict.fromkeys(self.header, pl.String))
        rows = self._parsed(text, expected)
        if self._settings.quoting == "excel" and b'="' in text:
            rows = rows.with_columns(pl.all().str.replace('^="(.*)"$', "${1}"))
        if self._settings.quoting == "backslash" and MARKS[0].encode()[:2] in text:
            meant = dict(zip(MARKS, ('"', self._settings.delimiter, "N"), strict=True))
            rows = rows.with_columns(
                pl.when(pl.all() != MARKS[2]).then(pl.all().str.replace_many(meant))
            )
        absent = quoted and b'""' in text  # "" is as absent as an empty field
        return rows.with_columns(pl.when(pl.all() != "").then(pl.all())) if absent else rows

    def _parsed(self, text: bytes, expected: int) -> pl.DataFrame:
        """Return the parsed records; BugError without the parser's message, which could quote whole
        rows.
        """
        options: dict[str, Any] = {"has_header": False, "infer_schema": False, "glob": False}
        options |= {
            "separator": self._settings.delimiter,
            "schema": dict.fromkeys(self.header, pl.String),
        }
        with suppress(pl.exceptions.PolarsError):
            frame = pl.read_csv(text, **options)
            if frame.height == expected:
                return frame
        raise BugError(place="reading a block", kind="grammar and parser disagree")
