"""The business days for which an operator decided that no extract comes.

The decisions about a day are a chain of records like those about the content of an extract, below
the day's name; the last one counts.
"""

import re
from contextlib import suppress
from datetime import date

from flows.runs.chains import records
from flows.runs.keys import dismissed
from flows.runs.store import Store
from schemas.records import Dismissal

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def day_named(name: str) -> date | None:
    """Return the day that a name like 2026-11-20 stands for, None where it is another name."""
    if _DAY.fullmatch(name):
        with suppress(ValueError):
            return date.fromisoformat(name)
    return None


def chain_of_day(issuer: str, day: date) -> str:
    """Return the prefix of the decisions about a day."""
    return f"{dismissed(issuer)}{day.isoformat()}/"


def is_dismissed(store: Store, issuer: str, day: date) -> bool:
    """Return whether it was decided that no extract comes on a day."""
    decided = list(records(store, chain_of_day(issuer, day), Dismissal))
    return bool(decided) and decided[-1].what == "dismissed"


def dismissed_days(store: Store, issuer: str) -> set[date]:
    """Return the days on which no extract comes."""
    prefix = dismissed(issuer)
    names = {entry.key.removeprefix(prefix).partition("/")[0] for entry in store.keys(prefix)}
    days = filter(None, map(day_named, names))
    return {day for day in days if is_dismissed(store, issuer, day)}
