"""One plot as plain SVG: time and memory against rows, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 640, 400, 60
COLOURS = ("#1f6feb", "#b35900")


class Line(NamedTuple):
    """One line of the plot: what it is, and its points (rows, value)."""

    name: str
    points: Sequence[tuple[int, float]]


def draw(title: str, lines: Sequence[Line]) -> str:
    """Return the SVG; every value is above zero."""
    rows = sorted({x for line in lines for x, _ in line.points})
    across = _scale([log10(x) for x in rows], MARGIN, WIDTH - MARGIN)
    up = _scale([log10(y) for line in lines for _, y in line.points], HEIGHT - MARGIN, MARGIN)
    parts = [
        _text(WIDTH / 2, 25, title),
        *(_text(across(log10(x)), HEIGHT - 20, f"{x:,} rows") for x in rows),
    ]
    for line, colour in zip(lines, COLOURS, strict=False):
        places = [(across(log10(x)), up(log10(y)), y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, value in places:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            parts.append(_text(x, y - 8, f"{value:,.4g}", colour))
        parts.append(_text(places[-1][0], places[-1][1] + 18, line.name, colour))
    frame = f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{ground}{"".join(parts)}</svg>\n'


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, span = min(values), max(values) - min(values) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _text(x: float, y: float, text: str, colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="middle">{text}</text>'
