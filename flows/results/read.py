"""Read result files (interface.md 2.7) into rows, in any encoding and dialect, without dropping a
row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import accumulate, chain
from typing import NamedTuple

import polars as pl
from polars.exceptions import PanicException

from flows.errors import CardlinkError, kind_and_place
from flows.results import opening
from flows.results.error_text import LONGEST
from schemas import result as spec

DELIMITERS = (",", ";", "\t", "|")
HEAD = 20  # lines searched for the header: comments and `sep=` may precede it
# polars' panics are no `Exception`; stop signals are neither
UNFORESEEN = (Exception, PanicException)
NOTHING = ("null", "NULL", "undefined", "None", "NaN")  # how programs write a missing value

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
    """The header of a result file: its delimiter, the place of each known column, and the number of
    columns.
    """

    delimiter: str
    places: dict[str, int]
    width: int


def find_header(line: str) -> ResultHeader | None:
    """Find the delimiter that makes `line` the header of a result: an error column, and a cuid or a
    url.
    """
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        if len(cells) > opening.COLUMNS:
            continue
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
    """One result file: SHA-256 of its bytes, name, rows (ResultTable), problem codes, day of
    arrival if known.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]
    received: date | None = None

    def without_rows(self, problem: str) -> ResultRows:
        """Return the file as one that could not be used because of `problem`."""
        return self._replace(rows=_CELLS, problems=(problem,))


def failed(error: BaseException) -> str:
    """Return the problem code of a file whose reading failed unforeseen; a CardlinkError is raised
    again.
    """
    if isinstance(error, CardlinkError):
        raise error
    return f"{opening.FAILED}{kind_and_place(error)}"


def read_cells(content: bytes, name: str, received: date | None = None) -> ResultRows:
    """Read one result file (plain or gzip bytes), to be tabulated; never raises.

    Keeps every row, but none of a file beyond a limit, or whose reading fails.
    """
    empty = ResultRows(hashlib.sha256(content).hexdigest(), name, _CELLS, (), received)
    try:
        cells, problems = _read_cells(content)
    except opening.RefusedError as refused:
        return empty.without_rows(str(refused))
    except UNFORESEEN as error:
        return empty.without_rows(failed(error))
    return empty._replace(rows=cells, problems=problems)


def tabulate(files: Sequence[ResultRows]) -> list[ResultRows]:
    """Return files, at least one, as they were read by `read_cells`, with their rows as
    ResultTable.
    """
    table = _table([file.rows for file in files])
    ends = accumulate(file.rows.height for file in files)
    return [
        file._replace(rows=table[end - file.rows.height : end])
        for file, end in zip(files, ends, strict=True)
    ]


