"""What a check shows of an issuer's schedule: its business days, and the next holidays."""

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import islice

from flows.runs.arrival_hour import expected_hour
from flows.runs.business_date import YEAR, day_off, local_day
from flows.runs.context import IssuerContext
from flows.runs.public_holidays import calendar_name, require_calendar
from flows.runs.stored_runs import StoredRuns
from schemas.settings import WEEK, Schedule

SHOWN = 3  # holidays


def calendar_line(context: IssuerContext) -> str:
    """Return the business days and the next holidays. Raises UnknownCalendarError."""
    schedule = context.issuer.schedule
    require_calendar(schedule)
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    return f"business days: {', '.join(schedule.days)}; {_holidays(schedule, today)}"


def hour_line(context: IssuerContext) -> str:
    """Return the hour by which an extract is expected, and what that rests on."""
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    hour, rests_on = expected_hour(runs, context.issuer, context.adapters.now())
    if hour is None:
        return rests_on
    return f"an extract is expected by {hour:%H:%M} ({context.issuer.time_zone}); {rests_on}"


def _holidays(schedule: Schedule, today: date) -> str:
    """Return whose holidays are skipped, and the next of them."""
    if not (schedule.country or schedule.holidays):
        return "no holidays: [schedule] names no country"
    of_whom = calendar_name(schedule) or "those of `holidays` alone"
    following = ", ".join(islice(_coming(schedule, today), SHOWN))
    if following:
        return f"holidays: {of_whom}; the next: {following}"
    last = max(schedule.holidays)
    return f"holidays: {of_whom}, which ended on {last}: type the next ones, or name a country"


def _coming(schedule: Schedule, today: date) -> Iterator[str]:
    """Yield the holidays of a year from a day on."""
    for day in (today + timedelta(days=ahead) for ahead in range(YEAR)):
        why = day_off(schedule, day)
        if why and WEEK[day.weekday()] in schedule.days:
            yield f"{day} {why}"
