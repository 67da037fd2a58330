"""Result files as they come: bytes in, rows out. Any encoding and dialect, and never a row dropped.

Files as they are documented (interface.md 2.7) are read many at once, any other by itself.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from flows.extracts.grammar import Delimited
from schemas import result as spec

DELIMITERS = (",", ";", "\t", "|")

BOM = b"\xef\xbb\xbf"
WIDEST = 32  # columns: the grammar of a line grows with them, and five are documented

LIMIT = 64 * 1024 * 1024  # bytes of one result file once unpacked: 1000 rows are 0.2 MB
HEAD = 20  # lines in which the header is looked for: comments and `sep=` may stand before it
NOTHING = ("null", "NULL", "undefined", "None", "NaN")  # how writers spell an absent value

EMPTY = "file.content.empty"
NOT_A_RESULT = "file.header.unknown"
TOO_LARGE = "file.content.too_large"
GZIP_DAMAGED = "file.gzip.truncated"
ENCODING_GUESSED = "file.encoding.guessed"
TRUNCATED = "file.line.truncated"
QUOTING = "file.line.quoting"
RAGGED = "file.line.ragged"
DAMAGE = frozenset((EMPTY, NOT_A_RESULT, TOO_LARGE, GZIP_DAMAGED, TRUNCATED))

_DATES = (
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})", "%Y-%m-%d"),
    (r"^([0-9]{1,2}/[0-9]{1,2}/[0-9]{4})", "%m/%d/%Y"),
    (r"^([0-9]{1,2}/[0-9]{1,2}/[0-9]{2})$", "%m/%d/%y"),
    (r"\b([A-Z][a-z]{2} [0-9]{1,2} [0-9]{4})\b", "%b %d %Y"),  # String(new Date())
    (r"^(20[0-9]{6})$", "%Y%m%d"),
)
_EPOCHS = ((r"^([1-3][0-9]{12})$", 1), (r"^([1-3][0-9]{9})$", 1000))  # milliseconds, seconds


class ResultHeader(NamedTuple):
    """The header: its delimiter, which column stands where, and how many there are."""

    delimiter: str
    places: dict[str, int]
    width: int


def find_header(line: str) -> ResultHeader | None:
    """Find the delimiter under which `line` is a result's header: an error column, and a cuid or a url."""
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


class _Body(NamedTuple):
    """The records of one file, each a line that ends in a newline."""

    at: int
    text: bytes
    height: int


def read_documented(contents: Sequence[bytes]) -> list[pl.DataFrame | None]:
    """Return the cells of each file (columns of schemas.result.SPELLINGS, text), None of one to be read otherwise."""
    found: list[pl.DataFrame | None] = [None] * len(contents)
    for line, bodies in _by_header(contents).items():
        head = _head(line)
        sound = _sound(bodies, head) if head else []
        cells = _cells(sound, head) if head and sound else None
        if cells is None:
            continue
        start = 0
        for body in sound:
            found[body.at] = cells[start : start + body.height]
            start += body.height
    return found


def _by_header(contents: Sequence[bytes]) -> dict[bytes, list[_Body]]:
    """Part the files that are plain text with a header line and lines after it by that header."""
    bodies: dict[bytes, list[_Body]] = {}
    for at, content in enumerate(contents):
        text = content.removeprefix(BOM)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        header, _, body = text.partition(b"\n")
        if body and b"\r" not in text and _is_utf8(text):
            whole = body if body.endswith(b"\n") else body + b"\n"
            bodies.setdefault(header, []).append(_Body(at, whole, whole.count(b"\n")))
    return bodies


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _head(line: bytes) -> ResultHeader | None:
    if b"\0" in line:  # UTF-16 without a mark may look like UTF-8
        return None
    head = find_header(line.decode())
    return head if head and head.width <= WIDEST else None


def _sound(bodies: Sequence[_Body], head: ResultHeader) -> list[_Body]:
    """Return the files of which every line is a record."""
    lines = pl.read_lines(b"".join([body.text for body in bodies])).to_series()
    quoted = lines.str.contains('"', literal=True).to_numpy()
    grammar = Delimited(head.delimiter, head.width)
    holds = np.empty(len(lines), dtype=bool)
    for with_quotes, mask in ((False, ~quoted), (True, quoted)):
        holds[mask] = grammar.holds(lines.filter(pl.Series(mask)), with_quotes).to_numpy()
    starts = np.cumsum([0, *(body.height for body in bodies)])
    if starts[-1] != len(lines):
        return []
    whole = np.logical_and.reduceat(holds, starts[:-1]).tolist()
    return [body for body, sound in zip(bodies, whole, strict=True) if sound]


