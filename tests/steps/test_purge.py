"""Retention on real nights: what is due goes, what is open stays, and what went stays provable."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.core.report.across import CLEAR
from flows.edge.local import LocalStore
from flows.steps.attempts import survey
from flows.steps.history import history
from flows.steps.metrics import measure
from flows.steps.outbox import outboxes
from flows.steps.purge import look, purge
from flows.steps.purged import LedgerPurgedError
from flows.steps.reconcile import reconcile_runs
from flows.steps.report import rebuild
from flows.steps.runs import keys_of
from flows.steps.status import standing
from flows.steps.submit import Submitted
from flows.steps.trace import trace
from flows.steps.watch import watch
from tests.night import BANK, Bench, local_bench

WEEK, YEAR = 8, 400  # days after which chunks, and ledgers, are due


def later(bench: Bench, days: float) -> Bench:
    """Return the bench so many days after now."""
    return replace(bench, now=lambda: datetime.now(UTC) + timedelta(days=days))


def sweeper(bench: Bench) -> LocalStore:
    assert isinstance(bench.store, LocalStore)
    return bench.store


def answered(folder: Path, rows: int = 50) -> tuple[Bench, str]:
    """Return a bench with one run of which everything is answered."""
    bench = later(local_bench(folder, portal={"rows_per_chunk": 20}), 0)
    run = bench.submit(bench.drop(rows)).manifest.run
    bench.answer()
    bench.ingest()
    return bench, run


def test_sealed_chunks_go_a_week_after_the_last_answer_and_not_before(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    before = bench.snapshot()

    young = purge(later(bench, 6).edges, sweeper(bench))
    kept = bench.snapshot()
    due = purge(later(bench, WEEK).edges, sweeper(bench))

    assert ((), before.keys()) == (young.lots, kept.keys())
    gone = before.keys() - bench.snapshot().keys()
    assert gone == {key for key in before if key.startswith(f"bank/runs/{run}/chunks/")}
    assert gone == {entry.key for lot in due.lots for entry in lot.entries}
    assert bench.snapshot().keys() - before.keys() == {f"bank/purged/{run}/chunks.json"}


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
