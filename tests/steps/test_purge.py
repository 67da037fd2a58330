"""Retention on real nights: what is due goes, what is open stays, and what went stays provable."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.edge.local import LocalStore
from flows.steps.purge import look, purge
from tests.night import Bench, local_bench

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
