"""Read a filled-in correction template: tolerant of what spreadsheets do to a CSV, strict about everything else.

Whatever is refused is told by its line number and a fixed text, never by a cell.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from io import StringIO
from typing import Any, NamedTuple

import polars as pl

from flows.core.errors import OperatorError
from flows.core.redaction import redact
from schemas.corrections import AT_SOURCE, Filled, template_columns
from schemas.portal import columns

LISTED = 10  # lines named in a message
LONGEST = 500  # characters of a correction
NEEDED = ("row", "column", "correction")
KEYS = ("cuid", "last_4")  # what must fit the row's number, where it is given
_COLUMNS = {name.casefold(): name for name in columns()}
_SEP = re.compile(r'"?sep=(.)"?$', re.IGNORECASE)
_BETWEEN = re.compile(r"[\s._/-]")


class CorrectionsUnreadableError(OperatorError):
    """The file is no filled-in template."""

    message = "{name} cannot be read as a correction template: {problem}."
    next_step = "Write a fresh one with `cardlink corrections`, fill in its last column, and save it as CSV (UTF-8)."


class CorrectionsRefusedError(OperatorError):
    """Lines of the file cannot be taken as they are; nothing of it is used."""

    message = "{name}: {count} lines cannot be used ({lines}). Nothing was sent."
    next_step = "Correct these lines and submit the file again."


class Problem(NamedTuple):
    """A line that cannot be taken, and why."""

    line: int
    why: str


class _Cell(NamedTuple):
    line: int
    row: int
    cuid: str | None
    last_4: str | None
    column: str
    correction: str


def read_filled(content: bytes, name: str, run: str) -> pl.DataFrame:
    """Return the corrections of a filled-in template (`schemas.corrections.Filled`), by line.

    Raises CorrectionsUnreadableError and CorrectionsRefusedError.
    """
    cells: list[_Cell] = []
    problems: list[Problem] = []
    for line, record in _records(content, name):
        found = _cell(line, record, run)
        if isinstance(found, _Cell):
            cells.append(found)
        elif found is not None:
            problems.append(found)
    refuse(name, [*problems, *_contradictions(cells)])
    schema = {column: model.dtype.type for column, model in Filled.to_schema().columns.items()}
    return pl.DataFrame(cells, schema, orient="row").unique(["row", "column"], keep="first", maintain_order=True)


def misplaced(filled: pl.DataFrame, rows: pl.DataFrame) -> list[Problem]:
    """Return the lines that speak of no row of the run (row, cuid, last_4), or of another one than their cuid says.

    A sheet sorted by one column alone is found so. Lost leading zeros are a spreadsheet's doing, and are let pass.
    """
    beside = filled.select("line", "row", "cuid", "last_4").join(
        rows.select("row", pl.lit(value=True).alias("there"), *(pl.col(key).alias(f"its {key}") for key in KEYS)),
        on="row",
        how="left",
        maintain_order="left",
    )
    other = pl.any_horizontal((_bare(key) != _bare(f"its {key}")).fill_null(pl.col(key).is_not_null()) for key in KEYS)
    told = beside.select(
        "line",
        why=pl.when(pl.col("there").is_null())
        .then(pl.lit("no such row in the run"))
        .when(other)
        .then(pl.lit("the row has another cuid or last_4")),
    )
    return [Problem(line, why) for line, why in told.drop_nulls("why").unique("line").sort("line").iter_rows()]


def refuse(name: str, problems: list[Problem]) -> None:
    """Raise CorrectionsRefusedError where there are problems, naming the first of them."""
    if problems:
        ordered = sorted(set(problems))
        told = "; ".join(f"line {one.line}: {one.why}" for one in ordered[:LISTED])
        more = f"; and {len(ordered) - LISTED} more" if len(ordered) > LISTED else ""
        raise CorrectionsRefusedError(name=name, count=len(ordered), lines=told + more)


def _bare(key: str) -> pl.Expr:
    return pl.col(key).str.strip_prefix("'").str.strip_chars_start("0")


def _records(content: bytes, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of every line that is not blank, by the template's names."""
    reader = _reader(_text(content, name))
    header: list[str] = []
    failed = ""
    try:
        for record in reader:
            cells = [_clean(cell) for cell in record]
            if not any(cells):
                continue
            if not header:
                header = _header(cells, name)
            elif any(cells[len(header) :]):
                failed = f"line {reader.line_num} has more fields than the header"
                break
            else:
                yield reader.line_num, dict(zip(header, cells, strict=False))
    except csv.Error:
        failed = f"the quotes of line {reader.line_num} do not fit"  # its own text would show the line
    if failed or not header:
        raise CorrectionsUnreadableError(name=name, problem=failed or "it is empty")


def _reader(text: str) -> Any:  # csv names the type of its readers in no public place
    """Return a reader with the delimiter that splits the header best; a spreadsheet's `sep=` line says it itself."""
    first = text.split("\n", 1)[0].strip()
    said = _SEP.match(first)
    if said:
        text = "\n" + text.partition("\n")[2]  # an empty line in its place, so that line numbers stay
    delimiter = said[1] if said else max(",;\t", key=first.count)
    return csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _text(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise CorrectionsUnreadableError(name=name, problem="it is not text in UTF-8")
    return text


def _header(cells: list[str], name: str) -> list[str]:
    names = [cell.casefold().replace(" ", "_") for cell in cells]
    while names and not names[-1]:  # spreadsheets leave empty columns at the end
        names.pop()
    missing = [one for one in NEEDED if one not in names]
    if missing:
        raise CorrectionsUnreadableError(name=name, problem=f"its header lacks {', '.join(missing)}")
    if set(names) - set(template_columns()) or len(set(names)) < len(names):
        raise CorrectionsUnreadableError(name=name, problem="its header has columns the template has not, or one twice")
    return names


def _clean(cell: str) -> str:
    return cell.strip().removeprefix("'").strip()


def _cell(line: int, record: dict[str, str], run: str) -> _Cell | Problem | None:
    """Return one correction, why it cannot be taken, or None where the line has none."""
    if any(_holds_card(cell) for key, cell in record.items() if key != "run"):
        return Problem(line, "something in it looks like a card number")
    if record.get("run", run) not in ("", run):
        return Problem(line, "it is of another run")
    correction, row = record.get("correction", ""), record.get("row", "")
    if not correction:
        return None
    column = _COLUMNS.get(record.get("column", "").casefold(), "")
    if not (row.isascii() and row.isdecimal() and len(row) <= 10 and 0 < int(row) < 1 << 32):
        return Problem(line, "it has no row number")
    if column in AT_SOURCE:
        return Problem(line, "card fields are corrected at the source")
    if not column:
        return Problem(line, "it names no column of the portal")
    if len(correction) > LONGEST:
        return Problem(line, f"the correction has more than {LONGEST} characters")
    return _Cell(line, int(row), record.get("cuid") or None, record.get("last_4") or None, column, correction)


def _holds_card(cell: str) -> bool:
    bare = _BETWEEN.sub("", cell)
    return redact(cell) != cell or redact(bare) != bare


def _contradictions(cells: list[_Cell]) -> Iterator[Problem]:
    """Yield the lines that correct a cell which an earlier line corrects differently."""
    first: dict[tuple[int, str], _Cell] = {}
    for cell in cells:
        if first.setdefault((cell.row, cell.column), cell).correction != cell.correction:
            yield Problem(cell.line, f"line {first[cell.row, cell.column].line} corrects the same cell differently")
