"""The geometry of the page's drawings: numbers in, rectangles out; colours and markup are the template's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

# Where a source row can end, in the order people ask: what is done, what came back bad, what waits, what never left.
ENDS = {
    "linked": "linked",
    "error": "error (partner)",
    "awaiting": "awaiting",
    "rejected": "rejected (by us)",
    "duplicate": "duplicate",
    "suppressed": "suppressed",
}
BAR_WIDTH = 1000.0
LEAST = 4.0  # units of the bar that a single row among millions still gets, so that it is seen
TREND_HEIGHT = 149.0
SLOT = 100  # width of one night in the trend
NIGHTS = 14


class Part(NamedTuple):
    """One piece of the bar: where it starts and how wide it is, what it counts and which share that is."""

    kind: str
    name: str
    rows: int
    share: float
    start: float
    width: float


class Piece(NamedTuple):
    """One piece of a column: which kind, where its top is and how high it is, from the top of the drawing."""

    kind: str
    top: float
    height: float


class Column(NamedTuple):
    """One night of the trend: where it stands, how it is labelled, its pieces from the bottom up."""

    x: int
    day: int
    month: str
    current: bool
    parts: tuple[Piece, ...]


def bar(rows: Mapping[str, int]) -> list[Part]:
    """Return the bar of where every row went, without the ends that no row has."""
    counts = {kind: rows[kind] for kind in ENDS if rows[kind]}
    total = sum(counts.values())
    widths = {kind: max(LEAST, BAR_WIDTH * count / total) for kind, count in counts.items()}
    scale = BAR_WIDTH / sum(widths.values()) if widths else 0.0
    parts, start = [], 0.0
    for kind, count in counts.items():
        width = widths[kind] * scale
        parts.append(Part(kind, ENDS[kind], count, count / total, start, width))
        start += width
    return parts


def trend(nights: Sequence[Mapping[str, Any]], current: str) -> list[Column]:
    """Return a column per run, oldest left, all on one scale; the last fourteen have room."""
    shown = nights[-NIGHTS:]
    most = max((night["read"] for night in shown), default=0) or 1
    columns: list[Column] = []
    before = ""
    for at, night in enumerate(shown):
        day = date.fromisoformat(night["as_of"])
        month = f"{day:%b}"
        columns.append(
            Column(
                at * SLOT + 18, day.day, month if month != before else "", night["run"] == current, _pieces(night, most)
            )
        )
        before = month
    return columns


def _pieces(night: Mapping[str, Any], most: int) -> tuple[Piece, ...]:
    pieces, top = [], TREND_HEIGHT
    for kind in ENDS:
        height = TREND_HEIGHT * night[kind] / most
        top -= height
        if height:
            pieces.append(Piece(kind, top, height))
    return tuple(pieces)
