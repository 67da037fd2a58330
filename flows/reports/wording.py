"""Counts, shares and days in words, the same on the page, in the workbook and at the terminal.

Apart from `page`, which takes 60 ms to import.
"""

from collections.abc import Iterable
from datetime import datetime


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order as text: `2, 5-9, 17`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def first_spans(text: str, most: int) -> tuple[str, int]:
    """Return the first of some `ranges`, and how many numbers the others have."""
    spans = text.split(", ")
    others = [span.partition("-") for span in spans[most:]]
    more = sum(int(last or first) - int(first) + 1 for first, _, last in others)
    return ", ".join(spans[:most]), more


def percent(share: float) -> str:
    """Return a share in percent: never 0% for something, never 100% for less than all."""
    if 0 < share < 0.001:
        return "< 0.1%"
    if 0.999 < share < 1:
        return "> 99.9%"
    if 0 < share < 1:
        return f"{share:.1%}"
    return f"{share:.0%}"


def day(moment: datetime) -> str:
    """Return the day of a moment: `7 November 2026`."""
    return f"{moment.day} {moment:%B %Y}"


def day_and_time(moment: datetime) -> str:
    """Return a moment to the minute: `7 November 2026, 05:30 UTC`."""
    return f"{day(moment)}, {moment:%H:%M %Z}"