def _read_cells(content: bytes) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the cells of one file, under the documented names of the columns it has, and problem
    codes.
    """
    text, problems = opening.text_of(content)
    if not opening.BEYOND.isdisjoint(problems):
        return _CELLS, tuple(problems)
    if text.count("\n") + text.count("\r") > 2 * opening.LINES:  # before a list is made of them
        raise opening.RefusedError(opening.LINES_MANY)
    lines = list(io.StringIO(text, newline=""))
    # of the whole process; the default would raise on a long error object
    csv.field_size_limit(opening.LINE)
    short = ((at, line) for at, line in enumerate(lines[:HEAD]) if len(line) <= opening.HEADER)
    at, head = next(((at, head) for at, line in short if (head := find_header(line))), (0, None))
    if head is None:
        wide = any(
            line.count(delimiter) >= opening.COLUMNS
            for line in lines[:HEAD]
            for delimiter in DELIMITERS
        )
        what = opening.COLUMNS_MANY if wide else opening.looks_like(content)
        known = [problem for problem in problems if problem != opening.ENCODING_GUESSED]
        return _CELLS, tuple(
            filter(None, (*known, opening.NOT_A_RESULT if text.strip() else opening.EMPTY, what))
        )
    for found, limit, problem in (
        (len(lines), opening.LINES, opening.LINES_MANY),
        (max(map(len, lines)), opening.LINE, opening.LINE_LONG),
        (text.count(head.delimiter), opening.CELLS, opening.WORK),
    ):
        if found > limit:
            raise opening.RefusedError(problem)
    records, damage = _records(lines[at + 1 :], head)
    fitted = (record if len(record) == head.width else _fit(record, head) for record in records)
    columns = list(zip(*fitted, strict=True)) or [()] * head.width
    cells = {name: columns[place] for name, place in head.places.items()}
    _refuse_long(cells)
    return pl.DataFrame(cells, dict.fromkeys(cells, pl.String)), tuple(
        dict.fromkeys((*problems, *damage))
    )


def _refuse_long(cells: Mapping[str, Sequence[str]]) -> None:
    """Raise RefusedError where a cell is too long, or the errors would take too long to
    interpret.
    """
    others = (column for name, column in cells.items() if name != spec.ERROR)
    if max(map(len, chain.from_iterable(others)), default=0) > opening.CELL:
        raise opening.RefusedError(opening.CELL_LONG)
    if sum(min(len(error), LONGEST) for error in set(cells[spec.ERROR])) > opening.ERRORS:
        raise opening.RefusedError(opening.WORK)


def _records(lines: list[str], head: ResultHeader) -> tuple[list[list[str]], list[str]]:
    """Read the records with doubled quotes, or with backslashes where that gives fewer problems."""
    doubled = _split(lines, head, None)
    if not doubled[1] or not any('\\"' in line for line in lines):
        return doubled
    return min(doubled, _split(lines, head, "\\"), key=lambda read: len(read[1]))


def _split(
    lines: list[str], head: ResultHeader, escape: str | None
) -> tuple[list[list[str]], list[str]]:
    """Split lines into records and name the problems; a quote that never closes spoils only its own
    line.
    """
    records: list[list[str]] = []
    problems: list[str] = []
    start, left = 0, opening.READINGS * (len(lines) + opening.LINES // 100)
    while start < len(lines):
        # a slice would copy, an islice skip, all before it
        rest = map(lines.__getitem__, range(start, len(lines)))
        good, seen, problem = _well_formed(rest, head, escape, records)
        left -= seen
        if left < 0:
            raise opening.RefusedError(opening.WORK)
        if not problem:
            break
        problems.append(problem)
        line = lines[start + good].rstrip("\r\n")
        # the quotes of an unquoted error object
        bare = f"{head.delimiter}{{" in line or f"{head.delimiter}[" in line
        reader = csv.reader(
            [line], delimiter=head.delimiter, quoting=csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL
        )
        _append(records, next(reader, []))
        start += good + 1
    problems += [opening.RAGGED for record in records if len(record) != head.width]
    if records and len(records[-1]) < head.width and not lines[-1].endswith(("\r", "\n")):
        problems.append(opening.TRUNCATED)
    return records, problems


def _append(records: list[list[str]], record: list[str]) -> None:
    if len(record) > opening.COLUMNS:
        raise opening.RefusedError(opening.COLUMNS_MANY)
    records.append(record)


def _well_formed(
    lines: Iterator[str], head: ResultHeader, escape: str | None, records: list[list[str]]
) -> tuple[int, int, str]:
    """Append records while they are well formed; return how many lines were used and read, and what
    stopped it.
    """
    reader = csv.reader(
        lines, delimiter=head.delimiter, doublequote=escape is None, escapechar=escape, strict=True
    )
    used = 0
    try:
        for record in reader:
            if reader.line_num - used > 1 and len(record) != head.width:
                # an open quote swallowed the next lines
                return used, reader.line_num, opening.QUOTING
            used = reader.line_num
            if record and (len(record) > 1 or record[0].strip()):
                _append(records, record)
    except csv.Error as error:
        return (
            used,
            reader.line_num,
            opening.TRUNCATED if "end of data" in str(error) else opening.QUOTING,
        )
    return used, reader.line_num, ""


def _fit(record: list[str], head: ResultHeader) -> list[str]:
    """Give a record the header's width: rejoin an unquoted error object; drop the url of a row that
    was cut.
    """
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
