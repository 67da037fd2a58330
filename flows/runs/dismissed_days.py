"""The business days for which an operator decided that no extract comes."""

import re
from contextlib import suppress
from datetime import date

from flows.runs.adapters import Adapters
from flows.runs.decisions import DAY, standing_subjects

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def day_named(name: str) -> date | None:
    """Return the day that a name like 2026-11-20 stands for, None where it is another name."""
    if _DAY.fullmatch(name):
        with suppress(ValueError):
            return date.fromisoformat(name)
    return None


def is_dismissed(adapters: Adapters, issuer: str, day: date) -> bool:
    """Return whether it was decided that no extract comes on a day."""
    return day in dismissed_days(adapters, issuer)


def dismissed_days(adapters: Adapters, issuer: str) -> set[date]:
    """Return the days on which no extract comes."""
    return set(map(date.fromisoformat, standing_subjects(adapters, issuer, DAY)))
