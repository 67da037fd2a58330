"""On which business days an extract was due and none came."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.book.known_runs import KnownPlan
from flows.reports.missed_days import MISSED, missed_days
from flows.runs.keys import RunId
from flows.runs.stored_runs import StoredRuns
from tests.night import BANK, NOON, edges, issuer
from tests.planted import a_plan, known_plan, plant

WEEKDAYS = ["mon", "tue", "wed", "thu", "fri"]
SCHEDULE = {"extract_by": "03:00:00", "days": WEEKDAYS, "holidays": ["2026-11-18"]}


def november(*days: int) -> list[date]:
    return [date(2026, 11, day) for day in days]


def plan(day: date, *, is_whole: bool = True) -> KnownPlan:
    """Return the plan of a committed run."""
    selection = "" if is_whole else "some rows"
    return known_plan(str(RunId(BANK, day, f"{day:%Y%m%d}")), day, selection=selection)


def missed(
    folder: Path, committed: list[KnownPlan], *undecided: date, now: datetime = NOON
) -> list[date]:
    """Return the days without an extract, where these runs are stored."""
    store = LocalStore(folder)
    others = [str(RunId(BANK, day, f"{day:%Y%m%d}")) for day in undecided]
    for run in [*(known.run for known in committed), *others]:
        plant(edges(store), a_plan(run))
    runs = StoredRuns(edges(store), BANK)
    return missed_days(issuer(schedule=SCHEDULE), runs, committed, now)


def test_a_day_between_two_runs_is_missed_as_one_after_the_last(tmp_path: Path) -> None:
    committed = [plan(day) for day in november(12, 19)]

    assert november(13, 16, 17, 20) == missed(tmp_path, committed)


@pytest.mark.parametrize(
    ("hour", "days"), [(2, [13, 17, 19]), (3, [13, 17, 19, 20]), (12, [13, 17, 19, 20])]
)
def test_business_days_since_the_first_run_that_have_neither_a_whole_extract_nor_a_refused_one(
    tmp_path: Path, hour: int, days: list[int]
) -> None:
    thursday, monday, tuesday = november(12, 16, 17)
    committed = [plan(thursday), plan(tuesday, is_whole=False)]

    assert november(*days) == missed(tmp_path, committed, monday, now=NOON.replace(hour=hour))


def test_days_are_looked_for_a_month_back(tmp_path: Path) -> None:
    first = NOON.date() - MISSED

    [day, *_] = missed(tmp_path, [plan(first - timedelta(days=7))])

    assert first == day


def test_before_the_first_whole_extract_none_is_missed(tmp_path: Path) -> None:
    assert [] == missed(tmp_path, [plan(date(2026, 11, 12), is_whole=False)])
