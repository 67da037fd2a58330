"""Retention on real nights: what is open, in use or not ours stays, however old it is, and a purge
says why.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.adapters.local import LocalStore
from flows.operations.purge import plan_purge, purge
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.runs.chunks import Move
from flows.runs.claim import Lease, work_on
from flows.runs.closings import add_closing
from flows.runs.journal import enter
from flows.runs.keys import keys_of, results
from flows.runs.outbox import move
from flows.runs.purges import purges
from flows.runs.single_links import row_attempt
from schemas.records import Closing, SingleAsked
from tests.builders import quick, share_of
from tests.copies import copy_folder
from tests.memory import KilledError
from tests.night import BANK, Bench, database_of, local_bench
from tests.operations.retention import (
    SOURCES,
    WEEK,
    YEAR,
    Killed,
    answered,
    cleaner,
    later,
    planned,
    sent,
)
from tests.planted import plant_committed
from tests.singles import recorded
from tests.storms import FailingStore


def _short(bench: Bench, run: str) -> None:
    """Answer every chunk, the first of them without its last row."""
    bench.answer()
    first = min(key for key in bench.snapshot() if key.startswith("bank/results/"))
    content = bench.content(first)
    bench.store.replace(first, [b"".join(content.splitlines(keepends=True)[:-1])])
    bench.ingest()


def _moved(what: Move) -> Callable[[Bench, str], None]:
    """Answer the others, after moving the second chunk."""

    def do(bench: Bench, run: str) -> None:
        bench.answer()
        _without(bench, 2)
        bench.ingest()
        move(bench.context.adapters, run, what, [2], "why")

    return do


def _without(bench: Bench, chunk: int) -> None:
    for key in [
        key
        for key in bench.snapshot()
        if key.startswith("bank/results/") and f"-{chunk:05d}-" in key
    ]:
        cleaner(bench).delete(key)


def _unreported(bench: Bench, run: str) -> None:
    bench.answer()
    bench.ingest()
    cleaner(bench).delete(keys_of(run).report("summary.json"))


def _newer_results(bench: Bench, run: str) -> None:
    bench.answer()
    bench.ingest()
    [first, *_] = bench.store.keys(results(BANK))
    bench.drop_result(bench.content(first.key), "again.csv")

    def kill(what: str, key: str) -> None:
        if what in ("create", "replace") and "/report/" in key:
            raise KilledError

    with suppress(KilledError):
        replace(bench, store=FailingStore(bench.store, kill)).ingest()


def _asked_for_one(bench: Bench, run: str) -> None:
    bench.answer()
    bench.ingest()
    asked = SingleAsked(
        row=7, cuid="c-7", last_4="4242", expiration="3012", at=bench.now(), by="tester"
    )
    recorded(bench.adapters, row_attempt(run, 7, 1), asked)


OPEN: dict[str, Callable[[Bench, str], None]] = {
    "3 chunks not uploaded": lambda bench, run: None,
    "1 chunk on hold": _moved("held"),
    "1 chunk without an answer": _moved("uploaded"),
    "1 row in break RESULT_SHORT": _short,
    "no report yet": _unreported,
    "results newer than its report": _newer_results,
    "1 single links with unknown outcome": _asked_for_one,
}


@pytest.mark.parametrize("why", quick(2, list(OPEN)))
def test_what_is_open_stays_however_old_it_is_and_says_why(tmp_path: Path, why: str) -> None:
    bench, run = sent(tmp_path)
    OPEN[why](bench, run)
    before = bench.snapshot()

    due = purge(later(bench, 10 * YEAR).context, cleaner(bench))

    assert ((), before) == (due.lots, bench.snapshot())
    assert {("chunks", True), ("ledger", True)} == {(one.part, why in one.why) for one in due.kept}


def test_a_cancelled_chunk_and_a_break_that_was_closed_are_done_with(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    _short(bench, run)
    closing = Closing(
        what="closed",
        name="RESULT_SHORT",
        place="chunk 1",
        rows=1,
        at=bench.now(),
        by="tester",
        reason="it moved",
    )
    enter(bench.adapters, BANK, "closed", lambda act: add_closing(act, run, closing, []), run=run)
    other, cancelled = sent(tmp_path / "other")
    _moved("cancelled")(other, cancelled)

    due = [purge(later(one, YEAR).context, cleaner(one)) for one in (bench, other)]

    assert [["chunks", "ledger"]] * 2 == [[lot.record.part for lot in one.lots] for one in due]
    assert [closing] == bench.stored(run).closed_breaks


@pytest.mark.slow
def test_a_ledger_stays_while_one_of_its_links_lives(tmp_path: Path) -> None:
    bench = later(local_bench(tmp_path, retention={"ledger_days": 63}), 0)
    bench.submit(bench.drop(20))
    bench.answer(expires=bench.now().date() + timedelta(days=200))
    bench.ingest()

    [kept] = plan_purge(later(bench, 100).context, cleaner(bench)).kept

    assert "it has links valid until" in kept.why
    assert ["chunks", "ledger"] == [
        one.record.part for one in plan_purge(later(bench, 300).context, cleaner(bench)).lots
    ]


def test_a_ledger_stays_while_a_link_lives_that_a_resubmission_of_its_rows_made(
    tmp_path: Path,
) -> None:
    bench = later(local_bench(tmp_path, retention={"ledger_days": 63}), 0)
    run = bench.submit(bench.drop(30)).manifest.run
    bench.answer(fail_share=0.5, seed=1, expires=bench.now().date() + timedelta(days=30))
    bench.ingest()
    late = later(bench, 20)
    resubmit(late.context, Request(run, RowSelection(errors=True), "again"))
    late.answer(expires=bench.now().date() + timedelta(days=200))
    late.ingest()

    due = plan_purge(later(bench, 100).context, cleaner(bench))

    why = {kept.run: kept.why for kept in due.kept if kept.part == "ledger"}
    assert "it has links valid until" in why[run]


def test_a_run_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)
    old = later(bench, YEAR)
    Lease.take(work_on(bench.adapters, run), "another", old.now(), timedelta(minutes=3))

    due = purge(old.context, cleaner(bench))

    assert ((), {"claimed by another"}) == (due.lots, {kept.why for kept in due.kept})


def test_a_run_that_was_taken_up_again_just_now_stays(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)
    old = later(bench, YEAR)

    class Resumed(Killed):
        def delete(self, key: str) -> None:
            if key.endswith("/runs/purge"):  # the first thing a purge does
                old.submit("bank-20261120.csv")
            super().delete(key)

    due = purge(old.context, Resumed(cleaner(bench), 9))

    assert () == due.lots
    keys = keys_of(run)
    left = [keys.chunk_name(number) for number in (1, 2, 3)]
    committed = [keys.chunk_name(number, epoch=2) for number in (1, 2, 3)]
    assert left + committed == [
        entry.key.rpartition("/")[2] for entry in bench.store.keys(keys.chunks)
    ]
    assert not purges(bench.adapters, BANK)


def test_one_run_that_cannot_be_read_keeps_no_other(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    damaged = plant_committed(bench.adapters, date(2025, 1, 1), "00000000")
    summary = keys_of(damaged).report("summary.json")
    bench.store.create(summary, b"{")
    bench.store.create(
        "bank/runs/bank-20250101-00000000/chunks/bank-20250101-00000000-00001.csv.pgp", b"x"
    )

    due = purge(later(bench, YEAR).context, cleaner(bench))

    assert [run, run] == [lot.record.run for lot in due.lots]
    assert {f"unreadable: {summary}"} == {kept.why for kept in due.kept}


def test_what_is_not_ours_is_named_and_left(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    strange = [
        f"bank/runs/{run}/{name}" for name in ("chunks/notes.txt", "report/copy of links.csv", "x")
    ]
    for key in strange:
        bench.store.create(key, b"somebody's")

    due = purge(later(bench, YEAR).context, cleaner(bench))

    assert tuple(sorted(strange)) == due.unknown
    assert all(bench.content(key) == b"somebody's" for key in strange)


MOVES: dict[str, Move] = {"held": "held", "uploaded": "uploaded", "cancelled": "cancelled"}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A night of three chunks with its results beside the store, not yet dropped."""
    folder = tmp_path_factory.mktemp("night")
    bench, run = sent(folder)
    bench.answer()
    (folder / "store" / "bank" / "results").rename(folder / "results")
    return folder, run


