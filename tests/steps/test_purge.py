"""Retention on real nights: what is due goes, what is open stays, and what went stays provable."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.core.life.wanted import Wanted
from flows.core.ports import Entry
from flows.core.report.across import CLEAR
from flows.core.run.lease import Lease
from flows.core.run.outbox import Move
from flows.edge.local import LocalStore
from flows.steps.again.attempts import survey
from flows.steps.again.resubmit import Request, resubmit
from flows.steps.answers.reconcile import reconcile_runs
from flows.steps.answers.report import rebuild
from flows.steps.beyond.singles import answer_key
from flows.steps.mend.abandon import abandon
from flows.steps.night.submit import Submitted
from flows.steps.operate.history import history
from flows.steps.operate.metrics import measure
from flows.steps.operate.outbox import move, outboxes
from flows.steps.operate.purge import Due, look, purge
from flows.steps.operate.purged import LedgerPurgedError, read_purged, without_ledger
from flows.steps.operate.status import standing
from flows.steps.operate.trace import trace
from flows.steps.operate.watch import watch
from flows.steps.records import add_record
from flows.steps.runs import AbandonedError, keys_of
from schemas.mended import Closing
from tests.night import BANK, Bench, local_bench

WEEK, YEAR = 8, 400  # days after which chunks, and ledgers, are due
SOURCES = ("bank/extracts/", "bank/results/")


def later(bench: Bench, days: float) -> Bench:
    """Return the bench so many days after now."""
    return replace(bench, now=lambda: datetime.now(UTC) + timedelta(days=days))


def sweeper(bench: Bench) -> LocalStore:
    assert isinstance(bench.store, LocalStore)
    return bench.store


def sent(folder: Path, rows: int = 50) -> tuple[Bench, str]:
    """Return a bench with one committed run of chunks of 20 rows."""
    bench = later(local_bench(folder, portal={"rows_per_chunk": 20}), 0)
    return bench, bench.submit(bench.drop(rows)).manifest.run


def answered(folder: Path, rows: int = 50) -> tuple[Bench, str]:
    """Return a bench with one run of which everything is answered."""
    bench, run = sent(folder, rows)
    bench.answer()
    bench.ingest()
    return bench, run


def planned(folder: Path) -> tuple[Bench, str]:
    """Return a bench with a run that was planned, published in part, and never committed."""
    bench, run = sent(folder)
    (folder / "store" / keys_of(run).manifest).unlink()
    shutil.rmtree(folder / "store" / "bank" / "commits")
    return bench, run


def deleted(due: Due) -> set[str]:
    return {entry.key for entry in (*(one for lot in due.lots for one in lot.entries), *due.temporary)}


def test_sealed_chunks_go_a_week_after_the_last_answer_and_not_before(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    before = bench.snapshot()

    young = purge(later(bench, 6).edges, sweeper(bench))
    kept = bench.snapshot()
    due = purge(later(bench, WEEK).edges, sweeper(bench))

    assert ((), before.keys()) == (young.lots, kept.keys())
    gone = before.keys() - bench.snapshot().keys()
    assert gone == {key for key in before if key.startswith(f"bank/runs/{run}/chunks/")} == deleted(due)
    assert bench.snapshot().keys() - before.keys() == {f"bank/purged/{run}/chunks.json"}


def test_after_the_ledger_only_what_proves_the_run_is_left_and_no_source_is_touched(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    before = bench.snapshot()

    purge(later(bench, YEAR).edges, sweeper(bench))

    after = bench.snapshot()
    left = {key.removeprefix(f"bank/runs/{run}/").split("/")[0] for key in after if key.startswith("bank/runs/")}
    assert left == {"plan.json", "manifest.json", "events", "claims"}
    assert [key for key in after if "/claims/" in key] == [max(key for key in before if "/claims/" in key)]
    assert {key: after[key] for key in after if key in before} == {key: before[key] for key in after if key in before}
    assert all(key in after for key in before if key.startswith(SOURCES))


def test_a_purge_leaves_a_record_of_what_when_by_whom_and_by_which_setting(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    old = later(bench, YEAR)
    sizes = {entry.key: entry.size for entry in bench.store.keys(keys_of(run).chunks)}

    purge(old.edges, sweeper(bench))

    chunks, ledger = (read_purged(bench.store, keys_of(run), part) for part in ("chunks", "ledger"))
    assert chunks
    assert ledger
    assert (run, {"chunks": 3}, sum(sizes.values())) == (chunks.run, chunks.objects, chunks.bytes)
    assert ("tester:1", "chunks_days = 7", "ledger_days = 395") == (chunks.by, chunks.setting, ledger.setting)
    assert ("balanced", 50) == (ledger.verdict, ledger.rows["linked"])
    assert {"ledger", "outcomes", "report", "report/rows", "seals"} <= ledger.objects.keys()


@pytest.mark.parametrize("days", [0, WEEK, YEAR])
def test_a_dry_run_changes_nothing_and_names_exactly_what_a_real_one_deletes(tmp_path: Path, days: float) -> None:
    bench, _ = answered(tmp_path)
    before, old = bench.snapshot(), later(bench, days)

    dry = look(old.edges, sweeper(bench))
    untouched = bench.snapshot()
    purge(old.edges, sweeper(bench))

    assert before == untouched
    assert deleted(dry) == before.keys() - bench.snapshot().keys()


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
        move(bench.edges.edges, run, what, [2], "why")

    return do


def _without(bench: Bench, chunk: int) -> None:
    for key in [key for key in bench.snapshot() if key.startswith("bank/results/") and f"-{chunk:05d}-" in key]:
        sweeper(bench).delete(key)


def _unreported(bench: Bench, run: str) -> None:
    bench.answer()
    bench.ingest()
    sweeper(bench).delete(keys_of(run).report("summary.json"))


def _newer_results(bench: Bench, run: str) -> None:
    bench.answer()
    bench.ingest()
    [first, *_] = [entry.key for entry in bench.store.keys(keys_of(run).outcomes)]
    bench.store.replace(first, [bench.content(first)])


def _asked_for_one(bench: Bench, run: str) -> None:
    bench.answer()
    bench.ingest()
    bench.store.create(f"{keys_of(run).base}single/7-1.json", b"{}")


OPEN: dict[str, Callable[[Bench, str], None]] = {
    "3 chunks not uploaded": lambda bench, run: None,
    "1 chunks held": _moved("held"),
    "1 chunks without an answer": _moved("uploaded"),
    "1 rows in break RESULT_SHORT": _short,
    "no report yet": _unreported,
    "results newer than its report": _newer_results,
    "1 single links of which nobody knows whether they were made": _asked_for_one,
}


@pytest.mark.parametrize("why", OPEN)
def test_what_is_open_stays_however_old_it_is_and_says_why(tmp_path: Path, why: str) -> None:
    bench, run = sent(tmp_path)
    OPEN[why](bench, run)
    before = bench.snapshot()

    due = purge(later(bench, 10 * YEAR).edges, sweeper(bench))

    assert ((), before) == (due.lots, bench.snapshot())
    assert {("chunks", True), ("ledger", True)} == {(one.part, why in one.why) for one in due.kept}


def test_a_cancelled_chunk_and_a_break_that_was_closed_are_done_with(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    _short(bench, run)
    closing = Closing(
        what="closed", name="RESULT_SHORT", place="chunk 1", rows=1, at=bench.now(), by="tester", reason="it moved"
    )
    add_record(bench.store, keys_of(run).closed, closing)
    other, cancelled = sent(tmp_path / "other")
    _moved("cancelled")(other, cancelled)

    due = [purge(later(one, YEAR).edges, sweeper(one)) for one in (bench, other)]

    assert [["chunks", "ledger"]] * 2 == [[lot.record.part for lot in one.lots] for one in due]
    assert "closed" in {key.split("/")[3] for key in bench.snapshot() if key.startswith("bank/runs/")}


def test_a_run_cancelled_as_a_whole_needs_no_report_to_go(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    move(bench.edges.edges, run, "cancelled", reason="the issuer sent another")

    purge(later(bench, YEAR).edges, sweeper(bench))

    found = standing(bench.store, keys_of(run).run)
    assert ("cancelled (purged)", 50, 50) == (found.state, found.read, found.awaiting)


def test_a_ledger_stays_while_one_of_its_links_lives(tmp_path: Path) -> None:
    bench = later(local_bench(tmp_path, retention={"ledger_days": 63}), 0)
    bench.submit(bench.drop(20))
    bench.answer(expires=bench.now().date() + timedelta(days=200))
    bench.ingest()

    [kept] = look(later(bench, 100).edges, sweeper(bench)).kept

    assert "it has links that live until" in kept.why
    assert ["chunks", "ledger"] == [one.record.part for one in look(later(bench, 300).edges, sweeper(bench)).lots]


def test_a_ledger_stays_while_a_link_lives_that_a_resubmission_of_its_rows_made(tmp_path: Path) -> None:
    bench = later(local_bench(tmp_path, retention={"ledger_days": 63}), 0)
    run = bench.submit(bench.drop(30)).manifest.run
    bench.answer(fail_share=0.5, seed=1, expires=bench.now().date() + timedelta(days=30))
    bench.ingest()
    late = later(bench, 20)
    resubmit(late.edges, Request(run, Wanted(errors=True), "again"))
    late.answer(expires=bench.now().date() + timedelta(days=200))
    late.ingest()

    due = look(later(bench, 100).edges, sweeper(bench))

    why = {kept.run: kept.why for kept in due.kept if kept.part == "ledger"}
    assert "it has links that live until" in why[run]


@dataclass
class Killed:
    """A sweeper whose process dies after so many deletions."""

    store: LocalStore
    left: int

    def delete(self, key: str) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.store.delete(key)

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        return self.store.leftovers(prefix, before)

    def sweep(self, prefix: str, before: datetime) -> int:
        return self.store.sweep(prefix, before)

    def hides(self) -> bool | None:
        return self.store.hides()


@pytest.mark.parametrize("deletions", [1, 2, 5])  # the first is the question whether it may delete
def test_a_purge_killed_after_its_record_is_finished_by_the_next_one(tmp_path: Path, deletions: int) -> None:
    bench, run = answered(tmp_path)
    whole = later(answered(tmp_path / "whole")[0], YEAR)
    purge(whole.edges, sweeper(whole))
    old = later(bench, YEAR)
    with pytest.raises(KeyboardInterrupt):
        purge(old.edges, Killed(sweeper(bench), deletions))
    first = read_purged(bench.store, keys_of(run), "chunks")

    again = purge(later(bench, YEAR + 1).edges, sweeper(bench))

    assert first == read_purged(bench.store, keys_of(run), "chunks")
    assert again.lots[0].resumed
    assert _left(whole) == _left(bench)
    assert () == look(later(bench, YEAR + 2).edges, sweeper(bench)).lots


def _left(bench: Bench) -> set[str]:
    """Return what is left of the runs and of their purges, without the moments in the names of events."""
    there = [key for key in bench.snapshot() if key.startswith(("bank/runs/", "bank/purged/"))]
    return {key.partition("/events/")[0] for key in there}


def test_a_run_that_was_never_committed_is_abandoned_and_goes_after_the_ledgers_term(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)

    young = look(later(bench, YEAR - 10).edges, sweeper(bench))
    due = purge(later(bench, YEAR).edges, sweeper(bench))

    assert ((), [("chunks", "ledger_days = 395"), ("ledger", "ledger_days = 395")]) == (
        young.lots,
        [(lot.record.part, lot.record.setting) for lot in due.lots],
    )
    assert "abandoned" == standing(bench.store, keys_of(run).run).state
    with pytest.raises(AbandonedError, match="never committed, ledger_days = 395"):
        later(bench, YEAR).submit("bank-20261120.csv")


def test_an_abandoned_run_goes_with_the_chunks_term(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)
    abandon(bench.edges.edges, run, "the issuer sent another")

    due = purge(later(bench, WEEK).edges, sweeper(bench))

    assert [("chunks", "chunks_days = 7"), ("ledger", "chunks_days = 7")] == [
        (lot.record.part, lot.record.setting) for lot in due.lots
    ]


def test_a_run_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)
    old = later(bench, YEAR)
    Lease.take(bench.store, keys_of(run).claims, "another", old.now(), timedelta(minutes=3))

    due = purge(old.edges, sweeper(bench))

    assert ((), {"another works on it"}) == (due.lots, {kept.why for kept in due.kept})


def test_a_run_that_was_taken_up_again_just_now_stays(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)
    old = later(bench, YEAR)

    class Resumed(Killed):
        def delete(self, key: str) -> None:
            if key.endswith("/runs/purge"):  # the first thing a purge does
                old.submit("bank-20261120.csv")
            super().delete(key)

    due = purge(old.edges, Resumed(sweeper(bench), 9))

    assert () == due.lots
    assert [f"{run}-{number:05d}.csv.pgp" for number in (1, 2, 3)] == [
        entry.key.rpartition("/")[2] for entry in bench.store.keys(keys_of(run).chunks)
    ]
    assert not list(bench.store.keys("bank/purged/"))


def test_one_run_that_cannot_be_read_keeps_no_other(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    bench.store.create("bank/runs/bank-20250101-00000000/manifest.json", b"{}")
    bench.store.create("bank/runs/bank-20250101-00000000/chunks/bank-20250101-00000000-00001.csv.pgp", b"x")

    due = purge(later(bench, YEAR).edges, sweeper(bench))

    assert [run, run] == [lot.record.run for lot in due.lots]
    assert {"not to be read: bank/runs/bank-20250101-00000000/manifest.json"} == {kept.why for kept in due.kept}


def test_what_is_not_ours_is_named_and_left(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    strange = [f"bank/runs/{run}/{name}" for name in ("chunks/notes.txt", "report/copy of links.csv", "x")]
    for key in strange:
        bench.store.create(key, b"somebody's")

    due = purge(later(bench, YEAR).edges, sweeper(bench))

    assert tuple(sorted(strange)) == due.unknown
    assert all(bench.content(key) == b"somebody's" for key in strange)


def test_what_dead_processes_left_goes_and_what_is_young_stays(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    probe, half = "bank/probe/0123456789abcdef/1", f"bank/runs/{run}/report/.tmp-0123456789abcdef"
    exchanged = f"bank/runs/{run}/exchanged/0123456789abcdef-0001-keys.parquet"
    for key in (probe, exchanged):
        bench.store.create(key, b"x")
    (tmp_path / "store" / half).write_bytes(b"half")
    (tmp_path / "store" / "bank" / "extracts" / ".tmp-of-the-issuer").write_bytes(b"half an extract")

    young = purge(later(bench, 0).edges, sweeper(bench))
    due = purge(later(bench, 2).edges, sweeper(bench))

    assert ((), ()) == (young.temporary, young.leftovers)
    assert ({probe, exchanged}, [half]) == ({one.key for one in due.temporary}, [one.key for one in due.leftovers])
    assert not (tmp_path / "store" / half).exists()
    assert (tmp_path / "store" / "bank" / "extracts" / ".tmp-of-the-issuer").exists()
    assert not {probe, exchanged} & bench.snapshot().keys()


def test_a_purged_run_is_told_as_one_by_every_command_and_alarms_nobody(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    before = standing(bench.store, keys_of(run).run)
    old = later(bench, YEAR)
    purge(old.edges, sweeper(bench))

    stands = standing(bench.store, keys_of(run).run)
    across = reconcile_runs(old.edges)
    known = survey(old.edges).known

    assert before._replace(state=f"{before.state} (purged)") == stands
    assert (0, (), CLEAR) == (across["outstanding"]["count"], across["alerts"]["opened"], across["verdict"])
    assert list(outboxes(old.edges.edges, BANK)) == []
    assert [] == [change for change in watch(old.edges) if change.alert.kind in ("result-overdue", "out-of-balance")]
    assert "cardlink_rows" in measure(old.edges)
    assert {"chunks purged", "ledger purged"} <= {one.what for one in history(bench.store, run)}
    assert 0 == len(known)
    with pytest.raises(LedgerPurgedError, match=run):
        rebuild(old.edges, run)
    assert ((), (run,)) == trace(old.edges.edges, BANK, "C1")
    assert Submitted(bench.manifest(run), already=True) == old.submit("bank-20261120.csv")


def test_a_late_result_of_a_purged_run_is_a_break_that_says_so(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    old = later(bench, YEAR)
    purge(old.edges, sweeper(bench))
    [late, *_] = [key for key in bench.snapshot() if key.startswith("bank/results/")]
    bench.drop_result(bench.content(late), f"again-{run}-00001-result.csv")

    done = old.ingest()

    assert ((), 1) == (done.reports, len(done.breaks))
    assert f"run {run} is purged" in done.breaks[0]


MOVES: dict[str, Move] = {"held": "held", "uploaded": "uploaded", "cancelled": "cancelled"}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A night of three chunks with its results beside the store, not yet dropped."""
    folder = tmp_path_factory.mktemp("night")
    bench, run = sent(folder)
    bench.answer()
    (folder / "store" / "bank" / "results").rename(folder / "results")
    return folder, run


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(
        st.sampled_from(["whole", "short", "none", "held", "uploaded", "cancelled"]), min_size=3, max_size=3
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
    shutil.copytree(night[0] / "store", folder / "store")
    bench = later(
        replace(local_bench(folder / "other", portal={"rows_per_chunk": 20}), store=LocalStore(folder / "store")), 0
    )
    for number, state in enumerate(chunks, start=1):
        if state in MOVES:
            move(bench.edges.edges, run, MOVES[state], [number], "why")
        if state in ("whole", "short"):
            [result] = (night[0] / "results").glob(f"*-{number:05d}-*")
            lines = result.read_bytes().splitlines(keepends=True)
            bench.drop_result(b"".join(lines[:-1] if state == "short" else lines), result.name)
    if ingested:
        bench.ingest()
    before = bench.snapshot()

    purge(later(bench, days).edges, sweeper(bench))

    after = bench.snapshot()
    gone = before.keys() - after.keys()
    done = all(state == "cancelled" or (state == "whole" and ingested) for state in chunks)
    parts = {key.split("/")[3] for key in gone}
    assert all(after[key] == before[key] for key in before if key.startswith(SOURCES))
    assert ("chunks" in parts) == (done and days >= WEEK)
    assert ("ledger" in parts) == (done and days >= YEAR)
    assert not parts & {"plan.json", "manifest.json", "events"}


def test_links_asked_for_from_no_run_go_with_the_ledgers_term_unless_nobody_knows_what_came_of_them(
    tmp_path: Path,
) -> None:
    bench = later(local_bench(tmp_path), 0)
    known, unknown = ("bank/single/20261120T000000000001.json", "bank/single/20261120T000000000002.json")
    for key in (known, answer_key(known), unknown):
        bench.store.create(key, b"{}")

    young = look(later(bench, 390).edges, sweeper(bench))
    due = purge(later(bench, YEAR).edges, sweeper(bench))

    assert ((), {known, answer_key(known)}) == (young.lots, deleted(due))
    assert [unknown] == [entry.key for entry in bench.store.keys("bank/single/")]
    assert [due.lots[0].key] == [entry.key for entry in bench.store.keys("bank/purged/")]
    assert frozenset() == without_ledger(bench.store, BANK)
