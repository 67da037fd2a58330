"""Work is due, and open, since what it is about is known; it was midnight of the business date."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl

from flows.adapters.local import LocalStore
from flows.book.attempts import ATTEMPT
from flows.book.known_runs import KnownPlan
from flows.book.stored_book import known_plans
from flows.reports.link_work import nameless_work, not_replaced_work
from flows.reports.unlinked_work import unlinked_work
from flows.reports.work import Line
from tests.night import NOON, Bench
from tests.reports.test_missed_days import plan

COMMITTED = NOON - timedelta(hours=7)
ANSWERED = NOON - timedelta(hours=2)
NIGHT = plan(NOON.date())._replace(committed_at=COMMITTED)
LACKING = pl.Schema(
    {
        "run": pl.String(),
        "stage": pl.String(),
        "reason": pl.String(),
        "action": pl.String(),
        "since": ATTEMPT["since"],
    }
)
BY_US = ("submit", "card.pan.luhn", "fix at source", None)
BY_PARTNER = ("partner", "card.pan.unsupported", "ask the partner", ANSWERED)
LATER = (*BY_PARTNER[:-1], NOON)


def without_link(*rows: tuple[object, ...], run: str = NIGHT.run) -> pl.DataFrame:
    return pl.DataFrame([(run, *row) for row in rows], LACKING, orient="row")


def moments(*plans: KnownPlan, lacking: pl.DataFrame) -> dict[str, tuple[datetime, datetime]]:
    """Return since when work is due and open, by who acts."""
    works = unlinked_work("bank", plans, lacking, NOON)
    return {Line((work,)).kind.who: (work.due, work.since) for work in works}


def test_a_row_that_we_refused_counts_from_the_commit_and_an_error_from_its_first_answer() -> None:
    since = moments(NIGHT, lacking=without_link(BY_US, LATER, BY_PARTNER))

    assert {"issuer": (COMMITTED, COMMITTED), "partner": (ANSWERED, ANSWERED)} == since


def test_a_single_link_with_typed_fields_counts_from_its_answer() -> None:
    assert {"partner": (ANSWERED, ANSWERED)} == moments(lacking=without_link(BY_PARTNER, run=""))


def test_two_weeks_and_before_go_by_the_business_date_whenever_the_answer_came() -> None:
    nights = [NIGHT, *(plan(date(2026, 11, day)) for day in (1, 3))]
    lacking = pl.concat(without_link(BY_PARTNER, run=night.run) for night in nights)

    works = tuple(unlinked_work("bank", nights, lacking, NOON))

    [offered] = [choice for choice in Line(works).choices if choice.name == "give up the old"]
    assert "--before 2026-11-04" in str(offered.command)


def test_refused_rows_of_cards_with_a_link_and_of_nobody_count_alike() -> None:
    ours, answered = [
        pl.DataFrame([{"run": NIGHT.run, "since": since}], ATTEMPT) for since in (None, ANSWERED)
    ]

    works = [
        *nameless_work("bank", [NIGHT], ours, NOON),
        *not_replaced_work("bank", [NIGHT], answered, NOON),
    ]

    assert [COMMITTED, ANSWERED] == [work.since for work in works]


def test_the_commit_of_a_run_is_known_from_its_history(tmp_path: Path) -> None:
    bench = Bench(LocalStore(tmp_path))
    bench.submit(bench.drop(3, "bank-20261118.csv"))

    [known] = known_plans(bench.context.adapters, bench.runs)

    assert (date(2026, 11, 18), NOON) == (known.as_of, known.since)
