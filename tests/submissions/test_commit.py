"""What commits a run, all of it at once, and what stands in its way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from flows import __version__
from flows.runs.adapters import Adapters
from flows.runs.claim import Lease, LeaseLostError, claimed, work_on
from flows.runs.commits import Commit, OvertakenError, read_commits
from flows.runs.errors import AbandonedError
from flows.runs.journal import Entry, entries
from flows.runs.keys import extracts, keys_of
from flows.submissions import commit
from flows.submissions.begun import abandon_run
from flows.submissions.build import Job, build_run
from flows.submissions.commit import commit_run, finish_commits
from flows.submissions.submit import Request, prepare
from schemas.database import CHUNK, JOURNAL
from schemas.manifest import Manifest
from tests.memory import DROPPED, KilledError, MemorySealer, MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import NOON, killed_at


def built(bench: MemoryBench, extract: str) -> tuple[Job, Manifest]:
    """Return the job of an extract's run and what would commit it."""
    job, _ = prepare(bench.context, Request(extract))
    return job, build_run(bench.context, job, MemorySealer()).manifest


def commit_under(bench: MemoryBench, job: Job, manifest: Manifest) -> bool:
    """Commit a run under a claim of its own, as a submit does."""
    with claimed(bench.adapters, work_on(bench.adapters, manifest.run)) as lease:
        return commit_run(bench.context, job, manifest, lease)


def entered(bench: MemoryBench, what: str) -> list[Entry]:
    return entries(bench.adapters, "bank", JOURNAL.c.what == what)


