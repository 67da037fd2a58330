"""Stores of many small runs, to see what a command costs as an issuer's runs become more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.runs.audit_trail import audited
from tests.clocked import ClockedStore
from tests.night import Bench, issuer

A_DAY = 4  # runs a day
ROWS = 20  # of a run
ANSWERED_TOGETHER = 20  # runs whose results are ingested at once
LIVING = 800  # days that a link can be opened
LAST = datetime(2026, 11, 20, 12, tzinfo=UTC)  # when the last run was made


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Return the moment it was set to."""
        return self.moment


def grown(folder: Path, runs: int, last: datetime = LAST) -> Bench:
    """Return a bench with so many answered runs behind it, A_DAY a day, made by the real code."""
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(last - timedelta(days=runs / A_DAY))
    bench = Bench(audited(ClockedStore(folder, clock), "grower", clock), issuer(), clock)
    grow(bench, clock, range(runs))
    return bench


def grow(bench: Bench, clock: Clock, numbers: range) -> None:
    """Make and answer a run of each of these numbers. Every card is new, and has a link."""
    for number in numbers:
        clock.moment += timedelta(days=1 / A_DAY)
        submit_next(bench, number)
        if number == numbers[-1] or number % ANSWERED_TOGETHER == ANSWERED_TOGETHER - 1:
            bench.answer(seed=number, expires=clock.moment.date() + timedelta(days=LIVING))
            bench.ingest()


def submit_next(bench: Bench, number: int) -> str:
    """Submit an extract of new cards; return its run."""
    return bench.submit(drop_next(bench, number)).manifest.run


def drop_next(bench: Bench, number: int) -> str:
    """Drop an extract of new cards; return its name."""
    name = f"bank-{bench.now():%Y%m%d}-{number:05d}.csv"
    return bench.drop(ROWS, name, seed=number + 1)
