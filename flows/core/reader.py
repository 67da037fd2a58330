"""The strict streaming reader: the line grammar decides first, the parser second, nothing is silently wrong.

A line that is no record is refused with its physical line number and a reason; all others go on.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.core import grammar as g
from flows.core.decode import BLOCK, Readable, utf8_blocks
from flows.core.errors import BugError
from flows.core.extract_errors import (
    EmptyExtractError,
    EncodingError,
    HeaderError,
    TrailerError,
    TruncatedError,
)
from schemas.source import SourceSettings

RECORD = "record"  # the one column of a fixed-width extract: the whole line
REFUSED = {"row": pl.UInt32, "line": pl.UInt32, "code": pl.String}
_SEP = re.compile(r'^"?sep=(.)"?$', re.IGNORECASE)

# What a physical line is; records and refused ones have a row number.
RECORD_LINE, REFUSED_LINE, GOES_ON, BLANK, COMMENT, HEADER, TRAILER = range(7)


class Block(NamedTuple):
    """One block: `rows` (row, line, then the extract's headers, all text), `refused` (row, line, code)."""

    rows: pl.DataFrame
    refused: pl.DataFrame


@dataclass
class ReadCounts:
    """Where the physical lines went; `rows` = accepted + refused; final after the iteration."""

    lines: int = 0
    rows: int = 0
    refused: int = 0
    joined: int = 0  # lines that continue the record of a line before
    blank: int = 0
    comments: int = 0
    headers: int = 0  # lines up to and with the header
    repeated_headers: int = 0
    trailers: int = 0
    trailer_count: int | None = None


class Extract:
    """One extract being read: `header` at once, blocks by iterating (once), `counts` final afterwards."""

    def __init__(
        self, blocks: Iterator[bytes], settings: SourceSettings, name: str, columns: Sequence[str] | None
    ) -> None:
        self.counts = ReadCounts()
        self._settings = settings
        self._name = name
        self._blocks = blocks
        self._first = self._decode(next(blocks, b""))
        self._header_line = ""
        names = self._preamble()
        self.header: tuple[str, ...] = names
        self._columns = [name for name in names if columns is None or name in columns]
        self._grammar: g.Grammar
        if settings.width is not None and settings.format == "fixed":
            self._grammar = g.Fixed(settings.width)
        else:
            self._grammar = g.Delimited(settings.delimiter, len(names))

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of about 16 MiB; raises EmptyExtractError, EncodingError, Trailer- or TruncatedError."""
        data = self._first
        for block in self._blocks:
            rows, data = self._read(data, last=False)
            yield rows
            data += self._decode(block)
        if data:
            rows, _ = self._read(data, last=True)
            yield rows
        if not self.counts.rows:
            raise EmptyExtractError(self._name, "it has no data row")
        if self._settings.trailer is not None and not self.counts.trailers:
            raise TruncatedError(self._name, "the trailer is missing")

    # --- before the data

    def _preamble(self) -> tuple[str, ...]:
        """Take `sep=`, comments, blank and header lines off the first block; return the names."""
        left = self._settings.header_rows
        while left and self._first:
            line = self._take_line()
            found = _SEP.match(line)
            if found and self.counts.lines == 1:
                self.counts.comments += 1
                if found[1] != self._settings.delimiter:
                    raise HeaderError(
                        self._name, f"its line sep= says {found[1]!r}, the settings say {self._settings.delimiter!r}"
                    )
            elif self._is_comment(line):
                self.counts.comments += 1
            elif not line.strip():
                self.counts.blank += 1
            else:
                left -= 1
                self.counts.headers += 1
                self._header_line = line
        if left:
            raise EmptyExtractError(self._name, "it has no header")
        if self._settings.format == "fixed":
            return (RECORD,)
        return header_names(self._header_line, self._settings, self._name)

    def _take_line(self) -> str:
        line, _, self._first = self._first.partition(b"\n")
        self.counts.lines += 1
        return line.decode().removesuffix("\r")

    def _is_comment(self, line: str) -> bool:
        return self._settings.comment is not None and line.startswith(self._settings.comment)

    # --- encoding

    def _decode(self, data: bytes) -> bytes:
        """Return a block as UTF-8; lines that are not in the encoding become UNREADABLE."""
        encoding = self._settings.encoding
        if data.isascii() or encoding == "utf-16":
            return data
        first = self.counts.lines + 1
        if encoding != "utf-8" and _decodes(data, "utf-8"):
            raise EncodingError(self._name, encoding, f"it is UTF-8 (from line {first} on)")
        if _decodes(data, encoding):
            return data if encoding == "utf-8" else data.decode(encoding).encode()
        lines = data.split(b"\n")
        bad = [at for at, line in enumerate(lines) if not _decodes(line, encoding)]
        if len(bad) > max(1, len(lines) // 100):
            raise EncodingError(self._name, encoding, f"{len(bad)} lines are not, the first is line {first + bad[0]}")
        for at in bad:
            lines[at] = g.UNREADABLE.encode()
        return b"\n".join(line.decode(encoding if at not in bad else "utf-8").encode() for at, line in enumerate(lines))

    # --- blocks

    def _read(self, data: bytes, *, last: bool) -> tuple[Block, bytes]:
        """Read one block of whole lines; return it, and the bytes of a record that may go on in the next."""
        lines = pl.read_lines(data).to_series()
        quoted = self._settings.format == "csv" and b'"' in data
        holds = self._grammar.holds(lines, quoted)
        kinds = np.where(holds.to_numpy(), RECORD_LINE, REFUSED_LINE)
        self._mark_by_text(lines, kinds)
        suspects = np.flatnonzero(kinds == REFUSED_LINE).tolist()
        spans = g.joined_records(self._grammar, lines, suspects) if quoted else []
        for start, end in spans:
            kinds[start] = RECORD_LINE
            kinds[start + 1 : end + 1] = GOES_ON
        rest = b""
        if not last and (keep := self._open_at(lines, kinds)) is not None:
            rest = _tail(data, lines.len() - keep)
            lines, kinds = lines.head(keep), kinds[:keep]
        self._mark_blank(lines, kinds, last)
        return self._frames(data, lines, kinds, whole=not rest and not spans, quoted=quoted), rest

    def _mark_by_text(self, lines: pl.Series, kinds: np.ndarray) -> None:
        settings = self._settings
        if self._header_line:
            kinds[(lines == self._header_line).to_numpy()] = HEADER
        if settings.comment is not None:
            kinds[lines.str.starts_with(settings.comment).to_numpy()] = COMMENT
        if settings.trailer is not None:
            kinds[lines.str.contains(settings.trailer).to_numpy()] = TRAILER

    def _open_at(self, lines: pl.Series, kinds: np.ndarray) -> int | None:
        """Return where a record begins that could end in the next block."""
        for at in range(lines.len() - 1, max(-1, lines.len() - g.LONGEST_RECORD), -1):
            if kinds[at] == GOES_ON:
                return None
            if kinds[at] == REFUSED_LINE and self._grammar.opens(lines[at]):
                return at
        return None

    def _mark_blank(self, lines: pl.Series, kinds: np.ndarray, last: bool) -> None:
        for at in np.flatnonzero(kinds == REFUSED_LINE).tolist():
            if not lines[at].strip() or (last and at == lines.len() - 1 and lines[at] == "\x1a"):
                kinds[at] = BLANK

    def _frames(self, data: bytes, lines: pl.Series, kinds: np.ndarray, *, whole: bool, quoted: bool) -> Block:
        counts = self.counts
        numbered = np.arange(counts.lines + 1, counts.lines + 1 + len(kinds), dtype=np.uint32)
        is_row = kinds <= REFUSED_LINE
        ordinal = (np.cumsum(is_row) + counts.rows).astype(np.uint32)
        self._take_trailer(lines, kinds)
        accepted, refused = kinds == RECORD_LINE, np.flatnonzero(kinds == REFUSED_LINE)
        self._count(kinds)
        if not (whole and accepted.all()):
            text = lines.filter(pl.Series(accepted | (kinds == GOES_ON)))
            data = "\n".join(text.to_list()).encode()
        rows = self._parse(data, int(accepted.sum()), quoted)
        places = [pl.Series("row", ordinal[accepted]), pl.Series("line", numbered[accepted])]
        faults = {
            "row": ordinal[refused],
            "line": numbered[refused],
            "code": [self._grammar.fault(lines[at]) for at in refused.tolist()],
        }
        return Block(rows.select(*places, pl.all()), pl.DataFrame(faults, schema=REFUSED))

    def _count(self, kinds: np.ndarray) -> None:
        counts = self.counts
        tally = np.bincount(kinds, minlength=7).tolist()
        counts.lines += len(kinds)
        counts.rows += tally[RECORD_LINE] + tally[REFUSED_LINE]
        counts.refused += tally[REFUSED_LINE]
        counts.joined += tally[GOES_ON]
        counts.blank += tally[BLANK]
        counts.comments += tally[COMMENT]
        counts.repeated_headers += tally[HEADER]
        counts.trailers += tally[TRAILER]

    def _take_trailer(self, lines: pl.Series, kinds: np.ndarray) -> None:
        found = np.flatnonzero(kinds == TRAILER).tolist()
        rows = np.flatnonzero(kinds <= REFUSED_LINE)
        number = self.counts.lines + 1
        if len(found) + self.counts.trailers > 1:
            raise TrailerError(
                self._name, f"there is more than one, the last on line {number + found[-1] if found else number}"
            )
        if (self.counts.trailers and rows.size) or (found and rows.size and rows[-1] > found[0]):
            raise TrailerError(self._name, "data follow it")
        if found:
            self.counts.trailer_count = self._trailer_count(lines[found[0]], number + found[0])

    def _trailer_count(self, line: str, number: int) -> int:
        settings = self._settings
        text = ""
        if settings.trailer_field is not None:
            fields = next(csv.reader([line], delimiter=settings.delimiter), [])
            text = fields[settings.trailer_field - 1] if len(fields) >= settings.trailer_field else ""
        elif found := re.search(settings.trailer or "", line):
            text = found[1] or ""
        if not re.fullmatch(r"\s*[0-9]{1,12}\s*", text):
            raise TrailerError(self._name, f"line {number} holds no count where the settings look for it")
        return int(text)

    def _parse(self, data: bytes, expected: int, quoted: bool) -> pl.DataFrame:
        if not expected:
            return pl.DataFrame(schema=dict.fromkeys(self._columns, pl.String))
        if self._settings.format == "fixed":
            return pl.read_lines(data, name=RECORD)
        rows = None
        try:
            rows = pl.read_csv(
                data,
                has_header=False,
                schema=dict.fromkeys(self.header, pl.String),
                columns=[self.header.index(name) for name in self._columns],
                separator=self._settings.delimiter,
                infer_schema=False,
                glob=False,
            )
        except pl.exceptions.PolarsError:
            rows = None  # its text may hold rows: ours is raised below, outside
        if rows is None or rows.height != expected:
            raise BugError("reading a block", "parser and grammar disagree")
        return rows.with_columns(pl.when(pl.all() != "").then(pl.all())) if quoted else rows


def read_extract(
    stream: Readable,
    settings: SourceSettings,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    block: int = BLOCK,
) -> Extract:
    """Begin to read an extract (plain, gzip or zstd) and return it with its header read.

    `columns` keeps only these headers. Raises ExtractError subclasses that show headers, never cells.
    """
    return Extract(utf8_blocks(stream, settings.encoding, name, block), settings, name, columns)


def header_names(line: str, settings: SourceSettings, name: str) -> tuple[str, ...]:
    """Return the column names of a header line, or those of the settings; raises HeaderError."""
    if not settings.header_rows:
        return settings.names
    broken = False
    fields: list[str] = []
    try:
        fields = next(csv.reader([line], delimiter=settings.delimiter, strict=True), [])
    except csv.Error:
        broken = True
    if broken:
        raise HeaderError(name, "its quotes do not fit")
    if any(_is_data(field) for field in fields):
        raise HeaderError(name, "it looks like a data row; an extract without header needs header_rows = 0 and names")
    if len(fields) < 2:
        raise HeaderError(name, f"only one column with the delimiter {settings.delimiter!r}")
    names = [field.strip("\ufeff \t\u00a0") or f"column_{at}" for at, field in enumerate(fields, 1)]
    names = [f"{name}_" if name in ("row", "line") else name for name in names]  # those two are ours
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise HeaderError(name, f"it holds {', '.join(repeated)} more than once")
    return tuple(names)


def _is_data(field: str) -> bool:
    """Return whether a field cannot be a name: a number, a card, an address of mail."""
    return bool(re.fullmatch(r"[\s\d.,/+-]*\d[\s\d.,/+-]*", field) or re.search(r"\d[\d -]{4,}\d|@", field))


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        text = data.decode(encoding)
    except UnicodeError:
        return False
    return encoding != "latin-1" or re.search("[\x80-\x9f]", text) is None


def _tail(data: bytes, lines: int) -> bytes:
    """Return the last `lines` lines of a block that ends in a newline."""
    at = len(data)
    for _ in range(lines + 1):
        at = data.rfind(b"\n", 0, at)
    return data[at + 1 :]