def _cells(bodies: Sequence[_Body], head: ResultHeader) -> pl.DataFrame | None:
    """Return the cells of records, None where the parser does not see as many of them as the grammar."""
    text = b"".join([body.text for body in bodies])
    names = [str(at) for at in range(head.width)]
    options: dict[str, Any] = {"has_header": False, "infer_schema": False, "glob": False, "separator": head.delimiter}
    try:
        rows = pl.read_csv(text, schema=dict.fromkeys(names, pl.String), **options)
    except pl.exceptions.PolarsError:  # its message would quote rows
        return None
    if rows.height != sum(body.height for body in bodies):
        return None
    absent = pl.lit(None, pl.String)
    return rows.select(
        (pl.col(names[head.places[name]]) if name in head.places else absent).alias(name) for name in spec.SPELLINGS
    )


class ResultRows(NamedTuple):
    """One result file: SHA-256 of the stored bytes, name, rows (schemas.result.ResultTable), problem codes.

    `received` is the day the file came in, where known: a link is judged expired by it.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]
    received: date | None = None


class Arrived(NamedTuple):
    """A result file as it lay there: bytes (plain or gzip), name, the day it came where known."""

    content: bytes
    name: str
    received: date | None = None


def read_result(content: bytes, name: str, received: date | None = None) -> ResultRows:
    """Read a result file (plain or gzip bytes, interface.md 2.7); no row is dropped and nothing is raised."""
    return read_results([Arrived(content, name, received)])[0]


def read_results(files: Sequence[Arrived]) -> list[ResultRows]:
    """Read result files, at least one, their cells together: a look at 1000 rows costs mostly the asking."""
    plain = read_documented([file.content if len(file.content) <= LIMIT else b"" for file in files])
    found = [read_any(file) if cells is None else _found(file, cells) for file, cells in zip(files, plain, strict=True)]
    table = _table([one.rows for one in found])
    ends = list(accumulate(one.rows.height for one in found))
    return [one._replace(rows=table[end - one.rows.height : end]) for one, end in zip(found, ends, strict=True)]


def read_any(file: Arrived) -> ResultRows:
    """Return the file with its cells as they stand there, whatever it looks like."""
    text, problem = text_of(file.content)
    columns, damage = _columns(text)
    cells = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    return _found(file, cells, tuple(dict.fromkeys((*problem, *damage))))


def _found(file: Arrived, cells: pl.DataFrame, problems: tuple[str, ...] = ()) -> ResultRows:
    return ResultRows(hashlib.sha256(file.content).hexdigest(), file.name, cells, problems, file.received)


def text_of(content: bytes) -> tuple[str, list[str]]:
    """Return a partner's file (plain or gzip bytes, any encoding) as text, and problem codes."""
    raw, packing = _unpack(content)
    text, encoding = _decode(raw)
    return text, [*packing, *encoding]


def _unpack(content: bytes) -> tuple[bytes, list[str]]:
    """Unpack gzip, one member after another, as far as it goes; nothing of what is larger than LIMIT."""
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
    if b"\0" in raw[:200]:  # UTF-16 without a mark: plain English in it is valid UTF-8 too
        return raw.decode("utf-16-be" if raw[:1] == b"\0" else "utf-16-le", "replace"), [ENCODING_GUESSED]
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace"), [ENCODING_GUESSED]


def _columns(text: str) -> tuple[dict[str, list[str | None]], list[str]]:
    lines = list(io.StringIO(text, newline=""))
    heads = ((at, head) for at, line in enumerate(lines[:HEAD]) if (head := find_header(line)))
    at, head = next(heads, (0, None))
    if head is None:
        return {name: [] for name in spec.SPELLINGS}, [NOT_A_RESULT if text.strip() else EMPTY]
    plain = _plain(lines[at + 1 :], head)
    records, problems = (plain, []) if plain else _records(lines[at + 1 :], head)
    cells = list(zip(*(records if plain else [_fit(record, head) for record in records]), strict=True))
    cells = cells or [()] * head.width
    absent = [None] * len(records)
    return {
        name: list(cells[head.places[name]]) if name in head.places else list(absent) for name in spec.SPELLINGS
    }, problems


def _plain(lines: list[str], head: ResultHeader) -> list[list[str]]:
    """Read records that are a well-formed line each and as wide as the header, as most files are; else nothing."""
    csv.field_size_limit(LIMIT)  # the module's own limit would raise on a long error object
    reader = csv.reader(lines, delimiter=head.delimiter, strict=True)
    try:
        records = list(reader)
    except csv.Error:
        return []
    return records if reader.line_num == len(records) and set(map(len, records)) == {head.width} else []


