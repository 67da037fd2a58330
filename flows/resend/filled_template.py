"""Read a filled-in correction template, and refuse what cannot be meant.

Reading tolerates what spreadsheets do to a CSV, and nothing else.
"""

import csv
import re
from collections.abc import Iterator
from io import StringIO
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.redaction import redact
from flows.steps import FILE, RUN, Sentence, Step
from schemas.corrections import AT_SOURCE, Filled, Template
from schemas.digits import BETWEEN, plain
from schemas.portal import columns

CARD = ("cuid", "last_4")  # what a template has of a row's card
LISTED = 10  # lines named in a message
LONGEST = 500  # characters of a correction
NEEDED = ("row", "column", "correction")
LARGEST_ROW = (1 << 32) - 1
_COLUMNS = {name.casefold(): name for name in columns()}
_SEP = re.compile(r'"?sep=(.)"?$', re.IGNORECASE)


class CorrectionsUnreadableError(OperatorError):
    """The file is not a filled-in template."""

    message = "{name} cannot be read as a correction template: {problem}."
    next_step = Sentence(
        "Write a new one ({corrections}), fill in its last column, save as UTF-8 CSV.",
        corrections=Step("corrections", RUN, to=FILE),
    )


class CorrectionsRefusedError(OperatorError):
    """Some lines of the file cannot be used, so none is."""

    message = "{name}: {count:line} cannot be used ({lines}). Nothing was sent."
    next_step = "Correct these lines and submit the file again."


class _FilledCell(NamedTuple):
    """One correction, as `schemas.corrections.Filled` has it."""

    line: int
    row: int
    cuid: str | None
    last_4: str | None
    column: str
    correction: str


def read_filled(content: bytes, name: str, run: str) -> pl.DataFrame:
    """Return the corrections (`Filled`) of a template.

    Raises CorrectionsUnreadableError, CorrectionsRefusedError.
    """
    cells: dict[tuple[int, str], _FilledCell] = {}
    problems: list[tuple[int, str]] = []
    for line, record in _records(content, name):
        column = _COLUMNS.get(record.get("column", "").casefold(), "")
        correction = record.get("correction", "")
        problem = _problem(record, run, column)
        if problem:
            problems.append((line, problem))
        elif correction:
            row = int(record["row"])
            cuid = record.get("cuid") or None
            last_4 = record.get("last_4") or None
            cell = _FilledCell(line, row, cuid, last_4, column, correction)
            first = cells.setdefault((row, column), cell)
            if first.correction != correction:
                problems.append((line, f"line {first.line} corrects the same cell differently"))
    refuse(name, problems)
    return pl.DataFrame(list(cells.values()), Filled.dtypes(), orient="row")


def by_run(content: bytes, name: str) -> dict[str, bytes]:
    """Return a template of several runs by run, each without the lines of the others.

    Those are blank, so that a message names the lines of the file.
    Raises CorrectionsUnreadableError, CorrectionsRefusedError where a line names no run.
    """
    records = list(_records(content, name))
    runs = {line: record.get("run", "") for line, record in records if record.get("correction")}
    refuse(name, [(line, "it names no run") for line, run in runs.items() if not run])
    physical = list(StringIO(content.decode("utf-8-sig"), newline=""))
    ends = [line for line, _ in _lines(content, name)]
    begins = dict(zip(ends[1:], ends, strict=False))  # the line before each record's first
    parts: dict[str, bytes] = {}
    for run in sorted(set(runs.values())):
        lines = list(physical)
        for line, record in records:
            if record.get("run") != run:
                first = begins[line]
                lines[first:line] = ["\n"] * (line - first)
        parts[run] = "".join(lines).encode()
    return parts


def misplaced(filled: pl.DataFrame, rows: pl.DataFrame) -> list[tuple[int, str]]:
    """Return the lines whose row is not in the run, or has another cuid or last_4 there.

    `rows`: row, cuid, last_4 of the run. This catches a sheet sorted by one column alone. Leading
    zeros do not count: spreadsheets drop them.
    """
    its_card = [pl.col(key).alias(f"its {key}") for key in CARD]
    known = rows.select("row", pl.lit(value=True).alias("there"), *its_card)
    beside = filled.select("line", "row", *CARD).join(
        known, on="row", how="left", maintain_order="left"
    )
    is_other_card = pl.any_horizontal(
        (_bare(key) != _bare(f"its {key}")).fill_null(pl.col(key).is_not_null()) for key in CARD
    )
    problem = (
        pl.when(pl.col("there").is_null())
        .then(pl.lit("no such row in the run"))
        .when(is_other_card)
        .then(pl.lit("the row has another cuid or last_4"))
    )
    lines = beside.select("line", problem=problem).drop_nulls("problem")
    return lines.unique("line").sort("line").rows()


