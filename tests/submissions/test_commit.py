"""What commits a run, in which order, and who finishes a commit whose process died."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from flows import __version__
from flows.errors import CardlinkError
from flows.runs.claim import Lease, end
from flows.runs.commits import OvertakenError, registered_runs
from flows.runs.context import IssuerContext
from flows.runs.errors import AbandonedError, LedgerPurgedError
from flows.runs.events import COMMITTED, DROP_TIME
from flows.runs.identity import canonical
from flows.runs.keys import commits, extracts, keys_of, link
from flows.runs.store import ConflictError, Entry
from flows.submissions import commit
from flows.submissions.begun import create_abandoned
from flows.submissions.build import Job, build_run
from flows.submissions.commit import commit_in_memory, commit_run, finish_commits
from flows.submissions.submit import Request, prepare, settle
from schemas.manifest import Manifest
from tests.memory import DROPPED, KilledError, MemorySealer, MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import NOON


def built(bench: MemoryBench, extract: str) -> tuple[Job, Manifest]:
    """Return the job of an extract's run and what would commit it."""
    job, _ = prepare(bench.context, Request(extract))
    return job, build_run(bench.context, job, MemorySealer()).manifest


def dead(part: str, rows: int = 5) -> tuple[MemoryBench, Manifest]:
    """Return a bench whose process died before it wrote an object of that name."""
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(rows))
    bench.store.die_at(part, 1, late=False)
    with pytest.raises(KilledError):
        commit_run(bench.context, job, manifest)
    bench.store.revive()
    return bench, manifest


def committed_events(bench: MemoryBench, run: str) -> list[dict[str, Any]]:
    return [dict(event) for event in bench.stored(run).events(COMMITTED)]


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


def test_a_run_is_registered_then_its_lists_its_manifest_and_its_event_are_written() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5, bad=0.3))
    bench.store = store = Noting(bench.store)

    is_first = commit_run(bench.context, job, manifest)

    keys = keys_of(manifest.run)
    *written, event = store.written
    assert is_first
    assert [link(commits("bank"), 1), keys.report("rejects.csv"), keys.manifest] == written
    assert event.startswith(f"{keys.events}20261120T120000000000-committed-")
    assert [manifest] == list(registered_runs(bench.store, "bank"))
    assert manifest == bench.manifest(manifest.run)
    facts = {
        "what": COMMITTED,
        "at": NOON.isoformat(),
        "by": "tester:1",
        "rows": manifest.counts.submitted,
        "release": __version__,
        DROP_TIME: DROPPED.isoformat(),
    }
    [told] = committed_events(bench, manifest.run)
    assert facts == {name: told[name] for name in facts}
    assert len(bench.report(manifest.run, "rejects.csv").splitlines()) == (
        1 + manifest.counts.rejected
    )


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

    commit_run(bench.context, job, manifest)

    assert (3, 5) == (manifest.counts.submitted, manifest.counts.suppressed)
    key = keys_of(manifest.run).report("suppressed.csv")
    assert full_portfolio != (key in bench.snapshot())


def test_a_commit_that_a_concurrent_process_made_first_is_the_same_commit() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))

    assert [True, False] == [commit_run(bench.context, job, manifest) for _ in range(2)]
    assert 1 == len(committed_events(bench, manifest.run))


def test_a_run_that_was_abandoned_first_is_not_committed() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))
    create_abandoned(bench.context.adapters, bench.stored(manifest.run), "not wanted")

    with pytest.raises(AbandonedError):
        commit_run(bench.context, job, manifest)

    assert [] == committed_events(bench, manifest.run)


def test_something_else_at_the_key_of_a_manifest_is_told() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))
    bench.store.create(keys_of(manifest.run).manifest, canonical({"run": "another"}))

    with pytest.raises(ConflictError):
        commit_run(bench.context, job, manifest)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(("seen_before", "is_refused"), [("suppress", True), ("send", False)])
def test_of_two_runs_planned_at_once_the_second_commits_no_card_of_the_first(
    seen_before: str, is_refused: bool, in_memory: bool
) -> None:
    bench = memory_bench(resend={"seen_before": seen_before})
    first, second = (built(bench, bench.drop(rows, f"bank-2026112{rows}.csv")) for rows in (5, 6))
    commit_run(bench.context, *first)

    try:
        if in_memory:
            commit_in_memory(bench.context, *second)
        else:
            commit_run(bench.context, *second)
    except OvertakenError:
        refused = True
    else:
        refused = False

    assert is_refused == refused
    assert is_refused != bench.stored(second[1].run).is_ended


def test_a_run_that_is_committed_in_memory_is_registered_and_has_its_manifest_only() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))
    bench.store = store = Noting(bench.store)

    commit_in_memory(bench.context, job, manifest)

    assert [link(commits("bank"), 1), keys_of(manifest.run).manifest] == store.written
    assert manifest == bench.manifest(manifest.run)


