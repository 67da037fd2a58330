"""The last day of a single link (interface.md 2.8), as a person or the TOML says it.

It is a date such as `2027-01-31`, or a period from the day of the request, such as `60d` or `3mo`.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

import polars as pl

SHAPE: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}|[1-9][0-9]{0,3}(d|mo))$"
USUAL: Final = "2mo"  # interface.md 8: what a link has where nobody says more


def last_day(text: str, today: date) -> date:
    """Return the day that a text means; ValueError for any other text, and for a day gone by.

    >>> last_day("2mo", date(2026, 12, 31))
    datetime.date(2027, 2, 28)
    """
    if not re.fullmatch(SHAPE, text):
        raise ValueError("no date such as 2027-01-31, and no period such as 60d or 3mo")
    if text.endswith(("d", "mo")):
        return after(text, today)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None:
        raise ValueError("no day of the calendar")
    if day < today:
        raise ValueError("a day gone by")
    return day


def after(period: str, today: date) -> date:
    """Return the day on which a period from today ends; of months, at most the month's last."""
    day: date = pl.select(pl.lit(today).dt.offset_by(period)).item()
    return day


def expiration_object(day: date) -> dict[str, str]:
    """Return a day as a request has it (interface.md 2.8).

    >>> expiration_object(date(2027, 2, 3))
    {'month': '02', 'day': '3', 'year': '2027'}
    """
    return {"month": f"{day.month:02d}", "day": str(day.day), "year": f"{day.year:04d}"}
