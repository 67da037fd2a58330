"""The sizes of a page's charts: the bar of where every row went, the columns of the last runs."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

# Where a source row can end: done, failed, waiting, not sent.
ENDS = {
    "linked": "linked",
    "error": "error (partner)",
    "awaiting": "awaiting",
    "rejected": "rejected (by us)",
    "ineligible": "not eligible",
    "duplicate": "duplicate",
    "suppressed": "suppressed",
}
BAR_WIDTH = 1000.0
LEAST = 4.0  # width that even a single row among millions gets, so that it is visible
TREND_HEIGHT = 149.0
SLOT = 100  # width of one run in the trend
TREND = 14  # runs in the trend chart


def bar(rows: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the pieces of the bar of where every row went: where each starts, how wide it is.

    Empty pieces are left out.
    """
    counts = {kind: rows[kind] for kind in ENDS if rows.get(kind)}
    total = sum(counts.values())
    widths = {kind: max(LEAST, BAR_WIDTH * counts[kind] / total) for kind in counts}
    unscaled = sum(widths.values())
    pieces = []
    start = 0.0
    for kind, count in counts.items():
        width = widths[kind] * (BAR_WIDTH / unscaled)
        pieces.append(
            {
                "kind": kind,
                "name": ENDS[kind],
                "rows": count,
                "share": count / total,
                "start": start,
                "width": width,
            }
        )
        start += width
    return pieces


def trend(runs: Sequence[Mapping[str, Any]], current: str) -> list[dict[str, Any]]:
    """Return a column for each of the last fourteen runs, oldest left, on one scale.

    `current` is the run that is marked.
    """
    shown = runs[-TREND:]
    most = max((run["read"] for run in shown), default=0) or 1
    columns: list[dict[str, Any]] = []
    month_before = ""
    for number, run in enumerate(shown):
        day = date.fromisoformat(run["as_of"])
        month = f"{day:%b}"
        columns.append(
            {
                "x": number * SLOT + 18,
                "day": day.day,
                "month": month if month != month_before else "",
                "current": run["run"] == current,
                "parts": _column_parts(run, most),
            }
        )
        month_before = month
    return columns


def _column_parts(run: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """Return the parts of a column, from the bottom up, where `most` rows are its whole height.

    Empty ones are left out.
    """
    parts = []
    top = TREND_HEIGHT
    for kind in ENDS:
        height = TREND_HEIGHT * run.get(kind, 0) / most
        top -= height
        if height:
            parts.append({"kind": kind, "top": top, "height": height})
    return parts
