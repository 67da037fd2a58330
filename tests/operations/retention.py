"""Nights for the tests of retention: sent, answered or never committed, and looked at so many days
later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.adapters.local import LocalStore
from flows.operations.purge import PurgePlan
from flows.runs.store import Entry
from tests.night import Bench, local_bench, made_once, uncommit

WEEK, YEAR = 8, 400  # days after which chunks, and ledgers, are due
SOURCES = ("bank/extracts/", "bank/results/")


def later(bench: Bench, days: float) -> Bench:
    """Return the bench so many days after now."""
    return replace(bench, now=lambda: datetime.now(UTC) + timedelta(days=days))


def cleaner(bench: Bench) -> LocalStore:
    assert isinstance(bench.store, LocalStore)
    return bench.store


@made_once
def sent(folder: Path, rows: int = 50) -> tuple[Bench, str]:
    """Return a bench with one committed run of chunks of 20 rows."""
    bench = later(local_bench(folder, portal={"rows_per_chunk": 20}), 0)
    return bench, bench.submit(bench.drop(rows)).manifest.run


@made_once
def answered(folder: Path, rows: int = 50) -> tuple[Bench, str]:
    """Return a bench with one run of which everything is answered."""
    bench, run = sent(folder, rows)
    bench.answer()
    bench.ingest()
    return bench, run


@made_once
def planned(folder: Path) -> tuple[Bench, str]:
    """Return a bench with a run that was planned, published in part, and never committed."""
    bench, run = sent(folder)
    uncommit(folder, run)
    return bench, run


def deleted(due: PurgePlan) -> set[str]:
    return {entry.key for lot in due.lots for entry in lot.entries}


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

    def discard(self, leftover: Entry) -> None:
        self.store.discard(leftover)

    def hides(self) -> bool | None:
        return self.store.hides()
