"""Read result files (interface.md 2.7) into rows, in any encoding and dialect, without dropping a row."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import accumulate, islice
from typing import NamedTuple

import polars as pl

from schemas import result as spec

DELIMITERS = (",", ";", "\t", "|")
LIMIT = 64 * 1024 * 1024  # bytes of one result file, packed or unpacked: 1000 rows are 0.2 MB
HEAD = 20  # lines searched for the header: comments and `sep=` may precede it
NOTHING = ("null", "NULL", "undefined", "None", "NaN")  # how programs write a missing value

EMPTY = "file.content.empty"
NOT_A_RESULT = "file.header.unknown"
TOO_LARGE = "file.content.too_large"
GZIP_DAMAGED = "file.gzip.truncated"
ENCODING_GUESSED = "file.encoding.guessed"
TRUNCATED = "file.line.truncated"
QUOTING = "file.line.quoting"
RAGGED = "file.line.ragged"
DAMAGE = frozenset((EMPTY, NOT_A_RESULT, TOO_LARGE, GZIP_DAMAGED, TRUNCATED))

_CELLS = pl.DataFrame(schema=dict.fromkeys(spec.SPELLINGS, pl.String))
_DATES = (
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})", "%Y-%m-%d"),
    (r"^([0-9]{1,2}/[0-9]{1,2}/[0-9]{4})", "%m/%d/%Y"),
    (r"^([0-9]{1,2}/[0-9]{1,2}/[0-9]{2})$", "%m/%d/%y"),
    (r"\b([A-Z][a-z]{2} [0-9]{1,2} [0-9]{4})\b", "%b %d %Y"),  # String(new Date())
    (r"^(20[0-9]{6})$", "%Y%m%d"),
)
_EPOCHS = ((r"^([1-3][0-9]{12})$", 1), (r"^([1-3][0-9]{9})$", 1000))  # milliseconds, seconds


class ResultHeader(NamedTuple):
    """The header of a result file: its delimiter, the place of each known column, and the number of columns."""

    delimiter: str
    places: dict[str, int]
    width: int


def find_header(line: str) -> ResultHeader | None:
    """Find the delimiter that makes `line` the header of a result: an error column, and a cuid or a url."""
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        folded = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells]
        places = {
            name: folded.index(next(spelling for spelling in spellings if spelling in folded))
            for name, spellings in spec.SPELLINGS.items()
            if not set(spellings).isdisjoint(folded)
        }
        if spec.ERROR in places and (spec.CUID in places or spec.URL in places):
            return ResultHeader(delimiter, places, len(cells))
    return None


class ResultRows(NamedTuple):
    """One result file: SHA-256 of its bytes, name, rows (ResultTable), problem codes, day of arrival if known."""

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]
    received: date | None = None


class Arrived(NamedTuple):
    """A result file before reading: bytes (plain or gzip), name, and the day it arrived, where known."""

    content: bytes
    name: str
    received: date | None = None


def read_results(files: Sequence[Arrived]) -> list[ResultRows]:
    """Read result files, at least one. Keeps every row and raises nothing."""
    read = [_read_cells(file.content) for file in files]
    table = _table([cells for cells, _ in read])
    ends = accumulate(cells.height for cells, _ in read)
    return [
        ResultRows(_sha256(file.content), file.name, table[end - cells.height : end], problems, file.received)
        for file, (cells, problems), end in zip(files, read, ends, strict=True)
    ]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def text_of(content: bytes) -> tuple[str, list[str]]:
    """Return a partner's file (plain or gzip bytes, any encoding) as text, and problem codes."""
    raw, packing = _unpack(content)
    text, encoding = _decode(raw)
    return text, [*packing, *encoding]


