"""What a command reads does not become more with an issuer's runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flows.book.book import read_book
from flows.submissions.extract_states import extract_states
from tests.bench.growth import Clock, grow, grown, submit_next
from tests.night import Bench
from tests.storms import FailingStore

RUNS = 16  # as many as are settled together, so that it is the same at twice as many
A_FEW = 8  # of work that is still open, and of the settled pages
NEXT = 1000  # the number of a run that is measured


def opened(bench: Bench, act: Callable[[Bench], object]) -> list[str]:
    """Return the keys that an act opens, pages of the book apart: of those a few are not settled."""
    keys: list[str] = []

    def note(does: str, key: str) -> None:
        if does == "open" and not key.endswith("/book.parquet"):
            keys.append(re.sub("[0-9a-f]{8,}", "*", key))

    act(replace(bench, store=FailingStore(bench.store, note)))
    return keys


def costs(bench: Bench, number: int) -> dict[str, int]:
    """Return how many objects each command opens."""
    measured = {
        "book": len(opened(bench, lambda noted: read_book(noted.store, "bank"))),
        "extracts": len(opened(bench, lambda noted: extract_states(noted.context))),
        "submit": len(opened(bench, lambda noted: submit_next(noted, number))),
    }
    bench.answer()
    return measured | {"ingest": len(opened(bench, Bench.ingest))}


@pytest.mark.slow
def test_twice_as_many_runs_cost_no_more_reads(tmp_path: Path) -> None:
    bench = grown(tmp_path / "store", RUNS)
    clock = bench.now
    assert isinstance(clock, Clock)

    before = costs(bench, NEXT)
    grow(bench, clock, range(RUNS, 2 * RUNS - 1))
    after = costs(bench, NEXT + 1)

    more = {name: after[name] - before[name] for name in before}
    assert {} == {name: number for name, number in more.items() if number > A_FEW}
