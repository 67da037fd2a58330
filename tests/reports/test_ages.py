from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.reports.ages import EXPIRIES, age_step, by_expiry, duration

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TODAY = NOW.date()


@pytest.mark.parametrize(
    ("hours", "step"),
    [
        (0, "under 1 day"),
        (23, "under 1 day"),
        (24, "1 to 2 days"),
        (48, "2 to 7 days"),
        (168, "over 7 days"),
    ],
)
def test_an_age_falls_into_the_step_it_has_reached(hours: int, step: str) -> None:
    assert step == age_step(NOW - timedelta(hours=hours), NOW)


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (-5, "0 min"),
        (59, "59 min"),
        (60, "1 h"),
        (24 * 60, "1 d"),
        (51 * 60, "2 d 3 h"),
        (9 * 24 * 60 + 60, "9 d 1 h"),
        (10 * 24 * 60 + 60, "10 d"),
    ],
)
def test_a_duration_is_said_as_people_say_it(minutes: int, text: str) -> None:
    assert text == duration(timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("days", "step"),
    [
        (-1, "expired"), (0, "within 7 days"), (7, "within 7 days"), (8, "8 to 14 days"),
        (14, "8 to 14 days"), (15, "15 to 30 days"), (31, "31 to 60 days"), (60, "31 to 60 days"),
        (61, "later"),
    ],
)  # fmt: skip
def test_a_link_expires_at_the_end_of_its_day(days: int, step: str) -> None:
    counted = by_expiry([(TODAY + timedelta(days=days), 5)], TODAY)

    assert [step] == [line["when"] for line in counted if line["links"]]


def test_a_link_of_which_nobody_said_when_it_expires_is_in_the_last_step() -> None:
    assert ("no date given", 5) == (EXPIRIES[-1], by_expiry([(None, 5)], TODAY)[-1]["links"])


@given(
    st.lists(
        st.tuples(st.none() | st.dates(date(2026, 1, 1), date(2028, 1, 1)), st.integers(0, 10**6)),
        max_size=9,
    )
)
def test_every_link_is_counted_in_one_step(pairs: list[tuple[date | None, int]]) -> None:
    counted = by_expiry(pairs, TODAY)

    assert [line["when"] for line in counted] == list(EXPIRIES)
    assert sum(number for _, number in pairs) == sum(int(line["links"]) for line in counted)
