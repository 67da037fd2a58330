"""Backfill: a list of what would be sent, then exactly that."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from flows.steps.backfill import ListChangedError, Span, backfill, send
from tests.night import Bench, local_bench

SPAN = Span(date(2026, 11, 17), date(2026, 11, 18))


def missed(folder: Path, **changes: object) -> Bench:
    """Return a bench with four nights dropped, of which the middle two are in SPAN."""
    bench = local_bench(folder, **changes)
    for day in (16, 17, 18, 19):
        bench.drop(20, f"bank-202611{day}.csv", seed=day)
    return bench


def test_a_list_names_what_would_be_sent_and_writes_nothing(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    before = bench.snapshot()

    listed = backfill(bench.edges, SPAN)

    assert [("bank-20261117.csv", date(2026, 11, 17), 20), ("bank-20261118.csv", date(2026, 11, 18), 20)] == [
        (one.extract, one.as_of, one.counts and one.counts.submitted) for one in listed.missed
    ]
    assert before == bench.snapshot()


def test_what_was_listed_is_what_is_sent(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    listed = backfill(bench.edges, SPAN)

    done = send(bench.edges, SPAN, listed.digest)

    assert [(one.run, one.counts) for one in listed.missed] == [(one.manifest.run, one.manifest.counts) for one in done]
    assert () == backfill(bench.edges, SPAN).missed


def test_an_extract_that_came_since_refuses_the_list(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    listed = backfill(bench.edges, SPAN)
    bench.drop(5, "bank-20261117-late.csv", seed=7)

    with pytest.raises(ListChangedError):
        send(bench.edges, SPAN, listed.digest)

    assert 3 == len(backfill(bench.edges, SPAN).missed)
