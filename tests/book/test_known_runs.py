"""What is kept of runs about which nothing is open says what they say, and is read no longer than
that.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.book import upkeep
from flows.book.book import read_book
from flows.book.known_runs import LARGEST, ClosedRun, KnownRuns, closed_run, read_plans
from flows.book.stored_book import known_runs
from flows.operations.purge import plan_purge, purge
from flows.operations.retention import closed_state, state_of
from flows.reports.run_facts import facts_of
from flows.runs.documents import read_facts
from flows.runs.events import record_event
from flows.runs.keys import keys_of
from flows.runs.run_status import PURGED
from flows.submissions.plan import plan_selection
from schemas.manifest import Selection
from tests.night import DAY, Bench
from tests.operations.retention import YEAR, answered, cleaner, later, sent

ONE_DAY = timedelta(days=1)


def plans_of(bench: Bench, closed: dict[str, ClosedRun]) -> KnownRuns:
    """Return what is known of the runs of a bench, of which these are closed."""
    with bench.database.snapshot() as connection:
        return KnownRuns(read_plans(connection, "bank"), closed)


def summarise(bench: Bench, run: str, change: dict[str, Any]) -> None:
    """Change the summary of a run's report."""
    key = bench.stored(run).keys.report("summary.json")
    summary = read_facts(bench.store, key)
    assert summary is not None
    bench.store.replace(key, [json.dumps({**summary, **change}).encode()])


