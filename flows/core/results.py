"""Result files as they come: bytes in, rows out. Any encoding and dialect, and never a row dropped."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zlib
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

import polars as pl

from schemas import result as spec

LIMIT = 256 * 1024 * 1024  # bytes of one result file once unpacked: 1000 rows are 0.2 MB
DELIMITERS = (",", ";", "\t", "|")

EMPTY = "file.content.empty"
NOT_A_RESULT = "file.header.unknown"
TOO_LARGE = "file.content.too_large"
GZIP_DAMAGED = "file.gzip.truncated"
ENCODING_GUESSED = "file.encoding.guessed"
TRUNCATED = "file.line.truncated"
RAGGED = "file.line.ragged"


class ResultRows(NamedTuple):
    """One result file: SHA-256 of the stored bytes, name, rows (schemas.result.ResultTable), problem codes.

    `received` is the day the file came in, where known: a link is judged expired by it.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]
    received: date | None = None


def read_result(content: bytes, name: str, received: date | None = None) -> ResultRows:
    """Read a result file (plain or gzip bytes, interface.md 2.7); no row is dropped and nothing is raised."""
    problems: list[str] = []
    text = _decode(_unpack(content, problems), problems)
    columns = _columns(text, problems)
    return ResultRows(
        hashlib.sha256(content).hexdigest(), name, _table(columns), tuple(dict.fromkeys(problems)), received
    )


def _unpack(content: bytes, problems: list[str]) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content[:LIMIT]
    out, rest = b"", content
    while rest[:2] == b"\x1f\x8b" and len(out) < LIMIT:  # members may follow one another
        unpacker = zlib.decompressobj(wbits=31)
        try:
            out += unpacker.decompress(rest, LIMIT - len(out))
        except zlib.error:
            problems.append(GZIP_DAMAGED)
            return out
        if not unpacker.eof:
            problems.append(TOO_LARGE if len(out) >= LIMIT else GZIP_DAMAGED)
            return out
        rest = unpacker.unused_data
    return out


def _decode(raw: bytes, problems: list[str]) -> str:
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(mark):
            return raw.decode(encoding, "replace")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        problems.append(ENCODING_GUESSED)
        text = raw.decode("utf-16", "replace") if raw[:200].count(0) > 20 else raw.decode("cp1252", "replace")
        return text
    if "\0" in text[:200]:  # UTF-16 of plain English without a mark is valid UTF-8
        problems.append(ENCODING_GUESSED)
        return raw.decode("utf-16-le" if raw[1:2] == b"\0" else "utf-16-be", "replace")
    return text


def _columns(text: str, problems: list[str]) -> dict[str, list[str | None]]:
    none: dict[str, list[str | None]] = {name: [] for name in spec.SPELLINGS}
    lines = list(io.StringIO(text, newline=""))
    head = next((at for at, line in enumerate(lines[:20]) if _places(line)), None)
    if head is None:
        problems.append(NOT_A_RESULT if text.strip() else EMPTY)
        return none
    delimiter, places, width = _places(lines[head]) or (",", {}, 0)
    records = [_fit(record, width, problems) for record in _records(lines[head + 1 :], delimiter, width, problems)]
    if not records:
        return none
    by_column = list(zip(*records, strict=True))
    return {name: list(by_column[places[name]]) if name in places else [None] * len(records) for name in none}


def _places(line: str) -> tuple[str, dict[str, int], int] | None:
    """Find the delimiter under which `line` is a result's header: an error column and a cuid or a url."""
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        folded = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells]
        places = {
            name: next(folded.index(spelling) for spelling in spellings if spelling in folded)
            for name, spellings in spec.SPELLINGS.items()
            if any(spelling in folded for spelling in spellings)
        }
        if spec.ERROR in places and (spec.CUID in places or spec.URL in places):
            return delimiter, places, len(cells)
    return None


def _records(lines: list[str], delimiter: str, width: int, problems: list[str]) -> list[list[str]]:
    plain = list(_rows(lines, delimiter, False, problems))
    if all(len(record) == width for record in plain) or not any('\\"' in line for line in lines):
        return plain
    escaped = list(_rows(lines, delimiter, True, problems))
    return min(plain, escaped, key=lambda records: sum(len(record) != width for record in records))


def _rows(lines: list[str], delimiter: str, escaped: bool, problems: list[str]) -> Iterator[list[str]]:
    """Yield the records; a quote that never closes spoils its own line only."""
    end, start = "\x00end\x00", 0
    csv.field_size_limit(LIMIT)
    while start < len(lines):
        feed = iter([*lines[start:], end])
        reader = csv.reader(feed, delimiter=delimiter, doublequote=not escaped, escapechar="\\" if escaped else None)
        before, record = 0, [""]
        for record in reader:
            if reader.line_num > len(lines) - start:
                break
            if any(cell.strip() for cell in record) or len(record) > 1:
                yield record
            before = reader.line_num
        if record == [end]:
            return
        problems.append(TRUNCATED)
        opened = start + before
        yield next(csv.reader([lines[opened].rstrip("\r\n")], delimiter=delimiter))
        start = opened + 1


def _fit(record: list[str], width: int, problems: list[str]) -> list[str | None]:
    if len(record) != width:
        problems.append(RAGGED)
    cells = [cell.strip() or None for cell in record[:width]] + [None] * (width - len(record))
    if len(record) > width:  # an unquoted object with delimiters in it: what is left over is its rest
        cells[-1] = ",".join(record[width - 1 :]).strip() or None
    return cells


def _table(columns: dict[str, list[str | None]]) -> pl.DataFrame:
    raw = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    return raw.select(
        pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("position"),
        spec.CUID,
        _last_4(),
        spec.URL,
        _expires_on(),
        pl.col(spec.EXPIRATION_DATE).alias("expires_raw"),
        spec.ERROR,
    )


def _last_4() -> pl.Expr:
    """Take the last four digits; a spreadsheet in between loses leading zeros."""
    digits = pl.col(spec.LAST_4).str.extract(r"([0-9]{1,4})$")
    return digits.str.zfill(4).alias(spec.LAST_4)


def _expires_on() -> pl.Expr:
    text = pl.col(spec.EXPIRATION_DATE)
    epoch = text.str.extract(r"^([1-3][0-9]{12})$").cast(pl.Int64).cast(pl.Datetime("ms")).cast(pl.Date)
    seconds = (text.str.extract(r"^([1-3][0-9]{9})$").cast(pl.Int64) * 1000).cast(pl.Datetime("ms")).cast(pl.Date)
    american = text.str.extract(r"^([0-9]{1,2}/[0-9]{1,2}/[0-9]{4})")
    return pl.coalesce(
        text.str.extract(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})").str.to_date("%Y-%m-%d", strict=False),
        american.str.to_date("%m/%d/%Y", strict=False),
        text.str.extract(r"^([0-9]{1,2}/[0-9]{1,2}/[0-9]{2})$").str.to_date("%m/%d/%y", strict=False),
        text.str.extract(r"([A-Z][a-z]{2} [0-9]{1,2},? [0-9]{4})")
        .str.replace(",", "")
        .str.to_date("%b %d %Y", strict=False),
        text.str.extract(r"^([0-9]{8})$").str.to_date("%Y%m%d", strict=False),
        epoch,
        seconds,
    ).alias("expires_on")
