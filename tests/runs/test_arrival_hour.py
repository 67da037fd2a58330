"""The hour by which an extract is expected, learned from when extracts came."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.adapters.local import LocalStore
from flows.reports.missed_days import missed_days
from flows.runs.arrival_hour import (
    ALLOWANCE,
    DAY,
    STEP,
    _first_arrivals,
    expected_hour,
    late_minute,
)
from flows.runs.store import Store
from flows.runs.stored_runs import StoredRuns
from tests.night import edges, issuer, local_bench
from tests.planted import plant_committed

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)  # a Friday
BUSINESS_DAYS = [back for back in range(1, 29) if (NOW - timedelta(days=back)).weekday() < 5]
BANK = issuer(schedule={"days": ["mon", "tue", "wed", "thu", "fri"]})


def arrived(store: Store, days_ago: int, clock: time, run_back: int | None = None) -> None:
    """Store the commit of a run whose extract came so many days ago, by default for that day."""
    dropped = datetime.combine((NOW - timedelta(days=days_ago)).date(), clock, UTC)
    back = days_ago if run_back is None else run_back
    day = (NOW - timedelta(days=back)).date()
    sha8 = f"{back:04x}{days_ago:04x}"
    plant_committed(edges(store), day, sha8, dropped)


def runs_of(folder: Path, clocks: dict[int, time]) -> StoredRuns:
    store = LocalStore(folder)
    for days_ago, clock in clocks.items():
        arrived(store, days_ago, clock)
    return StoredRuns(edges(store), "bank")


def test_a_late_arrival_of_the_past_business_days_and_half_an_hour_is_expected(
    tmp_path: Path,
) -> None:
    clocks = {back: time(1, 5) for back in BUSINESS_DAYS[:20]} | {BUSINESS_DAYS[3]: time(2, 10)}

    learned = expected_hour(runs_of(tmp_path, clocks), BANK, NOW)

    assert time(1, 45) == learned.hour
    assert "came on 20 of 20 business days, 95% of them by 01:05" in learned.rests_on


def test_arrivals_around_midnight_are_compared_along_the_clock(tmp_path: Path) -> None:
    clocks = {back: time(23, 50) if back % 2 else time(0, 10) for back in BUSINESS_DAYS[:20]}

    learned = expected_hour(runs_of(tmp_path, clocks), BANK, NOW)

    assert time(0, 45) == learned.hour


@pytest.mark.parametrize("days", [BUSINESS_DAYS[:9], BUSINESS_DAYS[:20:2]])
def test_nothing_is_learned_from_few_days_or_irregular_ones(
    days: list[int], tmp_path: Path
) -> None:
    store = runs_of(tmp_path, {back: time(1) for back in days})

    learned = expected_hour(store, BANK, NOW)

    assert learned.hour is None
    assert "set [schedule] extract_by" in learned.rests_on


@pytest.mark.parametrize("days", [BUSINESS_DAYS[:10], BUSINESS_DAYS[:17] + BUSINESS_DAYS[19:]])
def test_an_hour_is_learned_from_ten_days_on_and_from_nine_in_ten(
    days: list[int], tmp_path: Path
) -> None:
    assert expected_hour(runs_of(tmp_path, {back: time(1) for back in days}), BANK, NOW).hour


def test_the_first_extract_of_each_of_the_last_sixty_days_counts(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, {0: time(1), 1: time(3), 60: time(1), 61: time(1)})
    # of another business date, and dropped on the same day
    arrived(runs.store, 1, time(2), run_back=2)

    arrivals = _first_arrivals(runs, BANK, NOW.date())

    days = {1: 120, 60: 60}
    assert {NOW.date() - timedelta(days=back): minute for back, minute in days.items()} == arrivals


def test_what_is_set_is_expected_whatever_came(tmp_path: Path) -> None:
    store = runs_of(tmp_path, {back: time(1) for back in BUSINESS_DAYS})

    learned = expected_hour(store, issuer(schedule={"extract_by": "04:00:00"}), NOW)

    assert (time(4), "set by [schedule] extract_by") == learned


def test_a_missing_extract_is_an_alert_by_the_learned_hour_and_a_silence_does_not_end_it(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, schedule={"days": BANK.schedule.days})
    for back in BUSINESS_DAYS[5:]:
        arrived(bench.store, back, time(1))
    context = bench.context._replace(adapters=bench.context.adapters._replace(now=lambda: NOW))

    missed = missed_days(context.issuer, bench.runs, [], NOW)

    assert [date(2026, 11, 20)] == missed


@given(st.lists(st.integers(0, DAY - 1), min_size=1, max_size=40), st.integers(0, DAY - 1))
def test_the_hour_turns_with_the_clock(minutes: list[int], turn: int) -> None:
    turn -= turn % STEP
    turned = [(minute + turn) % DAY for minute in minutes]

    latest, _ = late_minute(minutes)
    turned_latest, expected = late_minute(turned)

    assert latest in minutes
    assert turned_latest in turned
    assert ALLOWANCE <= (expected - turned_latest) % DAY < ALLOWANCE + STEP
