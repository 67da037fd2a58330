"""Read result files (interface.md 2.7) into rows, in any encoding and dialect.

No row is dropped.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import accumulate, chain
from typing import NamedTuple

import polars as pl
from polars.exceptions import PanicException

from flows.errors import CardlinkError, kind_and_place
from flows.results import opening
from flows.results.csv_records import (
    DELIMITERS,
    HEAD,
    ResultHeader,
    ends_with_url,
    first_header,
    fit,
    read_records,
)
from flows.results.error_text import LONGEST
from flows.results.partner_days import read_days
from schemas import result as spec

# polars' panics are no `Exception`; stop signals are neither
UNFORESEEN = (Exception, PanicException)
NOTHING = ("null", "NULL", "undefined", "None", "NaN")  # how programs write a missing value

_DAY = {"expires_on": pl.Date, "expires_form": pl.String}
_CELLS = pl.DataFrame(schema={**dict.fromkeys(spec.SPELLINGS, pl.String), **_DAY})
_NO_DIGITS = "????"  # of a last_4 that cannot be read: those of no card


class ResultRows(NamedTuple):
    """One result file: SHA-256 of its bytes, name, rows (ResultTable), problem codes.

    `received`: the day of its arrival, if known. `open_ended`: it ends with a URL, without a line
    end, so that it may end within the URL. `known_texts`: of errors that are kept (`[errors]`).
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]
    received: date | None = None
    open_ended: bool = False
    known_texts: tuple[str, ...] = ()

    def without_rows(self, problem: str) -> ResultRows:
        """Return the file as one that could not be used because of `problem`."""
        return self._replace(rows=_CELLS, problems=(problem,), open_ended=False)


class _Content(NamedTuple):
    """What a file has: its cells, under the documented names of its columns, and problem codes.

    `open_ended`: see ResultRows.
    """

    cells: pl.DataFrame
    problems: tuple[str, ...]
    open_ended: bool = False


def failed(error: BaseException) -> str:
    """Return the problem code of a file whose reading failed unforeseen.

    A CardlinkError is raised again.
    """
    if isinstance(error, CardlinkError):
        raise error
    return f"{opening.FAILED}{kind_and_place(error)}"


def read_cells(
    content: bytes, name: str, received: date | None = None, *, is_day_first: bool | None = None
) -> ResultRows:
    """Read one result file (plain or gzip bytes), to be tabulated; never raises.

    Keeps every row, but none of a file beyond a limit, or whose reading fails. `is_day_first`: see
    `read_days`.
    """
    empty = ResultRows(hashlib.sha256(content).hexdigest(), name, _CELLS, (), received)
    try:
        cells, problems, open_ended = _read_cells(content)
        cells = _with_days(cells, is_day_first)
    except opening.RefusedError as refused:
        return empty.without_rows(str(refused))
    except UNFORESEEN as error:
        return empty.without_rows(failed(error))
    return empty._replace(rows=cells, problems=problems, open_ended=open_ended)


def tabulate(files: Sequence[ResultRows]) -> list[ResultRows]:
    """Return files, at least one, as read by `read_cells`, with their rows as ResultTable."""
    table = _table([file.rows for file in files])
    ends = accumulate(file.rows.height for file in files)
    return [
        file._replace(rows=table[end - file.rows.height : end])
        for file, end in zip(files, ends, strict=True)
    ]


def _read_cells(content: bytes) -> _Content:
    """Return what one file has; RefusedError where it is beyond a limit."""
    text, problems = opening.text_of(content)
    if not opening.BEYOND.isdisjoint(problems):
        return _Content(_CELLS, tuple(problems))
    if text.count("\n") + text.count("\r") > 2 * opening.LINES:  # before a list is made of them
        raise opening.RefusedError(opening.LINES_MANY)
    lines = list(io.StringIO(text, newline=""))
    # of the whole process; the default would raise on a long error object
    csv.field_size_limit(opening.LINE)
    first = first_header(lines)
    if first is None:
        kept = [problem for problem in problems if problem != opening.ENCODING_GUESSED]
        return _Content(_CELLS, (*kept, *_why_no_result(content, lines)))
    number, header = first
    _refuse_large(lines, text, header)
    records, damage = read_records(lines[number + 1 :], header)
    cells = _columns(records, header)
    _refuse_long(cells)
    without_rows = [] if records else [opening.EMPTY]
    all_problems = tuple(dict.fromkeys((*problems, *damage, *without_rows)))
    table = pl.DataFrame(cells, dict.fromkeys(cells, pl.String))
    return _Content(table, all_problems, ends_with_url(lines, header))


