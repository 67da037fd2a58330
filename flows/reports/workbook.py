"""The report as report.xlsx: the facts of the page as tables, one per sheet.

Texts are readable, and never become formulas.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl
import xlsxwriter

from flows import readable
from flows.reports.advice import advice
from flows.reports.ages import AGES
from flows.reports.page import refused_by
from flows.reports.sections import sections
from flows.reports.summary import FIGURES
from flows.reports.verdicts import OF_A_RUN

Cell = str | int | float | None


class Sheet(NamedTuple):
    """The table of a sheet: its header and its rows."""

    head: Sequence[str]
    rows: Iterable[Sequence[Cell]]


MOST_CHUNKS = 100_000  # rows with which a sheet still opens quickly; chunks.csv has them all
# No temporary files, and no text becomes a formula, a link or a number.
OPTIONS = {
    "in_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
}
CREATED = datetime(2000, 1, 1, tzinfo=UTC)  # the file's own date: the same facts are the same bytes

REASONS = (
    "code",
    "by",
    "rows",
    "action",
    "source",
    "wrong",
    "found",
    "expected",
    "setting",
    "hint",
    "lines",
)
_WIDE = {
    "expected",
    "setting",
    "lines",
    "share of what is known",
    "value",
    "what to do",
    "name",
    "hint",
    "shape",
    "message",
    "place",
    "meaning",
    "then",
    "results",
    "run",
}
_MIDDLE = {
    "source",
    "wrong",
    "found",
    "known by",
    "code",
    "fact",
    "item",
    "sha256",
    "action",
    "since",
    "state",
    "reason",
}


def run_workbook(summary: Mapping[str, Any], chunks: pl.DataFrame) -> bytes:
    """Return the workbook of a run from its summary (with `trend`) and its chunks.

    `chunks` are those of `lists.chunks`.
    """
    return workbook(dict(_run_sheets(summary, chunks.head(MOST_CHUNKS))))


def across_workbook(tables: Mapping[str, pl.DataFrame]) -> bytes:
    """Return the workbook across runs, a sheet for each table."""
    return workbook(
        {
            name.capitalize(): Sheet(table.columns, table.head(MOST_CHUNKS).iter_rows())
            for name, table in tables.items()
        }
    )


def workbook(sheets: Mapping[str, Sheet]) -> bytes:
    """Return an xlsx of sheets by name; headers are frozen and have filters."""
    content = BytesIO()
    book = xlsxwriter.Workbook(content, OPTIONS)
    book.set_properties({"created": CREATED})
    bold = book.add_format({"bold": True, "bottom": 1})
    for name, sheet in sheets.items():
        _write_sheet(book.add_worksheet(name), sheet, bold)
    book.close()
    return content.getvalue()


def _write_sheet(worksheet: Any, sheet: Sheet, bold: Any) -> None:
    worksheet.freeze_panes(1, 0)
    for column, title in enumerate(sheet.head):
        worksheet.set_column(column, column, _width(title))
    worksheet.write_row(0, 0, sheet.head, bold)
    last = 0
    for last, cells in enumerate(sheet.rows, start=1):
        _write_row(worksheet, last, cells)
    if last:
        worksheet.autofilter(0, 0, last, len(sheet.head) - 1)


def _write_row(worksheet: Any, number: int, cells: Sequence[Cell]) -> None:
    for column, cell in enumerate(cells):
        if isinstance(cell, str):
            worksheet.write_string(number, column, readable.cell(cell))
        elif cell is not None:
            worksheet.write_number(number, column, cell)


def _width(title: str) -> int:
    if title in _WIDE:
        return 60
    if title in _MIDDLE:
        return 28
    return 14


def _run_sheets(summary: Mapping[str, Any], chunks: pl.DataFrame) -> Iterator[tuple[str, Sheet]]:
    """Yield the sheets of a run, by name."""
    yield "Run", Sheet(["fact", "value"], _facts(summary))
    yield "To do", Sheet(["no.", "what to do"], list(enumerate(advice(summary), start=1)))
    lines = summary["balance"]
    yield "Control totals", _table(lines, "name", "left", "right", "difference", "closed")
    yield "Open items", _open_items(summary["open"]["items"])
    yield "Links by expiry", _table(summary["links"], "when", "links")
    if summary.get("attempts") is not None:
        yield "Sent again", _attempts(summary["attempts"])
    for section in sections(summary):
        for table in section.tables:
            yield table.title or section.title, Sheet(table.head, table.rows)
    yield "Reasons", Sheet(REASONS, [_reason(reason) for reason in refused_by(summary)])
    yield "Error texts", _table(summary["shapes"], "shape", "reason", "rows", "message")
    breaks = summary["breaks"]
    yield "Breaks", _table(breaks, "name", "place", "rows", "since", "meaning", "then")
    if summary["closed"]:
        closed = summary["closed"]
        yield "Closed", _table(closed, "name", "place", "rows", "reason", "by", "at")
    yield "Chunks", Sheet(chunks.columns, chunks.iter_rows())
    yield "Trend", _table(summary["trend"], "as_of", "run", "state", *FIGURES)


def _table(facts: Iterable[Mapping[str, Any]], *names: str) -> Sheet:
    """Return the facts of these names, a row each."""
    return Sheet(names, [_cells(fact, names) for fact in facts])


def _cells(fact: Mapping[str, Any], names: Iterable[str]) -> list[Cell]:
    return [fact[name] for name in names]


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    """Return the facts about the run itself, by name."""
    texts = {name: value for name, value in summary.items() if isinstance(value, str)}
    facts: dict[str, Cell] = dict(texts)
    facts["in words"] = OF_A_RUN[summary["verdict"]].sentence
    facts["encrypted to"] = ", ".join(summary["recipients"])
    parts = {"rows": "rows", "chunks": "chunks", "extract": "source", "version of": "versions"}
    for word, part in parts.items():
        facts |= {f"{word} {name}": value for name, value in summary[part].items()}
    facts["result files"] = len(summary["results"])
    return list(facts.items())


def _open_items(items: Iterable[Mapping[str, Any]]) -> Sheet:
    rows = [
        [item["kind"], *_items_by_age(item["ages"]), item["items"], item["rows"]] for item in items
    ]
    return Sheet(["item", *AGES, "items", "rows"], rows)


def _items_by_age(ages: Mapping[str, Mapping[str, int]]) -> list[int]:
    return [ages[age]["items"] for age in AGES]


def _reason(reason: Mapping[str, Any]) -> list[Cell]:
    """Return a reason: of ours with its cause in the bank's words, and all its lines."""
    cells = [reason.get(name) for name in REASONS]
    lines = reason.get("lines")
    if lines is not None:
        more = reason["more_lines"]
        cells[-1] = f"{lines} and {more:,} more" if more else lines
    return cells


def _attempts(attempts: Mapping[str, Any]) -> Sheet:
    """Return the sheet of rows sent again."""
    runs = _table(attempts["runs"], "run", "rows", "linked", "error", "awaiting", "rejected")
    states = _cells(attempts["after"], ("linked", "error", "awaiting", "refused"))
    return Sheet(runs.head, [*runs.rows, ["after all attempts", None, *states]])