def _records(lines: list[str], head: ResultHeader) -> tuple[list[list[str]], list[str]]:
    """Read the records with doubled quotes, or with backslashes where only so every row has its width."""
    doubled = _split(lines, head, None)
    if not doubled[1] or not any('\\"' in line for line in lines):
        return doubled
    return min(doubled, _split(lines, head, "\\"), key=lambda read: len(read[1]))


def _split(lines: list[str], head: ResultHeader, escape: str | None) -> tuple[list[list[str]], list[str]]:
    """Split lines into records and name what was wrong; a quote that never closes spoils its own line only."""
    records: list[list[str]] = []
    problems: list[str] = []
    start = 0
    while start < len(lines):
        good, problem = _well_formed(islice(lines, start, None), head, escape, records)
        if not problem:
            break
        problems.append(problem)
        records.append(_spoilt(lines[start + good].rstrip("\r\n"), head.delimiter))
        start += good + 1
    problems += [RAGGED for record in records if len(record) != head.width]
    if records and len(records[-1]) < head.width and not lines[-1].endswith(("\r", "\n")):
        problems.append(TRUNCATED)
    return records, problems


def _spoilt(line: str, delimiter: str) -> list[str]:
    """Split one line that is not well formed; the quotes of an object that stands there unquoted are its own."""
    bare = f"{delimiter}{{" in line or f"{delimiter}[" in line
    if bare:
        return next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE), [])
    return next(csv.reader([line], delimiter=delimiter), [])


def _well_formed(
    lines: Iterator[str], head: ResultHeader, escape: str | None, records: list[list[str]]
) -> tuple[int, str]:
    """Take records as long as they are well formed; return how many lines they took and what stopped them."""
    reader = csv.reader(lines, delimiter=head.delimiter, doublequote=escape is None, escapechar=escape, strict=True)
    taken = 0
    try:
        for record in reader:
            if reader.line_num - taken > 1 and len(record) != head.width:
                return taken, QUOTING  # a quote left open swallowed the next lines
            taken = reader.line_num
            if record and (len(record) > 1 or record[0].strip()):
                records.append(record)
    except csv.Error as error:
        return taken, TRUNCATED if "end of data" in str(error) else QUOTING
    return taken, ""


def _fit(record: list[str], head: ResultHeader) -> list[str]:
    """Give a record the header's width: an unquoted error object is joined again, a cut row loses its url."""
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
    """Return the rows of all files under each other, each file's numbered from 1."""
    positions = [np.arange(1, one.height + 1, dtype=np.uint32) for one in files]
    cells = pl.concat(files, rechunk=True).select(_stripped())
    return cells.select(
        pl.Series("position", np.concatenate(positions)),
        spec.CUID,
        _last_4(cells[spec.LAST_4]),
        spec.URL,
        _expires_on(cells[spec.EXPIRATION_DATE]),
        pl.col(spec.EXPIRATION_DATE).alias("expires_raw"),
        # `{}` beside a link is no error; alone it is what JSON.stringify makes of one
        pl.when(pl.col(spec.URL).is_null() | ~pl.col(spec.ERROR).is_in(["{}", "[]", '""'])).then(spec.ERROR),
    )


def _stripped() -> pl.Expr:
    cell = pl.all().str.strip_chars()
    return pl.when(~cell.is_in(["", *NOTHING])).then(cell)


def _last_4(texts: pl.Series) -> pl.Series:
    """Return the last digits, also of `************1111`; a spreadsheet in between loses leading zeros."""
    if texts.str.contains("^[0-9]{4}$").all():
        return texts  # as documented
    return texts.str.extract(r"([0-9]{1,4})$").str.zfill(4)


def _expires_on(texts: pl.Series) -> pl.Series:
    """Return the days; where all are in the documented spelling, as they are in most files, no other is tried."""
    if texts.str.contains("^[0-9]{4}-[0-9]{2}-[0-9]{2}$").all():
        days = texts.str.to_date("%Y-%m-%d", strict=False)
    else:
        days = texts.to_frame().select(day_in(spec.EXPIRATION_DATE)).to_series()
    return days.alias("expires_on")


def day_in(column: str) -> pl.Expr:
    """Read the spellings of a date that portals use; null where it is none of them."""
    text = pl.col(column)
    dates = [text.str.extract(pattern).str.to_date(form, strict=False) for pattern, form in _DATES]
    epochs = [
        (text.str.extract(pattern).cast(pl.Int64) * factor).cast(pl.Datetime("ms")).cast(pl.Date)
        for pattern, factor in _EPOCHS
    ]
    return pl.coalesce(*dates, *epochs)