class Noting(MemoryStore):
    """Notes what is written, in order."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.objects = store.objects
        self.written: list[str] = []

    def create(self, key: str, data: bytes) -> bool:
        self.written.append(key)
        return super().create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self.written.append(key)
        super().replace(key, parts)


def test_the_lists_of_a_run_are_written_then_it_is_committed_with_all_that_says_so() -> None:
    bench = memory_bench(portal={"rows_per_chunk": 2})
    job, manifest = built(bench, bench.drop(5, bad=0.3))
    bench.store = store = Noting(bench.store)

    is_first = commit_under(bench, job, manifest)

    assert is_first
    assert [keys_of(manifest.run).report("rejects.csv")] == store.written
    [committed] = read_commits(bench.adapters, "bank")
    assert (1, manifest) == committed
    run = bench.stored(manifest.run)
    assert (NOON, DROPPED) == (run.committed_at, run.dropped_at)
    [entry] = entered(bench, "committed")
    assert (manifest.run, "tester:1") == (entry.run, entry.by)
    assert {"rows": manifest.counts.submitted, "release": __version__} == entry.facts
    with bench.database.snapshot() as connection:
        chunks = connection.execute(select(CHUNK.c.name).order_by(CHUNK.c.number)).scalars().all()
    assert [chunk.name for chunk in manifest.chunks] == chunks
    assert len(bench.report(manifest.run, "rejects.csv").splitlines()) == (
        1 + manifest.counts.rejected
    )


def test_a_commit_that_dies_within_it_has_not_happened() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))

    with pytest.raises(KilledError):
        commit_under(killed_at(bench, "committed"), job, manifest)

    assert ([], "planned") == (
        read_commits(bench.adapters, "bank"),
        bench.stored(manifest.run).as_planned().state,
    )


def test_who_has_lost_the_claim_commits_nothing() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))
    work = work_on(bench.adapters, manifest.run)
    slept = Lease.take(work, "slept", NOON, timedelta(minutes=1))
    Lease.take(work, "next", NOON + timedelta(hours=1), timedelta(minutes=1))

    with pytest.raises(LeaseLostError):
        commit_run(bench.context, job, manifest, slept)

    assert [] == read_commits(bench.adapters, "bank")


@pytest.mark.parametrize("full_portfolio", [False, True])
def test_the_lists_of_a_portfolio_have_nothing_that_was_suppressed(full_portfolio: bool) -> None:
    bench = memory_bench(full_portfolio=full_portfolio)
    first = bench.drop(5, "bank-20261119.csv")
    bench.submit(first)
    lines = [
        bench.content(extracts("bank") + name).splitlines(keepends=True)
        for name in (first, bench.drop(3, "other.csv", seed=8))
    ]
    job, manifest = built(bench, bench.drop_bytes(b"".join([*lines[0], *lines[1][1:]])))

    commit_under(bench, job, manifest)

    assert (3, 5) == (manifest.counts.submitted, manifest.counts.suppressed)
    key = keys_of(manifest.run).report("suppressed.csv")
    assert full_portfolio != (key in bench.snapshot())


def test_a_commit_that_a_concurrent_process_made_first_is_the_same_commit() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))

    assert [True, False] == [commit_under(bench, job, manifest) for _ in range(2)]
    assert 1 == len(entered(bench, "committed"))


def test_a_run_that_was_abandoned_first_is_not_committed() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))
    abandon_run(bench.adapters, manifest.run, "not wanted")

    with pytest.raises(AbandonedError):
        commit_under(bench, job, manifest)

    assert [] == entered(bench, "committed")


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(("seen_before", "is_refused"), [("suppress", True), ("send", False)])
def test_of_two_runs_planned_at_once_the_second_commits_no_card_of_the_first(
    seen_before: str, is_refused: bool, in_memory: bool
) -> None:
    bench = memory_bench(resend={"seen_before": seen_before})
    first, second = (built(bench, bench.drop(rows, f"bank-2026112{rows}.csv")) for rows in (5, 6))
    commit_under(bench, *first)

    try:
        if in_memory:
            commit_run(bench.context, *second)
        else:
            commit_under(bench, *second)
    except OvertakenError:
        refused = True
    else:
        refused = False

    assert is_refused == refused
    assert is_refused != bench.stored(second[1].run).is_ended


def test_a_run_that_is_committed_right_before_another_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    first, second = (built(bench, bench.drop(rows, f"bank-2026112{rows}.csv")) for rows in (5, 6))
    waiting = [first]

    def read_then_overtaken(adapters: Adapters, issuer: str, turn: int) -> list[Commit]:
        commits = read_commits(adapters, issuer, turn)
        while waiting:
            commit_under(bench, *waiting.pop())
        return commits

    monkeypatch.setattr(commit, "read_commits", read_then_overtaken)

    with pytest.raises(OvertakenError):
        commit_under(bench, *second)

    assert [first[1]] == [manifest for _, manifest in read_commits(bench.adapters, "bank")]


def test_a_run_that_is_committed_in_a_dry_run_writes_nothing_else() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))
    bench.store = store = Noting(bench.store)

    commit_run(bench.context, job, manifest)

    assert [] == store.written
    assert manifest == bench.manifest(manifest.run)


def nothing_sent() -> tuple[MemoryBench, Job, Manifest]:
    """Return a run of an extract whose cards were all sent before."""
    bench = memory_bench()
    first = bench.drop(3, "bank-20261119.csv")
    bench.submit(first)
    again = bench.drop_bytes(
        bench.content(extracts("bank") + first).replace(b"\n", b"\r\n"), "bank-20261120.csv"
    )
    return bench, *built(bench, again)


def test_a_run_that_sent_nothing_has_its_report_with_its_commit() -> None:
    bench, job, manifest = nothing_sent()

    commit_under(bench, job, manifest)

    assert 0 == manifest.counts.submitted
    assert 3 == json.loads(bench.report(manifest.run, "summary.json"))["rows"]["suppressed"]


def test_the_report_of_a_run_that_sent_nothing_is_written_by_the_next_command() -> None:
    bench, job, manifest = nothing_sent()
    with pytest.raises(KilledError):
        commit_under(killed_at(bench, "committed", late=True), job, manifest)
    lease = Lease.take(work_on(bench.adapters, manifest.run), "b", NOON, timedelta(hours=1))
    while_at_work = finish_commits(bench.context)
    lease.give_back(NOON)

    remarks = finish_commits(bench.context)

    assert () == while_at_work
    assert (f"run {manifest.run} is committed; its report is written now",) == remarks
    assert 3 == json.loads(bench.report(manifest.run, "summary.json"))["rows"]["suppressed"]
    assert () == finish_commits(bench.context)


def test_a_report_that_is_there_is_not_written_again() -> None:
    bench, job, manifest = nothing_sent()
    commit_under(bench, job, manifest)
    key = keys_of(manifest.run).report("summary.json")
    bench.store.replace(key, [b"{}"])
    other = replace(bench)

    finish_commits(other.context)

    assert b"{}" == bench.content(key)
    assert keys_of(manifest.run).report("summary.json") in bench.snapshot()


def test_a_run_that_sent_something_has_no_report_before_it_is_answered() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))

    commit_under(bench, job, manifest)

    assert keys_of(manifest.run).report("summary.json") not in bench.snapshot()