def _unpack(content: bytes) -> tuple[bytes, list[str]]:
    """Unpack gzip, member by member, up to any damage. A file larger than LIMIT gives no bytes."""
    if content[:2] != b"\x1f\x8b":
        return (content, []) if len(content) <= LIMIT else (b"", [TOO_LARGE])
    out, rest = b"", content
    while rest[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(wbits=31)
        try:
            out += unpacker.decompress(rest, LIMIT + 1 - len(out))
        except zlib.error:
            return out, [GZIP_DAMAGED]
        if len(out) > LIMIT:
            return b"", [TOO_LARGE]
        if not unpacker.eof:
            return out, [GZIP_DAMAGED]
        rest = unpacker.unused_data
    return out, []


def _decode(raw: bytes) -> tuple[str, list[str]]:
    for marker, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(marker):
            return raw.decode(encoding, "replace"), []
    if b"\0" in raw[:200]:  # UTF-16 without a byte order mark: plain English in it is valid UTF-8 too
        return raw.decode("utf-16-be" if raw[:1] == b"\0" else "utf-16-le", "replace"), [ENCODING_GUESSED]
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace"), [ENCODING_GUESSED]


def _read_cells(content: bytes) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the cells of one file, under the documented names of the columns it has, and problem codes."""
    text, problems = text_of(content)
    lines = list(io.StringIO(text, newline=""))
    heads = ((at, head) for at, line in enumerate(lines[:HEAD]) if (head := find_header(line)))
    at, head = next(heads, (0, None))
    if head is None:
        return _CELLS, (*problems, NOT_A_RESULT if text.strip() else EMPTY)
    records, damage = _records(lines[at + 1 :], head)
    columns = list(zip(*(_fit(record, head) for record in records), strict=True)) or [()] * head.width
    cells = {name: columns[place] for name, place in head.places.items()}
    return pl.DataFrame(cells, dict.fromkeys(cells, pl.String)), tuple(dict.fromkeys((*problems, *damage)))


def _records(lines: list[str], head: ResultHeader) -> tuple[list[list[str]], list[str]]:
    """Read the records with doubled quotes, or with backslashes where that gives fewer problems."""
    csv.field_size_limit(LIMIT)  # the default would raise on a long error object
    doubled = _split(lines, head, None)
    if not doubled[1] or not any('\\"' in line for line in lines):
        return doubled
    return min(doubled, _split(lines, head, "\\"), key=lambda read: len(read[1]))


def _split(lines: list[str], head: ResultHeader, escape: str | None) -> tuple[list[list[str]], list[str]]:
    """Split lines into records and name the problems; a quote that never closes spoils only its own line."""
    records: list[list[str]] = []
    problems: list[str] = []
    start = 0
    while start < len(lines):
        good, problem = _well_formed(islice(lines, start, None), head, escape, records)
        if not problem:
            break
        problems.append(problem)
        line = lines[start + good].rstrip("\r\n")
        bare = f"{head.delimiter}{{" in line or f"{head.delimiter}[" in line  # the quotes of an unquoted error object
        reader = csv.reader([line], delimiter=head.delimiter, quoting=csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL)
        records.append(next(reader, []))
        start += good + 1
    problems += [RAGGED for record in records if len(record) != head.width]
    if records and len(records[-1]) < head.width and not lines[-1].endswith(("\r", "\n")):
        problems.append(TRUNCATED)
    return records, problems


def _well_formed(
    lines: Iterator[str], head: ResultHeader, escape: str | None, records: list[list[str]]
) -> tuple[int, str]:
    """Append records while they are well formed; return how many lines were used and what stopped the reading."""
    reader = csv.reader(lines, delimiter=head.delimiter, doublequote=escape is None, escapechar=escape, strict=True)
    used = 0
    try:
        for record in reader:
            if reader.line_num - used > 1 and len(record) != head.width:
                return used, QUOTING  # an open quote swallowed the next lines
            used = reader.line_num
            if record and (len(record) > 1 or record[0].strip()):
                records.append(record)
    except csv.Error as error:
        return used, TRUNCATED if "end of data" in str(error) else QUOTING
    return used, ""


def _fit(record: list[str], head: ResultHeader) -> list[str]:
    """Give a record the header's width: rejoin an unquoted error object; drop the url of a row that was cut."""
    if len(record) == head.width:
        return record
    cells = list(record)
    while len(cells) > head.width and not cells[-1].strip():
        cells.pop()
    surplus = len(cells) - head.width
    if surplus > 0:
        at = head.places[spec.ERROR]
        cells[at : at + surplus + 1] = [head.delimiter.join(cells[at : at + surplus + 1])]
    elif surplus < 0:
        cells += [""] * -surplus
        if spec.URL in head.places:  # half a link is no link
            cells[head.places[spec.URL]] = ""
    return cells


def _table(files: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all files in order, numbered from 1 within each file; missing cells are null."""
    numbered = [_CELLS.with_row_index("position"), *(cells.with_row_index("position", 1) for cells in files)]
    cell = pl.col(*spec.SPELLINGS).str.strip_chars()
    cells = pl.concat(numbered, how="diagonal", rechunk=True).with_columns(
        pl.when(~cell.is_in(["", *NOTHING])).then(cell)
    )
    # `{}` beside a link is no error; alone it is what JSON.stringify makes of one
    error = pl.when(pl.col(spec.URL).is_null() | ~pl.col(spec.ERROR).is_in(["{}", "[]", '""'])).then(spec.ERROR)
    return cells.select(
        "position",
        spec.CUID,
        # also of `************1111`; a spreadsheet loses leading zeros
        pl.col(spec.LAST_4).str.extract(r"([0-9]{1,4})$").str.zfill(4),
        spec.URL,
        day_in(spec.EXPIRATION_DATE).alias("expires_on"),
        pl.col(spec.EXPIRATION_DATE).alias("expires_raw"),
        error,
    )


def day_in(column: str) -> pl.Expr:
    """Read the spellings of a date that portals use; null for any other text."""
    text = pl.col(column)
    dates = [text.str.extract(pattern).str.to_date(form, strict=False) for pattern, form in _DATES]
    epochs = [
        (text.str.extract(pattern).cast(pl.Int64) * factor).cast(pl.Datetime("ms")).cast(pl.Date)
        for pattern, factor in _EPOCHS
    ]
    return pl.coalesce(*dates, *epochs)
