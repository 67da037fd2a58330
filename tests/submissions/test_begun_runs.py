"""Which runs were begun and left by their process, and which of them the next command ends."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from flows.book.stored_book import known_plans
from flows.runs.adapters import NoReasonError
from flows.runs.claim import OLD, ClaimedError, Lease, work_on
from flows.runs.decisions import EXTRACT, decide
from flows.runs.events import REFUSED, record_event
from flows.runs.journal import enter
from flows.runs.keys import RunId, keys_of
from flows.submissions.begun import (
    LEFT,
    BegunRun,
    abandon_left,
    abandon_run,
    begun_runs,
    end_begun,
    open_begun_runs,
)
from schemas.manifest import Selection
from schemas.records import Abandoned, Dismissal
from tests.memory import DROPPED
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, DAY, NOON
from tests.planted import a_manifest, plant, plant_commit, set_run
from tests.submissions.test_run_choice import SHA, SOURCE, plan_of

ROWS = Selection(kind="resubmit", of="x", rows=1, sha256="some rows", reason="wrong")
NEXT = DAY + timedelta(days=1)
HOUR = timedelta(hours=1)


def name(number: int = 1, day: date = DAY) -> str:
    return str(RunId(BANK, day, SHA[:8], number))


def planned(bench: MemoryBench, run: str, **otherwise: Any) -> str:
    """Store the plan of a run."""
    return plant(bench.adapters, plan_of(bench.context, run, **otherwise), at=DROPPED)


def committed(bench: MemoryBench, run: str, **otherwise: Any) -> str:
    planned(bench, run, **otherwise)
    plan = plan_of(bench.context, run, **otherwise)
    return plant_commit(bench.adapters, a_manifest(plan), DROPPED)


def left(bench: MemoryBench) -> list[tuple[str, str, datetime, str]]:
    return [
        _facts(begun)
        for begun in begun_runs(bench.context, known_plans(bench.context.adapters, bench.runs))
    ]


def _facts(begun: BegunRun) -> tuple[str, str, datetime, str]:
    return begun.plan.run, begun.state, begun.since, begun.superseded_by


def test_a_run_of_a_whole_extract_is_pending_one_of_selected_rows_is_not() -> None:
    bench = memory_bench()
    planned(bench, name(1))
    planned(bench, name(2), selection=ROWS)

    assert [
        (name(1), "pending", DROPPED, ""),
        (name(2), "selected", DROPPED, ""),
    ] == left(bench)


def test_a_run_that_has_ended_or_was_replaced_is_not_left() -> None:
    bench = memory_bench()
    committed(bench, name(1))
    planned(bench, name(2))
    abandon_run(bench.context.adapters, name(2), "not wanted")
    assert [] == left(bench)

    planned(bench, name(3))
    set_run(bench.adapters, name(3), state="replaced", replaced_by=name(1))
    assert [] == left(bench)


@pytest.mark.parametrize("full_portfolio", [False, True])
@pytest.mark.parametrize(
    ("day", "otherwise", "is_same"),
    [
        (DAY, {}, True),
        (NEXT, {}, False),  # of a portfolio; another extract there
        (DAY, {"source": SOURCE.model_copy(update={"key": "bank/extracts/b.csv"})}, None),
        (DAY, {"source": SOURCE.model_copy(update={"sha256": "f" * 64})}, None),
    ],
)
def test_another_committed_run_of_the_same_extract_supersedes_one(
    day: date, otherwise: dict[str, Any], is_same: bool | None, full_portfolio: bool
) -> None:
    bench = memory_bench(full_portfolio=full_portfolio)
    other = committed(bench, name(1))
    run = planned(bench, name(2, day), **otherwise)

    is_superseded = is_same or (is_same is False and not full_portfolio)
    state = ("superseded", DROPPED, other) if is_superseded else ("pending", DROPPED, "")
    assert [(run, *state)] == left(bench)


@pytest.mark.parametrize(
    ("run", "reason", "state"),
    [(name(3), "lost", "requested"), (name(3), "", "superseded")],
)
def test_a_new_run_that_was_asked_for_after_the_committed_one_is_not_superseded_by_it(
    run: str, reason: str, state: str
) -> None:
    bench = memory_bench()
    committed(bench, name(2))
    planned(bench, run, reason=reason)

    assert [(run, state, DROPPED, name(2))] == left(bench)


def test_a_new_run_that_nobody_repeats_is_ended_by_the_next_command_and_can_still_be_repeated() -> (
    None
):
    bench = memory_bench()
    committed(bench, name(1))
    planned(bench, name(2), reason="lost")

    assert (f"run {name(2)} had been begun and is not finished: {LEFT}",) == end_begun(
        bench.context, bench.runs
    )
    assert ([], None) == (left(bench), bench.stored(name(2)).end)
    assert name(1) == bench.stored(name(2)).as_planned().replaced_by


def test_a_committed_run_of_selected_rows_supersedes_none() -> None:
    bench = memory_bench()
    committed(bench, name(1), selection=ROWS)
    planned(bench, name(2))
    abandoned = planned(bench, name(3))
    abandon_run(bench.context.adapters, abandoned, "not wanted")

    assert [(name(2), "pending", DROPPED, "")] == left(bench)


@pytest.mark.parametrize(
    ("age", "was_claimed", "is_left"),
    [
        (OLD - timedelta(microseconds=1), False, False),
        (OLD - timedelta(microseconds=1), True, True),
        (OLD, False, True),
    ],
)
def test_a_run_that_was_planned_just_now_and_never_claimed_is_being_worked_on(
    age: timedelta, was_claimed: bool, is_left: bool
) -> None:
    bench = memory_bench(lambda: DROPPED + age)
    planned(bench, name(1))
    if was_claimed:
        Lease.take(work_on(bench.adapters, name(1)), "b", DROPPED, HOUR).give_back(DROPPED)

    assert is_left == bool(left(bench))


def test_a_run_whose_claim_is_held_is_being_worked_on() -> None:
    bench = memory_bench()
    planned(bench, name(1))
    planned(bench, name(2))
    Lease.take(work_on(bench.adapters, name(1)), "b", NOON, HOUR)

    assert [name(2)] == [run for run, *_ in left(bench)]


@pytest.mark.parametrize("full_portfolio", [False, True])
def test_nobody_has_decided_about_a_begun_run_unless_it_was_refused_or_dismissed(
    full_portfolio: bool,
) -> None:
    bench = memory_bench(full_portfolio=full_portfolio)
    planned(bench, name(1))
    planned(bench, name(2), selection=ROWS)
    for number in (1, 2):
        adapters, keys = bench.context.adapters, keys_of(name(number))
        record_event(adapters, keys, REFUSED, why="GateError", sentence="no", under="")
    other = SOURCE.model_copy(update={"sha256": "e" * 64})
    planned(bench, name(3), source=other)
    planned(bench, name(4), source=SOURCE.model_copy(update={"sha256": "d" * 64}))
    record = Dismissal(at=NOON, by="a", reason="no", what="dismissed", key=other.key, size=1)
    enter(bench.adapters, BANK, "", lambda act: decide(act, EXTRACT, other.sha256, record))

    assert 4 == len(begun_runs(bench.context, known_plans(bench.context.adapters, bench.runs)))
    assert [name(2), name(4)] == [
        begun.plan.run
        for begun in open_begun_runs(bench.context, known_plans(bench.context.adapters, bench.runs))
    ]


def test_the_next_command_ends_what_no_command_will_finish_but_its_own_run() -> None:
    bench = memory_bench()
    committed(bench, name(1))
    planned(bench, name(2))
    for number in (3, 4):
        planned(bench, name(number), selection=ROWS)
    other = SOURCE.model_copy(update={"sha256": "e" * 64})
    planned(bench, name(5), source=other)

    remarks = end_begun(bench.context, bench.runs, name(3))

    assert (
        f"run {name(2)} had been begun; run {name(1)} has its rows",
        f"run {name(4)} had been begun and is abandoned: {LEFT}",
    ) == remarks
    assert [(name(3), "selected", DROPPED, ""), (name(5), "pending", DROPPED, "")] == left(bench)
    assert name(1) == bench.stored(name(2)).as_planned().replaced_by
    assert LEFT == _record(bench, name(4)).reason
    assert (f"run {name(3)} had been begun and is abandoned: {LEFT}",) == end_begun(
        bench.context, bench.runs
    )
    assert () == end_begun(bench.context, bench.runs)


def _record(bench: MemoryBench, run: str) -> Abandoned:
    record = bench.stored(run).end
    assert isinstance(record, Abandoned)
    return record


def test_a_run_is_abandoned_once() -> None:
    bench = memory_bench()
    adapters = bench.context.adapters
    run = planned(bench, name(1))

    record = abandon_run(adapters, run, " not wanted ")

    expected = Abandoned(run=name(1), at=NOON, by="tester:1", reason="not wanted")
    assert expected == record == _record(bench, name(1))
    assert abandon_run(adapters, run, "not wanted") is None
    assert not abandon_left(adapters, run, "not wanted")


def test_what_another_process_works_on_is_not_abandoned_nor_anything_without_a_reason() -> None:
    bench = memory_bench()
    adapters = bench.context.adapters
    run = planned(bench, name(1))
    lease = Lease.take(work_on(adapters, run), "b", NOON, HOUR)

    with pytest.raises(ClaimedError):
        abandon_run(adapters, run, "not wanted")
    with pytest.raises(NoReasonError):
        abandon_run(adapters, run, " ")
    assert not abandon_left(adapters, run, "not wanted")
    assert not bench.stored(run).is_ended
    lease.give_back(NOON)
    assert abandon_left(adapters, run, "left")
    assert "left" == _record(bench, name(1)).reason
