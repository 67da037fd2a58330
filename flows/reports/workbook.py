"""The report as report.xlsx: the facts of the page as tables, one per sheet; texts never become
formulas.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import polars as pl
import xlsxwriter

from flows.reports.page import SENTENCES, advice, refused_by
from flows.reports.summary import AGES, FIGURES

Cell = str | int | float | None

MOST_CHUNKS = 100_000  # rows with which a sheet still opens quickly; chunks.csv has them all
# No temporary files, and no text becomes a formula, a link or a number.
OPTIONS = {
    "in_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
}
CREATED = datetime(2000, 1, 1, tzinfo=UTC)  # the file's own date: the same facts are the same bytes


def run_workbook(summary: Mapping[str, Any], chunks: pl.DataFrame) -> bytes:
    """Return the workbook of a run from its summary (with `trend`) and its chunks
    (`lists.chunks`).
    """
    shown, closed = chunks.head(MOST_CHUNKS), summary["closed"]
    return workbook(
        {
            "Run": (["fact", "value"], _facts(summary)),
            "To do": (["no.", "what to do"], list(enumerate(advice(summary), start=1))),
            "Control totals": _table(
                summary["balance"], "name", "left", "right", "difference", "closed"
            ),
            "Open items": (
                ["item", *AGES, "items", "rows"],
                [
                    [
                        one["kind"],
                        *(one["ages"][age]["items"] for age in AGES),
                        one["items"],
                        one["rows"],
                    ]
                    for one in summary["open"]["items"]
                ],
            ),
            "Links by expiry": _table(summary["links"], "when", "links"),
            **_attempts(summary.get("attempts")),
            **_funnel(summary.get("funnel")),
            "Reasons": _table(refused_by(summary), "code", "by", "rows", "action", "hint"),
            "Error texts": _table(summary["shapes"], "shape", "reason", "rows", "message"),
            "Breaks": _table(
                summary["breaks"], "name", "place", "rows", "since", "meaning", "then"
            ),
            **(
                {"Closed": _table(closed, "name", "place", "rows", "reason", "by", "at")}
                if closed
                else {}
            ),
            "Chunks": (shown.columns, shown.iter_rows()),
            "Trend": _table(summary["trend"], "as_of", "run", "state", *FIGURES),
        }
    )


def across_workbook(tables: Mapping[str, pl.DataFrame]) -> bytes:
    """Return the workbook across runs, a sheet for each table."""
    return workbook(
        {
            name.capitalize(): (table.columns, table.head(MOST_CHUNKS).iter_rows())
            for name, table in tables.items()
        }
    )


def workbook(sheets: Mapping[str, tuple[Sequence[str], Iterable[Sequence[Cell]]]]) -> bytes:
    """Return an xlsx of sheets by name, each a header and rows; headers are frozen and have
    filters.
    """
    out = BytesIO()
    book = xlsxwriter.Workbook(out, OPTIONS)
    book.set_properties({"created": CREATED})
    bold = book.add_format({"bold": True, "bottom": 1})
    for name, (head, rows) in sheets.items():
        sheet = book.add_worksheet(name)
        sheet.freeze_panes(1, 0)
        for at, title in enumerate(head):
            sheet.set_column(at, at, _width(title))
        sheet.write_row(0, 0, head, bold)
        last = 0
        for last, row in enumerate(rows, start=1):
            for at, cell in enumerate(row):
                if isinstance(cell, str):
                    sheet.write_string(last, at, cell)
                elif cell is not None:
                    sheet.write_number(last, at, cell)
        if last:
            sheet.autofilter(0, 0, last, len(head) - 1)
    book.close()
    return out.getvalue()


def _width(title: str) -> int:
    long = {
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
    middle = {"code", "fact", "item", "sha256", "action", "since", "state", "reason"}
    return 60 if title in long else 28 if title in middle else 14


def _table(
    facts: Iterable[Mapping[str, Any]], *names: str
) -> tuple[Sequence[str], list[list[Cell]]]:
    return names, [[one[name] for name in names] for one in facts]


def _attempts(
    attempts: Mapping[str, Any] | None,
) -> dict[str, tuple[Sequence[str], list[list[Cell]]]]:
    """Return the sheet of rows sent again, if any."""
    if attempts is None:
        return {}
    head, lines = _table(attempts["runs"], "run", "rows", "linked", "error", "awaiting", "rejected")
    after = attempts["after"]
    last = [
        "after all attempts",
        None,
        *(after[state] for state in ("linked", "error", "awaiting", "refused")),
    ]
    return {"Sent again": (head, [*lines, last])}


def _funnel(funnel: Mapping[str, Any] | None) -> dict[str, tuple[Sequence[str], list[list[Cell]]]]:
    """Return the sheet of the funnel, if the partner reported placements."""
    if funnel is None:
        return {}
    ends = [("stage", "", one["stage"], one["cardholders"]) for one in funnel["stages"]]
    ends += [("failed", "", one["kind"], one["cardholders"]) for one in funnel["failed"]]
    ends += [("under way", "", "", funnel["under_way"])]
    ends += [
        (kind, one[name], stage, number)
        for kind, name, lines in (
            ("merchant site", "site", funnel["sites"]),
            ("age of link", "age", funnel["ages"]),
        )
        for one in lines
        for stage, number in one.items()
        if stage != name
    ]
    return {"Funnel": (["by", "which", "reached", "cardholders"], [list(line) for line in ends])}


def _facts(summary: Mapping[str, Any]) -> list[list[Cell]]:
    texts = {name: value for name, value in summary.items() if isinstance(value, str)}
    texts |= {
        "in words": SENTENCES[summary["verdict"]],
        "encrypted to": ", ".join(summary["recipients"]),
    }
    parts = {"rows": "rows", "chunks": "chunks", "extract": "source", "version of": "versions"}
    inner = {
        f"{word} {name}": one for word, part in parts.items() for name, one in summary[part].items()
    }
    return [
        [name, value]
        for name, value in (texts | inner | {"result files": len(summary["results"])}).items()
    ]
