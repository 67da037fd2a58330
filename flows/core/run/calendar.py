"""The issuer's calendar: which days have a night, and until when an extract must be there. Days are local ones."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from schemas.schedule import WEEK, Schedule

YEAR = 366  # days to look back for a business day before giving up


def local_day(moment: datetime, time_zone: str) -> date:
    """Return the day it is at the issuer's place."""
    return moment.astimezone(ZoneInfo(time_zone)).date()


def day_off(schedule: Schedule, day: date) -> str:
    """Say why a day has no night: `holiday`, or its name; nothing on a business day."""
    if day in schedule.holidays:
        return "holiday"
    return "" if WEEK[day.weekday()] in schedule.days else f"{day:%A}"


def due(schedule: Schedule, now: datetime, time_zone: str) -> tuple[date, datetime] | None:
    """Return the last business day whose hour has passed, and the hour of the one before: what is due came since then.

    None where no hour is set, or a year has no two business days.
    """
    if schedule.extract_by is None:
        return None
    passed: list[tuple[date, datetime]] = []
    today = local_day(now, time_zone)
    for day in (today - timedelta(days=back) for back in range(YEAR)):
        hour = _at(day, schedule.extract_by, time_zone)
        if hour <= now and not day_off(schedule, day):
            passed.append((day, hour))
        if len(passed) == 2:
            return passed[0][0], passed[1][1]
    return None


def _at(day: date, hour: time, time_zone: str) -> datetime:
    return datetime.combine(day, hour, ZoneInfo(time_zone))
