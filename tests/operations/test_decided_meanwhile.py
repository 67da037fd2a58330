"""Two decide about the same file at once, or one does while another takes it in: whoever was away
and writes last says what was decided last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest
from sqlalchemy import Connection

from flows.database.connection import Database
from flows.extensions.privacy.erasure import OfRows, erase
from flows.operations.manual_attribution import attribute_row, reingest, withdraw
from flows.runs.context import IssuerContext
from flows.runs.events import ANSWERED
from tests.extensions.privacy.test_erasure import (
    GONE,
    OTHERS,
    WITHDRAWING,
    cleaner,
    delivered,
    naming,
    row_of,
)
from tests.night import Bench
from tests.operations.test_attribute import REPORTS, answered, from_scratch

WHY = "the partner says so"
T = TypeVar("T")


class Slow:
    """The database of a process that is away before it first does an act of a kind."""

    def __init__(self, below: Database, meanwhile: Callable[[], object], what: str) -> None:
        self._below = below
        self._what = what
        self._todo = [meanwhile]
        self.place = below.place
        self.rehearsal = below.rehearsal
        self.snapshot = below.snapshot

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        if self._todo and _is_act(work, self._what):
            self._todo.pop()()
        return self._below.act(issuer, work)


def _is_act(work: Callable[[Connection], object], what: str) -> bool:
    """Return whether an act is of a kind, by what it closes over."""
    cells = getattr(work, "__closure__", None) or ()
    return any(cell.cell_contents == what for cell in cells)


def away(bench: Bench, meanwhile: Callable[[], object], what: str = ANSWERED) -> IssuerContext:
    """Return what a process has that is away before it first does this, by default an ingest."""
    slow: Any = Slow(bench.database, meanwhile, what)
    return replace(bench, database=slow).context


@pytest.mark.parametrize("is_withdrawn_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_who_was_away_takes_a_file_up_as_it_was_decided_last(
    tmp_path: Path, *, is_withdrawn_first: bool
) -> None:
    bench, run = answered(tmp_path)
    attribute_row(bench.context, "a.csv", 4, (run, 9), WHY)

    def taken_back(context: IssuerContext) -> None:
        withdraw(context, "a.csv", 4, WHY)

    def given(context: IssuerContext) -> None:
        attribute_row(context, "a.csv", 4, (run, 10), WHY)

    if is_withdrawn_first:
        taken_back(away(bench, lambda: given(bench.context)))
    else:
        taken_back(bench.context)
        given(away(bench, lambda: taken_back(bench.context)))

    after = {name: bench.report(run, name) for name in REPORTS}
    assert after == from_scratch(bench, run)


def test_who_was_away_brings_nobody_back_who_was_forgotten_meanwhile(tmp_path: Path) -> None:
    bench, run = delivered(tmp_path)
    rows = OfRows(run, [row_of(bench, run)])

    reingest(
        away(bench, lambda: erase(bench.context, cleaner(bench), rows, WHY)),
        f"card-links-{run}-00001-result.csv",
        WHY,
    )

    named = naming(bench.snapshot(), GONE)
    assert [] == [key for key in named if not key.startswith(WITHDRAWING)]


def test_two_who_forget_somebody_in_the_same_run_at_once_forget_both_and_keep_its_ledger(
    tmp_path: Path,
) -> None:
    bench, run = delivered(tmp_path)
    first, second = (OfRows(run, [row_of(bench, run, cuid)]) for cuid in (GONE, OTHERS[0]))

    slow = away(
        bench,
        lambda: erase(bench.context, cleaner(bench), second, WHY),
        "erased",
    )
    erase(slow, cleaner(bench), first, WHY)

    ledger = pl.concat(bench.stored(run).ledger(["row", "cuid"]))
    gone = [*first.rows, *second.rows]
    assert sorted(gone) == sorted(ledger.filter(pl.col("cuid").is_null())["row"])
    named = naming(bench.snapshot(), GONE, OTHERS[0])
    assert [] == [key for key in named if not key.startswith(WITHDRAWING)]
