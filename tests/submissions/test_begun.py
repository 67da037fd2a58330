"""An act that was begun is known, and whoever comes next finishes or ends it, and says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.errors import CardlinkError
from flows.operations.undecided_work import undecided
from flows.reports.work import lines
from flows.runs.claim import Lease, end
from flows.runs.context import IssuerContext
from flows.runs.errors import AbandonedError, LedgerPurgedError
from flows.runs.events import COMMITTED, DROP_TIME
from flows.runs.keys import extracts, keys_of
from flows.runs.store import Entry
from flows.submissions import commit
from flows.submissions.submit import Request, refuse_resend, settle
from schemas.manifest import Manifest
from tests.again import again, night
from tests.night import Bench, local_bench, submitted
from tests.storms import FailingStore


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


def killed(bench: Bench, part: str) -> Bench:
    """Return the bench whose process is killed where it creates an object of that name."""

    def at(operation: str, key: str) -> Exception | None:
        if operation == "create" and part in key:
            raise KilledError
        return None

    return replace(bench, store=FailingStore(bench.store, at))


def listed(bench: Bench) -> list[tuple[str, str, str]]:
    """Return what the worklist has beside the committed runs: the kind, the run, what to type."""
    return [
        (line.kind.name, line.run, str(line.first)) for line in lines(undecided(bench.context, ()))
    ]


def test_a_new_run_that_is_requested_again_is_the_one_that_was_made(tmp_path: Path) -> None:
    bench, extract, _ = submitted(tmp_path)
    new_run = "the portal lost the upload"
    second = bench.submit(extract, new_run=new_run).manifest.run

    refuse_resend(bench.context, Request(extract, new_run=new_run))
    done = bench.submit(extract, new_run=new_run)

    assert (True, second) == (done.already, done.manifest.run)


def test_a_commit_whose_event_is_missing_is_recorded_with_its_time_and_that_of_the_drop(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(10)
    with pytest.raises(KilledError):
        killed(bench, "-committed-").submit(extract)
    [run] = bench.runs.ids
    claim = Lease.take(bench.store, keys_of(str(run)).claims, "b", bench.now(), timedelta(hours=1))
    while_at_work = commit.finish_commits(bench.context)
    end(bench.store, claim.prefix, "b", bench.now())

    done = bench.submit(extract)

    assert () == while_at_work
    [event] = bench.stored(str(run)).events(COMMITTED)
    stored = {entry.key: entry.modified for entry in bench.store.keys("")}
    manifest = stored[keys_of(str(run)).manifest]
    assert (f"run {run} is committed; its history says so now",) == done.remarks
    assert (manifest, stored[extracts("bank") + extract]) == (
        datetime.fromisoformat(event["at"]),
        datetime.fromisoformat(event[DROP_TIME]),
    )
    assert () == bench.submit(extract).remarks


@pytest.mark.parametrize(
    "first",
    [
        AbandonedError(run="r", actor="anna", reason="why"),
        LedgerPurgedError(run="r", date="2026-11-20", setting="ledger_days = 1"),
    ],
)
def test_a_begun_commit_that_somebody_else_ended_first_keeps_no_other_from_being_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: CardlinkError
) -> None:
    bench = local_bench(tmp_path)
    runs = [bench.submit(bench.drop(5, f"bank-2026112{day}.csv", seed=day)) for day in range(2)]
    for run in runs:
        bench.store.delete(keys_of(run.manifest.run).manifest)  # type: ignore[attr-defined]  # a directory, which deletes too
    write = commit._write_manifest

    def write_last(context: IssuerContext, manifest: Manifest, extract: Entry | None) -> bool:
        if manifest == runs[0].manifest:
            raise first
        return write(context, manifest, extract)

    monkeypatch.setattr(commit, "_write_manifest", write_last)

    remarks = commit.finish_commits(bench.context)

    assert [runs[1].manifest.run in remark for remark in remarks] == [True]
    assert [False, True] == [bench.stored(run.manifest.run).is_ended for run in runs]


def test_a_commit_says_when_its_extract_was_dropped(tmp_path: Path) -> None:
    bench, extract, done = submitted(tmp_path)

    [event] = bench.stored(done.run).events(COMMITTED)

    stored = {entry.key: entry.modified for entry in bench.store.keys("")}
    assert (10, stored[extracts("bank") + extract]) == (
        event["rows"],
        datetime.fromisoformat(event[DROP_TIME]),
    )


@pytest.mark.parametrize("part", ["/seals/", "/manifest.json"])
def test_a_submit_that_died_has_a_line_whose_first_step_finishes_it(
    tmp_path: Path, part: str
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(10)
    with pytest.raises(KilledError):
        killed(bench, part).submit(extract)
    [run] = bench.runs.ids

    before = listed(bench)
    bench.submit(extract)

    [(kind, of, step)] = before
    assert ("runs to finish", str(run)) == (kind, of)
    assert "cardlink submit bank" in step
    assert [] == listed(bench)


def test_a_run_registered_and_left_is_committed_although_there_is_nothing_to_submit(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    with pytest.raises(KilledError):
        killed(bench, "/manifest.json").submit(bench.drop(10))
    [run] = bench.runs.ids

    remarks = settle(bench.context)

    assert (f"the commit of run {run} had been begun, and is finished now",) == remarks
    assert () == settle(bench.context)


def test_a_resubmission_that_died_is_abandoned_by_the_next_command_that_says_so(
    tmp_path: Path,
) -> None:
    bench, run = night(tmp_path)
    with pytest.raises(KilledError):
        again(killed(bench, "/commits/"), run)
    left = str(bench.runs.ids[-1])

    before = listed(bench)
    done = bench.submit(bench.drop(3, "bank-20261121.csv", seed=5))
    after = listed(bench)
    sent = again(bench, run)

    assert [
        ("runs left behind", left, f"cardlink mend abandon {left} --reason WHY --dry-run")
    ] == before
    assert [f"run {left} had been begun and is abandoned"] == [
        remark.partition(":")[0] for remark in done.remarks
    ]
    assert [] == after
    assert "abandoned" == bench.stored(left).status.state
    assert left != sent.manifest.run


def test_what_a_process_works_on_is_not_begun_and_left(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    working = replace(bench, now=lambda: datetime.now(UTC))
    with pytest.raises(KilledError):  # it has planned its run just now, and claims it next
        again(killed(working, "/claims/"), run)

    assert [] == listed(working)
    assert () == settle(working.context)
