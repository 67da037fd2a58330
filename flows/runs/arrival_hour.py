"""The hour by which an extract is expected where nobody has set one: learned from past arrivals.

It is a late one of the times of day at which extracts came on the business days before, with an
allowance. Times around midnight are compared along the clock, from its longest gap on. Where
extracts did not come on nearly every business day, nothing is learned, and nothing is missed.
"""

from collections.abc import Collection, Sequence
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from math import ceil
from typing import NamedTuple
from zoneinfo import ZoneInfo

from flows.runs.business_date import day_off, local_day
from flows.runs.stored_runs import StoredRuns
from schemas.issuer import Issuer

BUSINESS_DAYS = 20  # that are looked back
FEWEST = 10  # arrivals that something is learned from
REGULAR = 0.9  # share of business days with an arrival
LATE = 0.95  # share of arrivals by the hour that is taken
ALLOWANCE = 30  # minutes after it
STEP = 15  # minutes that it is rounded up to
DAY = 24 * 60
LOOK_BACK = timedelta(days=60)
NEWEST = 3 * BUSINESS_DAYS  # runs that are looked at


class ExpectedHour(NamedTuple):
    """The hour by which an extract is expected, None where none is, and what it rests on."""

    hour: time | None
    rests_on: str


def expected_hour(runs: StoredRuns, issuer: Issuer, now: datetime) -> ExpectedHour:
    """Return `[schedule] extract_by`, else what is learned from the arrivals of past days."""
    if issuer.schedule.extract_by is not None:
        return ExpectedHour(issuer.schedule.extract_by, "set by [schedule] extract_by")
    today = local_day(now, issuer.time_zone)
    arrivals = _first_arrivals(runs, issuer, today)
    days = _business_days(issuer, arrivals)
    minutes = [arrivals[day] for day in days if day in arrivals]
    if not arrivals:
        return ExpectedHour(None, "no hour is learned: no extract came on a day before today")
    seen = f"extracts came on {len(minutes)} of {len(days)} business days"
    if len(minutes) < FEWEST or len(minutes) < REGULAR * len(days):
        return ExpectedHour(None, f"no hour is learned: {seen}; set [schedule] extract_by")
    latest, hour = late_minute(minutes)
    by = f"{LATE:.0%} of them by {_clock(latest):%H:%M}"
    text = f"learned: {seen}, {by}, and {ALLOWANCE} minutes more"
    return ExpectedHour(_clock(hour), text)


def with_expected_hour(runs: StoredRuns, issuer: Issuer, now: datetime) -> Issuer:
    """Return an issuer whose schedule has the hour that is set or learned."""
    hour = expected_hour(runs, issuer, now).hour
    schedule = issuer.schedule.model_copy(update={"extract_by": hour})
    return issuer.model_copy(update={"schedule": schedule})


def _first_arrivals(runs: StoredRuns, issuer: Issuer, today: date) -> dict[date, int]:
    """Return the minute at which the first extract of each past day came, by its local day."""
    zone = ZoneInfo(issuer.time_zone)
    recent = [runs.run(run) for run in runs.ids if today - run.day <= LOOK_BACK]
    arrivals: dict[date, int] = {}
    for dropped in (run.dropped_at for run in recent[-NEWEST:]):
        if dropped is None or dropped.astimezone(zone).date() >= today:
            continue
        local = dropped.astimezone(zone)
        minute = local.hour * 60 + local.minute
        arrivals[local.date()] = min(minute, arrivals.get(local.date(), minute))
    return arrivals


def _business_days(issuer: Issuer, arrivals: Collection[date]) -> list[date]:
    """Return the last business days up to the last arrival, back to the first, newest first.

    Days after the last arrival teach nothing: else a silence would end its own alert.
    """
    if not arrivals:
        return []
    last = max(arrivals)
    span = (last - timedelta(days=back) for back in range((last - min(arrivals)).days + 1))
    return [day for day in span if not day_off(issuer.schedule, day)][:BUSINESS_DAYS]


def late_minute(minutes: Sequence[int]) -> tuple[int, int]:
    """Return a late one of these minutes of the day, and that by which an extract is expected."""
    clock = sorted(set(minutes))
    around = pairwise([*clock, clock[0] + DAY])
    start = max((after - before, after % DAY) for before, after in around)[1]
    in_order = sorted((minute - start) % DAY for minute in minutes)
    late = in_order[ceil(LATE * len(in_order)) - 1]
    expected = -(-(late + start + ALLOWANCE) // STEP) * STEP
    return (late + start) % DAY, expected % DAY


def _clock(minute: int) -> time:
    return time(minute // 60, minute % 60)
