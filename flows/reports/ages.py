"""How old an open item is, how long a span of time is, and how soon links expire."""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import date, datetime, timedelta

AGES = ("under 1 day", "1 to 2 days", "2 to 7 days", "over 7 days")
_AGE_STEPS = (timedelta(days=1), timedelta(days=2), timedelta(days=7))

# A link lives two months (interface.md 8), and a reminder needs a week.
EXPIRIES = (
    "expired",
    "within 7 days",
    "8 to 14 days",
    "15 to 30 days",
    "31 to 60 days",
    "later",
    "no date given",
)
SOON = EXPIRIES[1]
_EXPIRY_STEPS = (0, 8, 15, 31, 61)  # days to go at which each step after the first begins


def age_step(since: datetime, now: datetime) -> str:
    """Return the step of AGES that the time from `since` to `now` falls into."""
    return AGES[bisect_right(_AGE_STEPS, now - since)]


def duration(span: timedelta) -> str:
    """Return a time span in short: `35 min`, `7 h`, `2 d 3 h`; never below zero."""
    minutes = max(0, int(span.total_seconds()) // 60)
    if minutes < 60:
        return f"{minutes} min"
    days, hours = divmod(minutes // 60, 24)
    if not days:
        return f"{hours} h"
    if hours and days < 10:
        return f"{days} d {hours} h"
    return f"{days} d"


def by_expiry(links: Iterable[tuple[date | None, int]], today: date) -> list[dict[str, str | int]]:
    """Count links, given as (expires on, number), by time to expiry: a line for each of EXPIRIES.

    A link expires at the end of its day: one that expires today has zero days to go and is not
    expired.
    """
    counts = dict.fromkeys(EXPIRIES, 0)
    for expires_on, number in links:
        counts[_expiry_step(expires_on, today)] += number
    return [{"when": step, "links": number} for step, number in counts.items()]


def _expiry_step(expires_on: date | None, today: date) -> str:
    if expires_on is None:
        return EXPIRIES[-1]
    return EXPIRIES[bisect_right(_EXPIRY_STEPS, (expires_on - today).days)]