def refuse(name: str, problems: list[tuple[int, str]]) -> None:
    """Raise CorrectionsRefusedError for any problems, listing the first of them."""
    if not problems:
        return
    ordered = sorted(set(problems))
    lines = "; ".join(f"line {line}: {problem}" for line, problem in ordered[:LISTED])
    if len(ordered) > LISTED:
        lines = f"{lines}; and {len(ordered) - LISTED} more"
    raise CorrectionsRefusedError(name=name, count=len(ordered), lines=lines)


def _bare(key: str) -> pl.Expr:
    return pl.col(key).str.strip_prefix("'").str.strip_chars_start("0")


def _records(content: bytes, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells, by the template's column names, of every line that is filled."""
    header: list[str] = []
    for line, cells in _lines(content, name):
        if not header:
            header = _header(cells, name)
        elif any(cells[len(header) :]):
            problem = f"line {line} has more fields than the header"
            raise CorrectionsUnreadableError(name=name, problem=problem)
        else:
            yield line, dict(zip(header, cells, strict=False))
    if not header:
        raise CorrectionsUnreadableError(name=name, problem="it is empty")


def _lines(content: bytes, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of every line that is not blank, the header among them."""
    text = content.decode("utf-8-sig", "replace")
    if "\ufffd" in text or "\x00" in text:
        raise CorrectionsUnreadableError(name=name, problem="it is not text in UTF-8")
    first_line = text.split("\n", 1)[0].strip()
    delimiter = max(",;\t", key=first_line.count)
    separator = _SEP.match(first_line)
    if separator is not None:
        delimiter = separator[1]
        text = "\n" + text.partition("\n")[2]  # an empty line in its place keeps the line numbers
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    problem = ""
    try:
        for record in reader:
            cells = [cell.strip().removeprefix("'").strip() for cell in record]
            if any(cells):
                yield reader.line_num, cells
    except csv.Error:
        # its own text would show the line
        problem = f"the quotes of line {reader.line_num} do not fit"
    if problem:
        raise CorrectionsUnreadableError(name=name, problem=problem)


def _header(cells: list[str], name: str) -> list[str]:
    """Return the names of the columns; CorrectionsUnreadableError where they are not those."""
    names = [cell.casefold().replace(" ", "_") for cell in cells]
    while not names[-1]:  # spreadsheets leave empty columns at the end
        names.pop()
    missing = [needed for needed in NEEDED if needed not in names]
    problem = ""
    if missing:
        problem = f"its header lacks {', '.join(missing)}"
    elif set(names) - set(Template.dtypes()) or len(set(names)) < len(names):
        problem = "its header has columns that the template lacks, or one twice"
    if problem:
        raise CorrectionsUnreadableError(name=name, problem=problem)
    return names


def _problem(record: dict[str, str], run: str, column: str) -> str:
    """Return why a line cannot be used; "" also for a line without a correction."""
    correction = record.get("correction", "")
    problems = (
        (_may_hold_card(record), "something in it looks like a card number"),
        (record.get("run", run) not in ("", run), "it belongs to another run"),
        (not correction, ""),
        (not _is_row_number(record.get("row", "")), "it has no row number"),
        (column in AT_SOURCE, "card fields are corrected at the source"),
        (not column, "it names no column of the portal"),
        (len(correction) > LONGEST, f"the correction has more than {LONGEST} characters"),
    )
    return next((problem for holds, problem in problems if holds), "")


def _may_hold_card(record: dict[str, str]) -> bool:
    """Return whether a cell looks like a card number, as it is or without separators."""
    cells = [cell for column, cell in record.items() if column != "run"]
    spellings = cells + [re.sub(BETWEEN, "", plain(cell)) for cell in cells]
    return any(redact(spelling) != spelling for spelling in spellings)


def _is_row_number(text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_ROW))
    return is_number and 0 < int(text) <= LARGEST_ROW