@settings(max_examples=share_of(0.32), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(
        st.sampled_from(["whole", "short", "none", "held", "uploaded", "cancelled"]),
        min_size=3,
        max_size=3,
    ),
    ingested=st.booleans(),
    days=st.sampled_from([0, 6, WEEK, 100, YEAR, 4 * YEAR]),
)
def test_nothing_that_is_open_young_or_a_source_is_ever_deleted(
    night: tuple[Path, str],
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[str],
    ingested: bool,
    days: float,
) -> None:
    folder, run = tmp_path_factory.mktemp("copy"), night[1]
    copy_folder(night[0], folder)
    bench = later(
        replace(
            local_bench(folder / "other", portal={"rows_per_chunk": 20}),
            store=LocalStore(folder / "store"),
            database=database_of(LocalStore(folder / "store")),
        ),
        0,
    )
    for number, state in enumerate(chunks, start=1):
        if state in MOVES:
            move(bench.context.adapters, run, MOVES[state], [number], "why")
        if state in ("whole", "short"):
            [result] = (night[0] / "results").glob(f"*-{number:05d}-*")
            lines = result.read_bytes().splitlines(keepends=True)
            bench.drop_result(b"".join(lines[:-1] if state == "short" else lines), result.name)
    if ingested:
        bench.ingest()
    before = bench.snapshot()

    purge(later(bench, days).context, cleaner(bench))

    after = bench.snapshot()
    gone = before.keys() - after.keys()
    done = all(state == "cancelled" or (state == "whole" and ingested) for state in chunks)
    parts = {key.split("/")[3] for key in gone}
    assert all(after[key] == before[key] for key in before if key.startswith(SOURCES))
    assert ("chunks" in parts) == (done and days >= WEEK)
    assert ("ledger" in parts) == (done and days >= YEAR)
    assert "events" not in parts