def test_a_registered_run_without_a_manifest_is_committed_by_the_next_command() -> None:
    bench, manifest = dead("/manifest.json")

    remarks = settle(bench.context)

    told = f"the commit of run {manifest.run} had been begun, and is finished now"
    assert (told,) == remarks
    assert manifest == bench.manifest(manifest.run)
    [event] = committed_events(bench, manifest.run)
    assert (NOON.isoformat(), DROPPED.isoformat()) == (event["at"], event[DROP_TIME])
    assert () == settle(bench.context)


@pytest.mark.parametrize("change", ["written again", "removed"])
def test_a_begun_commit_says_when_its_extract_was_dropped_only_while_that_is_there(
    change: str,
) -> None:
    bench, manifest = dead("/manifest.json")
    if change == "removed":
        del bench.store.objects[manifest.source.key]
    else:
        bench.drop(6)

    assert 1 == len(finish_commits(bench.context))

    [event] = committed_events(bench, manifest.run)
    assert DROP_TIME not in event


def test_a_commit_whose_event_is_missing_is_recorded_with_its_time_and_that_of_the_drop() -> None:
    bench, manifest = dead("-committed-")
    claims = keys_of(manifest.run).claims
    Lease.take(bench.store, claims, "b", NOON, timedelta(hours=1))
    while_at_work = finish_commits(bench.context)
    end(bench.store, claims, "b", NOON)
    key = keys_of(manifest.run).manifest
    entry, data = bench.store.objects[key]
    moment = DROPPED + timedelta(hours=1)
    bench.store.objects[key] = entry._replace(modified=moment), data

    remarks = finish_commits(bench.context)

    [event] = committed_events(bench, manifest.run)
    assert ((), f"run {manifest.run} is committed; its history says so now") == (
        while_at_work,
        *remarks,
    )
    assert (moment, DROPPED) == (
        datetime.fromisoformat(event["at"]),
        datetime.fromisoformat(event[DROP_TIME]),
    )
    assert () == finish_commits(bench.context)


@pytest.mark.parametrize(
    "first",
    [
        None,
        AbandonedError(run="r", actor="anna", reason="why"),
        LedgerPurgedError(run="r", date="2026-11-20", setting="ledger_days = 1"),
    ],
)
def test_a_begun_commit_that_somebody_else_ended_first_keeps_no_other_from_being_finished(
    monkeypatch: pytest.MonkeyPatch, first: CardlinkError | None
) -> None:
    bench = memory_bench()
    runs = [
        bench.submit(bench.drop(5, f"bank-2026112{day}.csv", seed=day)).manifest for day in range(2)
    ]
    for run in runs:
        del bench.store.objects[keys_of(run.run).manifest]
    write = commit._write_manifest

    def write_last(context: IssuerContext, manifest: Manifest, extract: Entry | None) -> bool:
        if manifest == runs[0] and first is not None:
            raise first
        return write(context, manifest, extract)

    monkeypatch.setattr(commit, "_write_manifest", write_last)

    remarks = finish_commits(bench.context)

    finished = [run.run for run in runs if first is None or run != runs[0]]
    assert [f"the commit of run {run} had" for run in finished] == [
        remark.partition(" been begun")[0] for remark in remarks
    ]
    assert [first is None, True] == [bench.stored(run.run).is_ended for run in runs]


def test_an_abandoned_run_lacks_nothing() -> None:
    bench, manifest = dead("/manifest.json")
    create_abandoned(bench.context.adapters, bench.stored(manifest.run), "not wanted")

    assert () == finish_commits(bench.context)
    assert [] == committed_events(bench, manifest.run)


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

    commit_run(bench.context, job, manifest)

    assert 0 == manifest.counts.submitted
    assert 3 == json.loads(bench.report(manifest.run, "summary.json"))["rows"]["suppressed"]


@pytest.mark.parametrize("part", ["report/summary.json", "/manifest.json"])
def test_the_report_of_a_run_that_sent_nothing_is_written_by_the_next_command(part: str) -> None:
    bench, job, manifest = nothing_sent()
    bench.store.die_at(part, 1, late=False)
    with pytest.raises(KilledError):
        commit_run(bench.context, job, manifest)
    bench.store.revive()

    remarks = finish_commits(bench.context)

    assert (part == "/manifest.json") == bool(remarks)
    assert 3 == json.loads(bench.report(manifest.run, "summary.json"))["rows"]["suppressed"]


def test_a_report_that_is_there_is_not_written_again() -> None:
    bench, job, manifest = nothing_sent()
    commit_run(bench.context, job, manifest)
    key = keys_of(manifest.run).report("summary.json")
    bench.store.replace(key, [b"{}"])
    other = replace(bench)

    finish_commits(other.context)

    assert b"{}" == bench.content(key)
    assert keys_of(manifest.run).report("summary.json") in bench.snapshot()


def test_a_run_that_sent_something_has_no_report_before_it_is_answered() -> None:
    bench = memory_bench()
    job, manifest = built(bench, bench.drop(5))

    commit_run(bench.context, job, manifest)

    assert keys_of(manifest.run).report("summary.json") not in bench.snapshot()
