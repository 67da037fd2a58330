"""Renewal: a run for the cardholders whose link ends soon and who are still in the latest extract."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl

from flows.steps.renew import Request, renew
from tests.night import NOON, Bench, local_bench

LINKS_END = date(2027, 1, 20)


def linked(folder: Path, rows: int = 20) -> Bench:
    """Return a bench with one night of links that end on LINKS_END."""
    bench = local_bench(folder)
    bench.submit(bench.drop(rows))
    bench.answer(expires=LINKS_END)
    bench.ingest()
    return bench


def on(bench: Bench, day: date) -> Bench:
    return replace(bench, now=lambda: datetime.combine(day, NOON.time(), UTC))


def test_cards_whose_link_ends_within_the_days_get_a_new_one(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), LINKS_END - timedelta(days=14))

    done = renew(bench.edges, Request(14))
    bench.answer()
    bench.ingest()

    assert done.submitted is not None
    run = done.submitted.manifest.run
    assert (20, {"linked": 20}) == (
        done.submitted.manifest.counts.read,
        {row["state"]: row["len"] for row in states(bench, run).to_dicts()},
    )
    assert bench.ledger(run)["origin"].to_list() == bench.ledger(run)["row"].to_list()


def states(bench: Bench, run: str) -> pl.DataFrame:
    from io import BytesIO

    rows = pl.read_parquet(BytesIO(bench.report(run, "rows/part-00001.parquet")))
    return rows.group_by("state").len()


def test_a_renewal_repeated_before_its_answer_sends_nobody(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), LINKS_END - timedelta(days=14))
    renew(bench.edges, Request(14))
    before = bench.snapshot()

    again = renew(bench.edges, Request(14))

    assert (None, {"card.link.awaiting": 20}) == (again.submitted, again.due.left_out)
    assert before == bench.snapshot()


def test_the_day_before_nothing_is_due_and_nothing_is_written(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), LINKS_END - timedelta(days=15))
    before = bench.snapshot()

    done = renew(bench.edges, Request(14))

    assert (None, {}) == (done.submitted, done.due.left_out)
    assert before == bench.snapshot()
