"""A transaction report of the partner: read by name, every row once, none dropped."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import polars as pl

from flows.partner_api.job_records import code, site_name
from flows.partner_api.translation import fold, meaning_of
from flows.results.csv_records import DELIMITERS, HEAD
from flows.results.masking import mask, printable
from flows.results.opening import EMPTY, NOT_A_RESULT, text_of
from flows.results.read import day_in
from flows.runs.transactions import POSITION, REPORTED, from_status
from schemas.partner_api.profile import INTERFACE, Profile, ReportColumns, Words

_LINE_END = re.compile(r"\r\n|\r|\n")
ROW = pl.Schema({POSITION: pl.UInt32(), **dict.fromkeys(ReportColumns.model_fields, pl.String())})


class Transactions(NamedTuple):
    """One report: SHA-256 of its bytes, name, rows (position from 1, then REPORTED), problem codes.

    A row that is too long, or ends with its cuid, has none: half a cuid may be somebody else's.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]


class _Header(NamedTuple):
    """The header of a report."""

    line: int  # from 0
    delimiter: str
    places: dict[str, int]  # of its columns, from 0, by our name
    width: int  # in cells


class _Row(NamedTuple):
    """One row, as ROW has it; a name that the header lacks is absent."""

    position: int
    cuid: str | None
    status: str | None
    completed_on: str | None
    merchant_site: str | None


def read_transactions(content: bytes, name: str, profile: Profile = INTERFACE) -> Transactions:
    """Read a transaction report (plain or gzip bytes, any delimiter and date).

    `profile`: its columns, and what the partner's statuses mean. Nothing is raised.
    """
    text, problems = text_of(content)
    lines = _LINE_END.split(text)
    header = _header(lines, profile.report)
    if header is None:
        has_content = any(line.strip() for line in lines)
        problems.append(NOT_A_RESULT if has_content else EMPTY)
        rows = pl.DataFrame(schema=ROW)
    else:
        rows = pl.DataFrame(_rows(lines, header), schema=ROW, orient="row")
    sha256 = hashlib.sha256(content).hexdigest()
    return Transactions(sha256, name, _meanings(rows, profile.words), tuple(problems))


def _header(lines: Sequence[str], columns: ReportColumns) -> _Header | None:
    """Find the header, and the delimiter by which it has the columns that are needed."""
    for number, line in enumerate(lines[:HEAD]):
        for delimiter in DELIMITERS:
            cells = next(csv.reader([line], delimiter=delimiter), [])
            places = _places(cells, columns)
            if {"cuid", "status"} <= places.keys():
                return _Header(number, delimiter, places, len(cells))
    return None


def _places(cells: Sequence[str], columns: ReportColumns) -> dict[str, int]:
    """Return the place of each column, by the first of its spellings that is there."""
    folded = list(map(fold, cells))
    places = {}
    for name in ReportColumns.model_fields:
        spellings = map(fold, getattr(columns, name))
        present = [spelling for spelling in spellings if spelling in folded]
        if present:
            places[name] = folded.index(present[0])
    return places


def _rows(lines: Sequence[str], header: _Header) -> Iterator[_Row]:
    """Yield every non-blank line below the header.

    Line by line: no cell of a report spans lines, so a quote left open spoils its own line only.
    """
    below = lines[header.line + 1 :]
    filled = (line for line in below if line.strip().strip(header.delimiter))
    for position, line in enumerate(filled, start=1):
        cells = next(csv.reader([printable(line)], delimiter=header.delimiter), [])
        yield _row(position, cells, header)


def _row(position: int, cells: Sequence[str], header: _Header) -> _Row:
    by_name = {
        name: cells[place].strip() or None
        for name, place in header.places.items()
        if place < len(cells)
    }
    is_whole = len(cells) >= header.width or header.places["cuid"] + 1 < len(cells)
    has_more = any(cell.strip() for cell in cells[header.width :])
    return _Row(
        position,
        by_name.get("cuid") if is_whole and not has_more else None,
        by_name.get("status"),
        by_name.get("completed_on"),
        by_name.get("merchant_site"),
    )


def _meanings(rows: pl.DataFrame, words: Words) -> pl.DataFrame:
    """Return what each row means: placed, ended otherwise, still running, or nothing known."""
    coded = rows.with_columns(
        _each("status", lambda word: _status_code(meaning_of(word, words.report))),
        day_in("completed_on").alias("completed_on"),
        _each("merchant_site", site_name),
        pl.lit(value=True).alias("opened"),
    )
    return coded.with_columns(*from_status()).select(POSITION, *REPORTED)


def _each(column: str, reading: Callable[[str], str | None]) -> pl.Expr:
    """Return a column with each of its texts as it is read; they are few."""

    def read(texts: pl.Series) -> pl.Series:
        words = texts.drop_nulls().unique().to_list()
        readings = list(map(reading, words))
        return texts.replace_strict(words, readings, default=None, return_dtype=pl.String)

    return pl.col(column).map_batches(read, pl.String)


def _status_code(word: str) -> str:
    """Return a status as a code: `Shipped to the site` is SHIPPED_TO_THE_SITE.

    Of words that are not known to be harmless nothing is kept: they are OTHER.
    """
    if mask(word) != word or any(map(str.isdecimal, word)):
        return code(word)
    return code(re.sub(r"[\W_]+", "_", word).strip("_"))
