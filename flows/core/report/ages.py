"""Ages and times to go, in the few steps a reader can act on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from itertools import pairwise

import polars as pl

AGES = ("under 1 day", "1 to 2 days", "2 to 7 days", "over 7 days")
_AGE_STEPS = (timedelta(days=1), timedelta(days=2), timedelta(days=7))

# Upper limits in days, the last open: a link lives two months (interface.md 8), a reminder needs a week.
EXPIRIES = ("expired", "within 7 days", "8 to 14 days", "15 to 30 days", "31 to 60 days", "later", "no date given")
_EXPIRY_STEPS = (None, 0, 7, 14, 30, 60, None)


def age_step(since: datetime, now: datetime) -> str:
    """Return which step of AGES the time from `since` to `now` is."""
    return AGES[sum(now - since >= step for step in _AGE_STEPS)]


def duration(span: timedelta) -> str:
    """Return a time span as people say it: `35 min`, `7 h`, `2 d 3 h`; none below zero."""
    minutes = max(0, int(span.total_seconds()) // 60)
    if minutes < 60:
        return f"{minutes} min"
    days, hours = divmod(minutes // 60, 24)
    if not days:
        return f"{hours} h"
    return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"


def by_expiry(links: pl.DataFrame, today: date) -> list[dict[str, str | int]]:
    """Count links (expires_on, links) by time to expiry: one line per step of EXPIRIES, zeros included.

    A link expires at the end of its day: one of today has zero days to go and is not expired.
    """
    days = (pl.col("expires_on") - pl.lit(today)).dt.total_days()
    counted = links.select("links", days.alias("days"))
    masks = [pl.col("days") < 0, *_between(_EXPIRY_STEPS), pl.col("days").is_null()]
    counts = counted.select(
        pl.col("links").filter(mask).sum().alias(name) for name, mask in zip(EXPIRIES, masks, strict=True)
    ).row(0)
    return [{"when": name, "links": int(number)} for name, number in zip(EXPIRIES, counts, strict=True)]


def _between(steps: Iterable[int | None]) -> list[pl.Expr]:
    """Return a mask for each pair of limits: above the lower (from 0 on), up to and with the upper."""
    masks = []
    for lower, upper in list(pairwise(steps))[1:]:
        above = pl.col("days") >= 0 if lower == 0 else pl.col("days") > lower
        masks.append(above if upper is None else above & (pl.col("days") <= upper))
    return masks
