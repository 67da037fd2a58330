"""A run ended before its commit: for good, by one winner, and said so by everybody who meets it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from flows.errors import CardlinkError
from flows.operations.alerts import current_alerts
from flows.operations.history import history
from flows.operations.remediation import (
    CommittedError,
    abandon,
    next_after_abandoning,
    take_over,
)
from flows.runs.adapters import NoReasonError
from flows.runs.claim import ClaimedError, claimed
from flows.runs.context import overlaid
from flows.runs.errors import AbandonedError, UnknownRunError
from flows.runs.keys import keys_of
from flows.steps import Step
from flows.submissions.extract_states import extracts_to_submit
from schemas.expressions import PUBLISHED
from schemas.manifest import Manifest
from schemas.records import Abandoned
from tests.memory_bench import memory_bench
from tests.night import BANK, Bench, local_bench, made_once, submitted
from tests.storms import FailingStore
from tests.submissions.test_begun_runs import ROWS, name, planned

WHY = "the issuer sent the wrong file"


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


@made_once
def broken_off(folder: Path) -> tuple[Bench, str]:
    """Return a bench with a run that died before its manifest and gave its claim back."""
    bench = local_bench(folder, portal={"rows_per_chunk": 10})
    extract = bench.drop(30)

    def at_the_manifest(what: str, key: str) -> Exception | None:
        if what == "create" and key.endswith("manifest.json"):
            raise KilledError
        return None

    with pytest.raises(KilledError):
        replace(bench, store=FailingStore(bench.store, at_the_manifest)).submit(extract)
    [run] = bench.runs.ids
    return bench, str(run)


def test_an_abandoned_run_is_never_committed_and_its_extract_waits_no_more(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)

    abandon(bench.context.adapters, run, WHY)

    assert bench.stored(run).manifest is None
    assert extracts_to_submit(bench.context) == []
    assert [(one.run, one.state) for one in bench.runs.statuses()] == [(run, "abandoned")]
    assert [alert for alert in current_alerts(bench.context) if alert.subject == run] == []


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
    failing = FailingStore(
        bench.store,
        lambda what, key: (
            KeyError(key) if (what, key[-13:]) == ("create", "manifest.json") else None
        ),
    )
    with pytest.raises(KeyError):
        replace(bench, store=failing).submit("bank-20261120.csv", new_run="it was the right file")

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
        with claimed(replace(bench, actor="another:2").context.adapters, keys_of(run).claims):
            try:
                abandon(overlaid(bench.context).adapters, of, reason)
            except CardlinkError as error:
                refused.append(type(error))

    assert refused == [NoReasonError, UnknownRunError, ClaimedError]
    assert {key: data for key, data in bench.snapshot().items() if "/claims/" not in key} == {
        key: data for key, data in before.items() if "/claims/" not in key
    }


def test_a_run_that_is_worked_on_is_not_abandoned(tmp_path: Path) -> None:
    bench, run = broken_off(tmp_path)

    with (
        claimed(replace(bench, actor="another:2").context.adapters, keys_of(run).claims),
        pytest.raises(ClaimedError, match="another:2"),
    ):
        abandon(bench.context.adapters, run, WHY)

    assert bench.stored(run).end is None


def test_a_committed_run_is_cancelled_through_the_outbox_instead(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 5)
    run = manifest.run

    with pytest.raises(CommittedError, match=f"cardlink outbox cancel {run}"):
        abandon(bench.context.adapters, run, WHY)


def test_of_a_commit_and_an_abandonment_at_the_same_moment_one_wins_and_the_other_says_so(
    tmp_path: Path,
) -> None:
    wins: list[type] = []
    for turn in range(6):
        bench = local_bench(tmp_path / str(turn))
        told = race(bench, bench.drop(3), wait_for_abandonment=turn % 2 == 0)

        [run] = bench.runs.ids
        end = bench.stored(str(run)).end
        wins.append(type(end))
        committed = isinstance(end, Manifest)
        assert told == (
            {"committed", "CommittedError"} if committed else {"abandoned", "AbandonedError"}
        )

    assert set(wins) == {Manifest, Abandoned}


def race(bench: Bench, extract: str, *, wait_for_abandonment: bool) -> set[str]:
    """Let a submit that lost its claim and an abandonment meet at the manifest's key; return what
    each came to.
    """
    meet, told = Barrier(2, timeout=300), set()

    @dataclass
    class Meeting(FailingStore):
        first: bool = True

        def create(self, key: str, data: bytes) -> bool:
            if not key.endswith("manifest.json"):
                return super().create(key, data)
            meet.wait()
            if self.first:
                done = super().create(key, data)
                meet.wait()
                return done
            meet.wait()
            return super().create(key, data)

    def submit() -> None:
        try:
            replace(
                bench, store=Meeting(bench.store, lambda *_: None, not wait_for_abandonment)
            ).submit(extract)
            told.add("committed")
        except CardlinkError as error:
            told.add(type(error).__name__)

    def give_up() -> None:
        operator = replace(
            bench,
            actor="operator:9",
            store=Meeting(bench.store, lambda *_: None, wait_for_abandonment),
        )
        while not (runs := bench.runs.ids) or not any(
            bench.store.keys(keys_of(str(runs[0])).claims)
        ):
            pass
        try:
            take_over(operator.context.adapters, str(runs[0]), WHY)
            abandon(operator.context.adapters, str(runs[0]), WHY)
            told.add("abandoned")
        except CardlinkError as error:
            told.add(type(error).__name__)

    threads = [Thread(target=work) for work in (submit, give_up)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_rows_of_an_abandoned_run_of_selected_rows_are_on_the_worklist() -> None:
    bench = memory_bench()
    run = planned(bench, name(), selection=ROWS)

    assert Step("worklist", BANK) == next_after_abandoning(bench.adapters, run)