def _why_no_result(content: bytes, lines: Sequence[str]) -> Iterator[str]:
    """Yield the problem codes of a file without a result's header."""
    is_empty = not any(line.strip() for line in lines)
    yield opening.EMPTY if is_empty else opening.NOT_A_RESULT
    if any(max(map(line.count, DELIMITERS)) >= opening.COLUMNS for line in lines[:HEAD]):
        yield opening.COLUMNS_MANY
        return
    looks = opening.looks_like(content)
    if looks:
        yield looks


def _refuse_large(lines: Sequence[str], text: str, header: ResultHeader) -> None:
    """Raise RefusedError where a file has too many or too long lines, or too many cells."""
    if len(lines) > opening.LINES:
        raise opening.RefusedError(opening.LINES_MANY)
    if max(map(len, lines)) > opening.LINE:
        raise opening.RefusedError(opening.LINE_LONG)
    if text.count(header.delimiter) > opening.CELLS:
        raise opening.RefusedError(opening.WORK)


def _refuse_long(cells: Mapping[str, Sequence[str]]) -> None:
    """Raise RefusedError where a cell is too long, or the errors take too long to interpret."""
    others = (column for name, column in cells.items() if name != spec.ERROR)
    if max(map(len, chain.from_iterable(others)), default=0) > opening.CELL:
        raise opening.RefusedError(opening.CELL_LONG)
    if sum(min(len(error), LONGEST) for error in set(cells[spec.ERROR])) > opening.ERRORS:
        raise opening.RefusedError(opening.WORK)


def _columns(records: list[list[str]], header: ResultHeader) -> dict[str, tuple[str, ...]]:
    """Return the cells of each known column."""
    if not {header.width}.issuperset(map(len, records)):
        records = [fit(record, header) for record in records]
    columns = list(zip(*records, strict=True)) or [()] * header.width
    return {name: columns[place] for name, place in header.places.items()}


def _table(files: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all files in order, numbered from 1 within each file; missing cells are
    null.
    """
    numbered = [
        _CELLS.with_row_index("position"),
        *(cells.with_row_index("position", 1) for cells in files),
    ]
    cell = pl.col(*spec.SPELLINGS).str.strip_chars()
    cells = pl.concat(numbered, how="diagonal", rechunk=True).with_columns(
        pl.when(~cell.is_in(["", *NOTHING])).then(cell)
    )
    # `{}` beside a link is no error; alone it is what JSON.stringify makes of one
    error = pl.when(
        pl.col(spec.URL).is_null() | ~pl.col(spec.ERROR).is_in(["{}", "[]", '""'])
    ).then(spec.ERROR)
    # also of `************1111`; a spreadsheet loses leading zeros
    digits = pl.col(spec.LAST_4).str.extract(r"([0-9]{1,4})$").str.zfill(4)
    is_given = pl.col(spec.LAST_4).is_not_null()
    return cells.select(
        "position",
        spec.CUID,
        pl.when(is_given).then(digits.fill_null(_NO_DIGITS)).alias(spec.LAST_4),
        spec.URL,
        *_DAY,
        error,
    )


def _with_days(cells: pl.DataFrame, is_day_first: bool | None) -> pl.DataFrame:
    """Return the cells of a file with the day that each expiration date says, or its form."""
    if spec.EXPIRATION_DATE not in cells.columns:
        return cells
    text = pl.col(spec.EXPIRATION_DATE).str.strip_chars()
    texts = cells.select(text).to_series().drop_nulls().unique()
    days = read_days(
        texts.filter(~texts.is_in(["", *NOTHING])).to_list(), is_day_first=is_day_first
    )
    known = pl.DataFrame(
        [(text, day.day, day.form) for text, day in days.items()],
        {spec.EXPIRATION_DATE: pl.String, **_DAY},
        orient="row",
    )
    return cells.with_columns(text).join(
        known, on=spec.EXPIRATION_DATE, how="left", maintain_order="left"
    )
