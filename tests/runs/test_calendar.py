"""The issuer's calendar: days off, and what is due since when."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.runs.business_date import day_off, due, local_day
from flows.runs.public_holidays import UnknownCalendarError, require_calendar
from schemas.settings import WEEK, Schedule, Weekday

WORKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri")
OFFICE = Schedule(days=WORKDAYS, holidays=(date(2026, 11, 26),), extract_by=time(3))


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (date(2026, 11, 25), ""),
        (date(2026, 11, 26), "holiday"),
        (date(2026, 11, 28), "Saturday"),
    ],
)
def test_a_day_off_says_why(day: date, why: str) -> None:
    assert why == day_off(OFFICE, day)


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (date(2026, 11, 26), "Thanksgiving Day"),
        (date(2031, 11, 27), "Thanksgiving Day"),
        (date(2026, 7, 3), ""),
        (date(2026, 12, 24), "holiday"),
        (date(2026, 11, 25), ""),
    ],
)
def test_public_holidays_of_any_year_are_days_off_beside_own_days(day: date, why: str) -> None:
    own_days = {"holidays": (date(2026, 12, 24),), "workdays": (date(2026, 7, 3),)}

    assert why == day_off(Schedule(days=WORKDAYS, country="US", **own_days), day)


def test_a_part_of_a_country_has_holidays_of_its_own_and_banks_have() -> None:
    corpus_christi = date(2026, 6, 4)

    assert "" == day_off(Schedule(country="DE"), corpus_christi)
    assert "Corpus Christi" == day_off(Schedule(country="de", subdivision="BY"), corpus_christi)


@pytest.mark.parametrize(("country", "part"), [("XX", None), ("US", "ZZ"), ("no country", "")])
def test_an_unknown_country_has_no_holidays_and_is_an_error_where_it_is_checked(
    country: str, part: str | None
) -> None:
    schedule = Schedule(country=country, subdivision=part)

    assert "" == day_off(schedule, date(2026, 12, 25))
    with pytest.raises(UnknownCalendarError, match="no public holidays"):
        require_calendar(schedule)


def test_without_a_calendar_every_day_has_a_night() -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(366)]

    assert {day_off(Schedule(), day) for day in days} == {""}


def test_the_day_is_the_one_at_the_issuers_place() -> None:
    late = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)

    assert date(2026, 11, 21) == local_day(late, "Europe/Zurich")


def test_before_its_hour_the_last_business_day_is_due() -> None:
    monday_at_two = datetime(2026, 11, 30, 2, tzinfo=UTC)

    found = due(OFFICE, monday_at_two, "UTC")

    # the 26th is a holiday
    assert found == (date(2026, 11, 27), datetime(2026, 11, 25, 3, tzinfo=UTC))


def test_after_its_hour_today_is_due_and_counts_from_the_business_day_before() -> None:
    monday_at_four = datetime(2026, 11, 30, 4, tzinfo=UTC)

    found = due(OFFICE, monday_at_four, "UTC")

    assert found == (date(2026, 11, 30), datetime(2026, 11, 27, 3, tzinfo=UTC))


def test_nothing_is_due_where_no_hour_is_set_or_no_day_is_left() -> None:
    now = datetime(2026, 11, 30, 4, tzinfo=UTC)
    mondays = tuple(date(2026, 11, 30) - timedelta(weeks=n) for n in range(60))

    found = [
        due(Schedule(), now, "UTC"),
        due(Schedule(days=("mon",), holidays=mondays, extract_by=time(3)), now, "UTC"),
    ]

    assert found == [None, None]


@given(
    st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2030, 1, 1)),
    st.sampled_from(WEEK),
)
def test_what_is_due_lies_in_the_past_and_its_day_is_a_business_day(
    moment: datetime, off: Weekday
) -> None:
    days = tuple(day for day in WEEK if day != off)
    schedule = Schedule(days=days, extract_by=time(3))

    found = due(schedule, moment.replace(tzinfo=UTC), "America/New_York")

    assert found is not None
    day, since = found
    assert day_off(schedule, day) == ""
    assert since < moment.replace(tzinfo=UTC)
    assert timedelta() < datetime.combine(day, time(3), UTC) - since < timedelta(days=3)


def test_a_time_table_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError):
        Schedule(cron="at night")
    with pytest.raises(ValidationError):
        Schedule(days=())
