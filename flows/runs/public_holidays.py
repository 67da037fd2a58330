"""The public holidays of the country that a schedule names, and those of its banks.

A country that is not known has none, so that a night does not depend on it; `require_calendar` is
how a check and an alert learn of it.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from functools import cache
from typing import Final

from flows.errors import OperatorError
from schemas.settings import Schedule

ENGLISH: Final = "en_US"


class UnknownCalendarError(OperatorError):
    """No holidays are known of a country, or of a part of it."""

    message = (
        "[schedule] names {place}, of which no public holidays are known. Until that is corrected, "
        "its nights are skipped by `days` and `holidays` alone."
    )
    next_step = (
        "Name the country by its two letters, and its part by the code of ISO 3166-2 without the "
        "country; or type the days into `holidays`."
    )


def holiday_name(schedule: Schedule, day: date) -> str:
    """Return the name of a public holiday, "" where the day is none, or none are known."""
    with suppress(UnknownCalendarError):
        return require_calendar(schedule).get(day, "")
    return ""


def require_calendar(schedule: Schedule) -> Mapping[date, str]:
    """Return the public holidays of a schedule by day, of any year; none without a country.

    Raises UnknownCalendarError.
    """
    if not schedule.country:
        return {}
    days = _public_holidays(schedule.country.upper(), schedule.subdivision)
    if days is None:
        raise UnknownCalendarError(place=calendar_name(schedule))
    return days


def calendar_name(schedule: Schedule) -> str:
    """Return country and part as a schedule names them, such as US-NY; "" without a country."""
    return "-".join(filter(None, [schedule.country, schedule.subdivision]))


@cache
def _public_holidays(country: str, part: str | None) -> Mapping[date, str] | None:
    """Return the public holidays of a country or its part; None where it is not known."""
    from holidays import country_holidays  # 0.3 s, and most schedules name no country
    from holidays.constants import BANK, PUBLIC

    with suppress(NotImplementedError):
        public = country_holidays(country, subdiv=part)
        categories = {BANK, PUBLIC}.intersection(public.supported_categories)
        # in English wherever the library has it, else the names are those of the machine's locale
        return country_holidays(
            country, subdiv=part, categories=tuple(categories) or None, language=ENGLISH
        )
    return None
