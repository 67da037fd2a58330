"""Rerun is the recovery: the same run for the same extract, found without a listing, and never sent
twice.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.runs.claim import OLD, ClaimedError, Lease, LeaseLostError, claimed, clean_up, work_on
from flows.runs.store import ObjectMissingError, StoreBusyError
from flows.submissions.publisher import PartialRunError
from tests.memory import KilledError
from tests.night import NOON, Bench, killed_at, local_bench, submitted, uncommit
from tests.storms import FailingStore, LateStore
from tests.submissions.test_publisher import failing

RUN = "bank-20261120-00000000"


def test_a_store_that_lists_nothing_new_has_no_second_run_and_no_foreign_chunks(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 2})
    extract = bench.drop(80)
    late = replace(bench, store=LateStore(bench.store))
    with pytest.raises(PartialRunError):
        failing(late, "create", "-00035.csv.pgp", StoreBusyError(place="x", code="503")).submit(
            extract
        )

    done = late.submit(extract)
    again = late.submit(extract)

    assert (False, True) == (done.already, again.already)
    assert [chunk.number for chunk in done.manifest.chunks] == list(range(1, 41))
    assert 1 == len(bench.runs.ids)


def test_another_business_date_for_a_committed_run_changes_nothing_and_is_named(
    tmp_path: Path,
) -> None:
    bench, extract, first = submitted(tmp_path, 5)

    again = bench.submit(extract, business_date=date(2026, 11, 21))

    assert (True, first) == (again.already, again.manifest)
    assert ("changed since that run: the business date",) == again.remarks


def test_another_business_date_for_a_run_that_was_never_committed_is_taken(tmp_path: Path) -> None:
    bench, extract, manifest = submitted(tmp_path, 5)
    uncommit(tmp_path, manifest.run)

    again = bench.submit(extract, business_date=date(2026, 11, 21))

    assert date(2026, 11, 21) == again.manifest.as_of


def test_the_same_reason_for_a_new_run_is_the_same_new_run(tmp_path: Path) -> None:
    bench, extract, _ = submitted(tmp_path, 5)
    first = bench.submit(extract, new_run="the portal lost it")

    again = bench.submit(extract, new_run="the portal lost it")
    other = bench.submit(extract, new_run="the portal lost it again")

    assert (first.manifest.run, True) == (again.manifest.run, again.already)
    assert other.manifest.run.endswith("-r3")


def test_a_new_run_that_died_is_gone_on_with_by_the_same_command(tmp_path: Path) -> None:
    bench, extract, _ = submitted(tmp_path, 5, resend={"seen_before": "send"})
    with pytest.raises(PartialRunError):
        failing(bench, "create", ".csv.pgp", StoreBusyError(place="x", code="503")).submit(
            extract, new_run="lost"
        )

    done = bench.submit(extract, new_run="lost")

    assert (False, True) == (done.already, done.manifest.run.endswith("-r2"))


def test_a_run_ends_where_its_claim_is_lost_and_commits_nothing(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    late = replace(bench, now=lambda: NOON + timedelta(hours=1), actor="another:2")

    with pytest.raises(LeaseLostError):
        work_while_another_takes_over(bench, late)

    with (
        pytest.raises(ClaimedError, match="another:2"),
        claimed(late.adapters, work_on(late.adapters, RUN)),
    ):
        pass


def work_while_another_takes_over(bench: Bench, other: Bench) -> None:
    with claimed(bench.adapters, work_on(bench.adapters, RUN), beat=0.01) as claim:
        Lease.take(work_on(other.adapters, RUN), other.actor, other.now(), timedelta(minutes=3))
        while True:  # block after block
            claim.check()


def test_a_submit_that_was_stopped_right_after_its_commit_has_left_its_lists(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(40, bad=0.2)

    with pytest.raises(KilledError):
        killed_at(bench, "committed", late=True).submit(extract)

    assert bench.submit(extract).already
    assert [key for key in bench.snapshot() if key.endswith("report/rejects.csv")]


def test_a_clock_set_back_while_a_run_works_and_after_it_died_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(5)
    ahead = replace(bench, now=lambda: NOON + timedelta(days=30), actor="dead:1")
    with pytest.raises(KilledError):
        killed_at(bench, "planned", late=True).submit(extract)
    [run] = bench.runs.ids
    Lease.take(work_on(bench.adapters, str(run)), "dead:1", ahead.now(), timedelta(minutes=3))

    done = bench.submit(extract)

    assert not done.already


def test_files_a_killed_writer_left_are_swept_and_young_ones_are_not(tmp_path: Path) -> None:
    bench = Bench(LocalStore(tmp_path))
    bench.store.create("bank/runs/r/chunks/1", b"whole")
    left = tmp_path / "bank/runs/r/chunks/.tmp-0123456789abcdef"
    left.write_bytes(b"half")
    written = left.stat().st_mtime

    def at(seconds: float) -> Bench:
        moment = NOON + timedelta(seconds=written + seconds - NOON.timestamp())
        return replace(bench, now=lambda: moment)

    young = clean_up(at(60).context.adapters, "bank/runs/r/")
    old = clean_up(at(OLD.total_seconds() + 1).context.adapters, "bank/runs/r/")

    assert (0, 1, False) == (young, old, left.exists())
    assert ["bank/runs/r/chunks/1"] == [entry.key for entry in bench.store.keys("")]


def test_a_store_that_may_not_be_swept_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(FailingStore(LocalStore(tmp_path), lambda *_: ObjectMissingError(key="x")))

    assert 0 == clean_up(bench.context.adapters, "bank/")
