"""A run ended before its commit: for good, by one winner, and said so by everybody who meets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.operations.history import history
from flows.operations.remediation import (
    CommittedError,
    abandon,
    next_after_abandoning,
    take_over,
)
from flows.runs.adapters import NoReasonError
from flows.runs.claim import ClaimedError, claimed, work_on
from flows.runs.context import overlaid
from flows.runs.errors import AbandonedError, UnknownRunError
from flows.steps import Step
from flows.submissions.extract_states import extracts_to_submit
from flows.submissions.submit import Request, submit
from schemas.expressions import PUBLISHED
from tests.late import late
from tests.memory import KilledError
from tests.memory_bench import memory_bench
from tests.night import BANK, Bench, killed_at, local_bench, made_once, submitted
from tests.submissions.test_begun_runs import ROWS, name, planned

WHY = "the issuer sent the wrong file"


@made_once
def broken_off(folder: Path) -> tuple[Bench, str]:
    """Return a bench with a run that died before its commit and gave its claim back."""
    bench = local_bench(folder, portal={"rows_per_chunk": 10})
    extract = bench.drop(30)

    with pytest.raises(KilledError):
        killed_at(bench, "committed").submit(extract)
    [run] = bench.runs.ids
    return bench, str(run)


def test_an_abandoned_run_is_never_committed_and_its_extract_waits_no_more(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)

    abandon(bench.context.adapters, run, WHY)

    assert bench.stored(run).manifest is None
    assert extracts_to_submit(bench.context) == []
    assert [(one.run, one.state) for one in bench.runs.statuses()] == [(run, "abandoned")]
    assert [alert for alert in late(bench.context) if alert.subject == run] == []


def test_submitting_the_extract_again_says_who_abandoned_it_and_why(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)
    abandon(bench.context.adapters, run, WHY)

    with pytest.raises(AbandonedError, match=f"by tester:1: {WHY}") as told:
        bench.submit("bank-20261120.csv")

    assert '--new-run "REASON"' in str(told.value)


def test_a_new_run_of_the_extract_goes_through(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)
    abandon(bench.context.adapters, run, WHY)

    again = bench.submit("bank-20261120.csv", new_run="it was the right file").manifest

    assert again.run == f"{run}-r2"
    assert again.counts.submitted == 30


def test_a_new_run_that_broke_off_is_pending_again(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)
    abandon(bench.context.adapters, run, WHY)
    with pytest.raises(KilledError):
        killed_at(bench, "committed").submit("bank-20261120.csv", new_run="it was the right file")

    waiting = extracts_to_submit(bench.context)

    assert [entry.key for entry in waiting] == ["bank/extracts/bank-20261120.csv"]


def test_the_history_tells_who_abandoned_it_when_and_why_with_card_numbers_masked(
    tmp_path: Path,
) -> None:
    bench, run = broken_off(tmp_path)

    abandon(bench.context.adapters, run, f"{WHY}, see {PUBLISHED[0]}")

    [told] = [one for one in history(bench.adapters, run) if one.what == "abandoned"]
    assert (told.by, told.facts) == ("tester:1", {"reason": f"{WHY}, see [masked]"})


def test_a_dry_run_writes_nothing_and_refuses_what_the_real_one_refuses(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)
    before = bench.snapshot()

    abandon(overlaid(bench.context).adapters, run, WHY)
    refused = []
    for reason, of in (("", run), (WHY, "bank-20261120-00000000"), (WHY, run)):
        with claimed(replace(bench, actor="another:2").adapters, work_on(bench.adapters, run)):
            try:
                abandon(overlaid(bench.context).adapters, of, reason)
            except CardlinkError as error:
                refused.append(type(error))

    assert refused == [NoReasonError, UnknownRunError, ClaimedError]
    assert before == bench.snapshot()
    assert not bench.stored(run).is_ended


def test_a_run_that_is_worked_on_is_not_abandoned(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)

    with (
        claimed(replace(bench, actor="another:2").adapters, work_on(bench.adapters, run)),
        pytest.raises(ClaimedError, match="another:2"),
    ):
        abandon(bench.context.adapters, run, WHY)

    assert bench.stored(run).end is None


def test_a_committed_run_is_cancelled_through_the_outbox_instead(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 5)
    run = manifest.run

    with pytest.raises(CommittedError, match=f"cardlink outbox cancel {run}"):
        abandon(bench.context.adapters, run, WHY)


@pytest.mark.parametrize("is_abandoned_first", [False, True])
def test_of_a_commit_and_an_abandonment_one_wins_and_the_other_says_so(
    tmp_path: Path, database: Database, *, is_abandoned_first: bool
) -> None:
    bench = replace(local_bench(tmp_path), database=database)
    extract = bench.drop(3)

    def give_up(*_: object) -> None:
        [run] = map(str, bench.runs.ids)
        if bench.stored(run).is_ended:
            return
        take_over(bench.adapters, run, WHY)
        abandon(bench.adapters, run, WHY)

    if is_abandoned_first:
        with pytest.raises(AbandonedError):
            submit(bench.context, Request(extract), give_up)
        return
    bench.submit(extract)
    with pytest.raises(CommittedError):
        abandon(bench.adapters, str(bench.runs.ids[0]), WHY)


def test_rows_of_an_abandoned_run_of_selected_rows_are_on_the_worklist() -> None:
    bench = memory_bench()
    run = planned(bench, name(), selection=ROWS)

    assert Step("worklist", BANK) == next_after_abandoning(bench.adapters, run)
