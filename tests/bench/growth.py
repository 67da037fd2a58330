"""Stores of many small runs: what each command costs as an issuer's runs become more.

Usage: python -m tests.bench.growth [--runs 100 400 1600]. Prints the CPU seconds of each command at
each size, side by side.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.runs.audit_trail import audited
from tests.clocked import ClockedStore
from tests.night import Bench, issuer

A_DAY = 4  # runs a day
ROWS = 20  # of a run
ANSWERED_TOGETHER = 20  # runs whose results are ingested at once
LAST = datetime(2026, 11, 20, 12, tzinfo=UTC)  # when the last run was made


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Return the moment it was set to."""
        return self.moment


def grown(folder: Path, runs: int, last: datetime = LAST) -> Bench:
    """Return a bench with so many answered runs behind it, A_DAY a day, made by the real code.

    Every card is new, and all but one in twenty of a run have a link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(last)
    bench = Bench(audited(ClockedStore(folder, clock), "grower", clock), issuer(), clock)
    for number in range(runs):
        clock.moment = last - timedelta(days=(runs - 1 - number) / A_DAY)
        submit_next(bench, number)
        if number % ANSWERED_TOGETHER == ANSWERED_TOGETHER - 1 or number == runs - 1:
            bench.answer(fail_share=0.05, seed=number)
            bench.ingest()
    return bench


def submit_next(bench: Bench, number: int) -> str:
    """Submit an extract of new cards; return its run."""
    return bench.submit(drop_next(bench, number)).manifest.run


def drop_next(bench: Bench, number: int) -> str:
    """Drop an extract of new cards; return its name."""
    name = f"bank-{bench.now():%Y%m%d}-{number:05d}.csv"
    return bench.drop(ROWS, name, seed=number + 1)