def test_a_closed_run_says_what_its_report_and_its_objects_say(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    bench.answer(fail_share=0.2, seed=1)
    bench.ingest()
    stored = bench.stored(run)
    entries = list(bench.store.keys(stored.keys.base))

    closed = closed_run(stored)

    assert closed is not None
    assert closed.partner
    assert stored.status == closed.status(run)
    assert state_of(bench.context, stored, entries) == closed_state(closed, stored, entries)
    read, kept = (
        facts_of(plans_of(bench, runs), bench.context.adapters) for runs in ({}, {run: closed})
    )
    assert [facts._replace(breaks=(), closed=()) for facts in read] == kept


def test_a_purge_judges_a_closed_run_by_its_figures_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, run = answered(tmp_path)
    bench = later(bench, YEAR)
    closed = closed_run(bench.stored(run))
    assert closed is not None
    due = plan_purge(bench.context, cleaner(bench)).lots
    known = plans_of(bench, {run: closed})
    monkeypatch.setattr("flows.operations.purge.known_runs", lambda *_: known)
    monkeypatch.setattr("flows.operations.purge.state_of", None)

    plan = plan_purge(bench.context, cleaner(bench))

    assert due
    assert [lot.record.part for lot in due] == [lot.record.part for lot in plan.lots]


def test_a_run_is_of_its_own_day_and_no_other(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    known = plans_of(bench, {})
    day = known.plans[run].as_of
    spans = [(day, day), (None, day), (day, None), (day + ONE_DAY, None), (None, day - ONE_DAY)]

    runs = [len(facts_of(known, bench.context.adapters, start, end)) for start, end in spans]

    assert [1, 1, 1, 0, 0] == runs


def test_a_run_that_waits_for_answers_is_not_closed(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)

    assert closed_run(bench.stored(run)) is None


@pytest.mark.parametrize(
    ("change", "is_closed"),
    [
        ({}, True),
        ({"breaks": [{"notice": True}]}, True),
        ({"breaks": [{"notice": True}, {"notice": False}]}, False),
        ({"more_breaks": 1}, False),
        ({"rows": {"awaiting": 1, "read": 50}}, False),
        ({"chunks": {"sent": 3, "answered": 2}}, False),
        ({"chunks": {"sent": 3}}, False),
    ],
)
def test_a_run_is_closed_where_its_report_has_nothing_open(
    tmp_path: Path, change: dict[str, Any], is_closed: bool
) -> None:
    bench, run = answered(tmp_path)
    summarise(bench, run, change)

    assert is_closed == (closed_run(bench.stored(run)) is not None)


def test_the_rows_of_a_closed_run_are_kept_up_to_a_size(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    has_rows: list[bool] = []
    for rows in (LARGEST, LARGEST + 1):
        summarise(bench, run, {"rows": {"awaiting": 0, "read": rows}})
        closed = closed_run(bench.stored(run))
        has_rows.append(closed is not None and closed.has_rows)

    assert [True, False] == has_rows


def test_rows_that_another_run_has_sent_again_keep_the_run_read_by_retention(
    tmp_path: Path,
) -> None:
    bench, run = answered(tmp_path)
    source = bench.stored(run).planned().source
    rows = Selection(kind="resubmit", of=run, rows=1, sha256="0" * 64, reason="once more")
    plan_selection(bench.context, source, DAY, rows)

    before = closed_run(bench.stored(run))

    assert before is not None
    assert before.since is None
    assert KnownRuns({}, {run: before}).unread_state(run) is None


def test_a_purged_run_is_closed_with_the_figures_of_its_last_report(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    report = closed_run(bench.stored(run))
    purge(later(bench, YEAR).context, cleaner(bench))

    closed = closed_run(bench.stored(run))

    assert report is not None
    expected = report.model_copy(
        update={
            "is_purged": True, "partner": [], "expires": {}, "hours": {},
            "since": None, "has_rows": False, "rows": {**report.rows, "ineligible": 0},
        }
    )  # fmt: skip
    assert expected == closed
    assert expected.status(run).state == f"{report.verdict}{PURGED}"


def after_days(bench: Bench, run: str, days: int) -> Bench:
    """Return a bench whose journal named a run, and so many days later another one."""
    record_event(bench.context.adapters, keys_of(run), "noted", of="it")
    quiet = later(bench, days)
    quiet.submit(quiet.drop(3, "bank-20261121.csv", seed=9))
    return quiet


@pytest.mark.parametrize(("together", "is_closed"), [(1, True), (3, False)])
def test_runs_are_judged_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int, is_closed: bool
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", together)
    bench, run = answered(tmp_path)
    quiet = after_days(bench, run, 2)
    read_book(quiet.context.adapters, "bank")

    assert is_closed == (run in known_runs(quiet.context.adapters, quiet.runs).closed)


@pytest.mark.parametrize("what", ["nothing", "changed", "purged"])
def test_a_run_is_closed_while_it_is_as_it_was_when_it_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 1)
    kept, run = answered(tmp_path)
    bench = after_days(kept, run, 2)
    read_book(bench.context.adapters, "bank")
    before = known_runs(bench.context.adapters, bench.runs)
    if what == "changed":
        record_event(bench.context.adapters, keys_of(run), "noted", of="it")
    if what == "purged":
        purge(later(kept, YEAR).context, cleaner(kept))

    known = known_runs(bench.context.adapters, bench.runs)

    assert run in before.closed
    assert (what == "nothing") == (run in known.closed)
    assert run in [plan.run for plan in known.committed]


@pytest.mark.parametrize(("is_reported", "verdict"), [(False, "balanced"), (True, "other")])
def test_a_run_whose_report_was_written_anew_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reported: bool, verdict: str
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 1)
    bench, run = answered(tmp_path)
    bench = after_days(bench, run, 2)
    adapters = bench.context.adapters
    read_book(adapters, "bank")
    summarise(bench, run, {"verdict": "other"})

    if is_reported:
        record_event(adapters, keys_of(run), "noted", of="it")
    read_book(adapters, "bank")

    assert verdict == known_runs(adapters, bench.runs).closed[run].verdict


def test_the_links_of_closed_runs_are_those_of_the_runs_whose_rows_are_kept() -> None:
    figures = ClosedRun(verdict="balanced", rows={}, chunks=1, submit={})
    closed = {"r1": figures.model_copy(update={"has_rows": True}), "r2": figures}
    links = [("r1", 1, 7), ("r2", 1, 8)]
    rows = pl.DataFrame(links, ["run", "row", "link"], orient="row")

    known = KnownRuns({}, closed, read_links=lambda: rows)

    assert [("r1", 1, 7)] == known.links().rows()
