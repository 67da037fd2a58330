"""The moments at which alerts and summaries begin and end: just before, at, and just after."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flows.extensions.alerts.news import LOOK_BACK
from flows.extensions.alerts.notices import open_notices
from flows.extensions.alerts.summaries import LOOK_BACK as SUMMED_UP
from flows.extensions.alerts.summaries import NEWS, SETTLED, write_summaries
from flows.extensions.deliveries.matters import REACHING
from tests.extensions.alerts.test_telling import WANTS
from tests.extensions.alerts.test_watch import at, not_eligible, not_taken
from tests.late import late
from tests.night import BANK, DAY, NOON, Bench, local_bench

SECOND = timedelta(seconds=1)
ONE_DAY = timedelta(days=1)


def alerts(bench: Bench, moments: Iterable[datetime]) -> list[set[str]]:
    """Return the kinds of alerts that stand at each moment."""
    return [{alert.kind for alert in late(at(bench, moment).context)} for moment in moments]


def summaries(bench: Bench) -> int:
    """Sum up what is new; return how many summaries are to be sent."""
    write_summaries(bench.context)
    return len(open_notices(bench.adapters, BANK))


def test_a_receiver_may_be_away_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    bench = next(not_taken(tmp_path))
    assert isinstance(bench, Bench)
    moments = (NOON + REACHING - SECOND, NOON + REACHING, NOON + REACHING + SECOND)

    standing = [kinds & {"receivers to reach"} for kinds in alerts(bench, moments)]

    assert [set(), {"receivers to reach"}, {"receivers to reach"}] == standing


def test_a_run_raises_alerts_until_its_sixtieth_day(tmp_path: Path) -> None:
    bench = next(not_eligible(tmp_path))
    assert isinstance(bench, Bench)
    moments = (NOON + LOOK_BACK - ONE_DAY, NOON + LOOK_BACK, NOON + LOOK_BACK + ONE_DAY)

    standing = [kinds & {"ineligible rows"} for kinds in alerts(bench, moments)]

    assert [{"ineligible rows"}, {"ineligible rows"}, set()] == standing


@pytest.mark.parametrize(("rate", "kinds"), [(0.49, {"ineligible rows"}), (0.5, set())])
def test_an_extract_may_have_as_many_rows_that_are_not_eligible_as_the_rate_says(
    tmp_path: Path, rate: float, kinds: set[str]
) -> None:
    bench = next(not_eligible(tmp_path))
    assert isinstance(bench, Bench)

    limited = at(bench, NOON, alerts={"ineligible_rate": rate})

    assert kinds == {alert.kind for alert in late(limited.context)}


def test_a_night_is_summed_up_once_it_has_settled_and_within_a_day(tmp_path: Path) -> None:
    bench = at(local_bench(tmp_path, channels=WANTS), NOON)
    bench.submit(bench.drop(5))
    next_noon = NOON + 5 * ONE_DAY
    spans = (SETTLED - SECOND, SETTLED, NEWS)

    first = [summaries(at(bench, NOON + span)) for span in spans]
    bench = at(bench, next_noon)
    bench.submit(bench.drop(5, "bank-20261125.csv", seed=1))
    second = [summaries(at(bench, next_noon + NEWS + late)) for late in (SECOND, 0 * SECOND)]

    assert ([0, 1, 1], [1, 2]) == (first, second)


def test_while_one_run_moves_nothing_is_summed_up(tmp_path: Path) -> None:
    bench = at(local_bench(tmp_path, channels=WANTS), NOON)
    bench.submit(bench.drop(5))
    later = NOON + SETTLED / 2
    at(bench, later).submit(bench.drop(5, "bank-20261121.csv", seed=1))

    assert [0, 1] == [summaries(at(bench, since + SETTLED)) for since in (NOON, later)]


@pytest.mark.parametrize(("late", "number"), [(-1, 1), (0, 1), (1, 0)])
def test_nothing_is_said_of_a_run_of_more_than_a_month_ago(
    tmp_path: Path, late: int, number: int
) -> None:
    bench = at(local_bench(tmp_path, channels=WANTS), NOON)
    day = DAY - SUMMED_UP - timedelta(days=late)
    bench.submit(bench.drop(5, f"bank-{day:%Y%m%d}.csv"), business_date=day)

    assert number == summaries(at(bench, NOON + SETTLED))
