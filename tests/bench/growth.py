"""Stores of many small runs, to see what a command costs as an issuer's runs become more.

Usage: python -m tests.bench.growth [RUNS ...]. Prints the CPU seconds of each command at each size,
of those that change nothing the median of three. The first runs are made in one process, by the
real code and gpg, in memory where there is a place for it: a run is some twenty objects, each of
which a disk would have to sync. Of many runs the others are copies of these (`copied_runs.py`).
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.book.book import read_book
from tests.bench.copied_runs import repeat
from tests.bench.scene import BANK, CARDLINK, write_toml
from tests.clocked import ClockedStore
from tests.night import Bench, issuer

A_DAY = 4  # runs a day
ROWS = 20  # of a run
ANSWERED_TOGETHER = 20  # runs whose results are ingested at once
LIVING = 4000  # days that a link can be opened
MEMORY = Path("/dev/shm")
ROUNDS = 3
LAST = datetime(2026, 11, 20, 12, tzinfo=UTC)  # when the last run was made


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Return the moment it was set to."""
        return self.moment


def grown(folder: Path, runs: int, last: datetime = LAST) -> Bench:
    """Return a bench with so many answered runs behind it, A_DAY a day: the first made by the real
    code, whole blocks of others copied.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(last - timedelta(days=runs / A_DAY))
    bench = Bench(ClockedStore(folder, clock), issuer(), clock)
    grow(bench, clock, range(min(runs, ANSWERED_TOGETHER)))
    copies = runs // ANSWERED_TOGETHER - 1
    if copies > 0:
        repeat(bench, days=ANSWERED_TOGETHER // A_DAY, copies=copies)
        clock.moment = last
        read_book(bench.context.adapters, bench.issuer.issuer)
        grow(bench, clock, range((copies + 1) * ANSWERED_TOGETHER, runs))
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


COMMANDS = (
    "submit bank --dry-run",
    "worklist bank",
    "reconcile bank",
    "cardholders bank",
    "programme bank",
    "trace nobody --issuer bank",
    "deliver bank --dry-run",
    "renew bank --dry-run",
    "upload bank",
    "audit verify bank",
    "purge bank --dry-run",
)
DELIVERY = ("deliver bank", "deliver bank --confirm 1 --reason receipt")
SECOND_DELIVERY = "deliver bank --dry-run, all delivered"
ENDINGS = (0, 1, 2, 3, 4)  # exit codes: what a command finds to do is not what is measured


def measured(folder: Path, runs: int) -> dict[str, float]:
    """Return the CPU seconds of each command on a store of so many runs, the book up to date."""
    bench = grown(folder / "store", runs, datetime.now(UTC) - timedelta(days=2))
    (folder / "portal.asc").write_bytes(bench.key.public)
    write_toml(folder, BANK, bench.key)
    drop_next(bench, runs)
    config = [CARDLINK, "--config", str(folder)]
    costs = {
        words: statistics.median(_cpu([*config, *words.split()]) for _ in range(ROUNDS))
        for words in COMMANDS
    }
    return costs | _night(bench, config)


def _night(bench: Bench, config: list[str]) -> dict[str, float]:
    """Return the CPU seconds of delivering all links, and of one more run until its results."""

    def cost(words: str) -> float:
        return _cpu([*config, *words.split()])

    costs = {words: cost(words) for words in DELIVERY}
    costs[SECOND_DELIVERY] = cost("deliver bank --dry-run")
    costs["submit bank"] = cost("submit bank")
    costs["outbox uploaded RUN"] = cost(f"outbox uploaded {bench.runs.ids[-1]}")
    bench.answer()
    return costs | {"ingest bank": cost("ingest bank")}


def _cpu(command: list[str]) -> float:
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=silent, stderr=silent) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in ENDINGS, f"{command}: {child.returncode}"
    return usage.ru_utime + usage.ru_stime


def main(sizes: list[int]) -> None:
    """Print the CPU seconds of each command at each size, side by side."""
    gc.freeze()  # what is imported is no garbage, and frames are many objects and few cycles
    gc.set_threshold(20_000, 20, 20)
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="cardlink-growth-", dir=memory) as folder:
        columns = [measured(Path(folder) / str(runs), runs) for runs in sizes]
    print(f"{'CPU seconds, by runs':44}" + "".join(f"{runs:>9,}" for runs in sizes))
    for words in columns[0]:
        print(f"{words:44}" + "".join(f"{column[words]:>9.2f}" for column in columns))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 10_000])
