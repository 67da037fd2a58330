"""Business dates: in an extract's name, of the issuer's clock and schedule."""

import re
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from flows.runs.public_holidays import holiday_name
from schemas.settings import WEEK, Schedule

DATE_IN_NAME = re.compile(r"(?<!\d)(20\d\d)[-_]?(0[1-9]|1[0-2])[-_]?(0[1-9]|[12]\d|3[01])(?!\d)")
YEAR = 366  # days to look back for a business day before giving up


def date_in_name(key: str) -> date | None:
    """Return the business date in an extract's name, None where it has none.

    Written 2026-11-20 or 20261120.
    """
    digits = DATE_IN_NAME.search(key.rpartition("/")[2])
    if digits is None:
        return None
    with suppress(ValueError):  # 20260231 is not a date
        return date(int(digits[1]), int(digits[2]), int(digits[3]))
    return None


def local_day(moment: datetime, time_zone: str) -> date:
    """Return the issuer's local date at that moment."""
    return moment.astimezone(ZoneInfo(time_zone)).date()


def day_off(schedule: Schedule, day: date) -> str:
    """Return why a day is not a business day, "" where it is one.

    That is the name of a public holiday, `holiday` for one of its own, or the weekday's name.
    """
    if day in schedule.workdays:
        return ""
    if day in schedule.holidays:
        return "holiday"
    if WEEK[day.weekday()] not in schedule.days:
        return f"{day:%A}"
    return holiday_name(schedule, day)


def due(schedule: Schedule, now: datetime, time_zone: str) -> tuple[date, datetime] | None:
    """Return the last business day whose hour has passed, and the hour of the one before.

    An extract is due since then. None where no hour is set, or a year has fewer than two business
    days.
    """
    if schedule.extract_by is None:
        return None
    zone = ZoneInfo(time_zone)
    today = local_day(now, time_zone)
    days = (today - timedelta(days=back) for back in range(YEAR))
    business_days = (day for day in days if not day_off(schedule, day))
    hours = (datetime.combine(day, schedule.extract_by, zone) for day in business_days)
    passed = list(islice((hour for hour in hours if hour <= now), 2))
    if len(passed) < 2:
        return None
    last, before = passed
    return last.date(), before
