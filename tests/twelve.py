"""Twelve nights with a partner of every bad habit, and what the simulator's own books say came of
them.

The recount goes through the portal's books and what the person carried, never through our reading
of results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from flows.adapters.gpg_opener import GpgOpener
from flows.extensions.simulator.answer import Answered, Habits, answer_store
from flows.extensions.simulator.error_shapes import SHAPES
from flows.extensions.simulator.extract import write_sample
from flows.extensions.simulator.portal import Booked, Portal
from flows.reports.across import reconcile_runs
from flows.reports.ingestion import Ingested
from tests import keys
from tests.night import Bench, local_bench

FIRST = date(2026, 11, 9)
NIGHTS = 12
SILENT = "[object Object]"  # an error that names nobody

# How the person between store and portal behaves on each night.
HABITS = (
    Habits(),
    Habits(late=0.5),
    Habits(halves=0.5),
    Habits(twice=0.6),
    Habits(swapped=True),
    Habits(foreign=True),
    Habits(late=0.7, halves=0.4),
    Habits(late=0.7, twice=0.5, swapped=True),
    Habits(late=0.7),
    Habits(late=0.4, halves=0.6, twice=0.3),
    Habits(late=0.3, halves=0.3, twice=0.3, swapped=True, foreign=True),
    Habits(late=0.5),
)


class Row(NamedTuple):
    """The truth about one sent row that was answered: the chunk it went in, and what the portal
    booked.
    """

    chunk: str
    booked: Booked

    @property
    def silent(self) -> bool:
        """True where the error as the portal writes it names nobody."""
        return self.booked.url is None and list(SHAPES)[self.booked.row % len(SHAPES)] == "object"


class Look(NamedTuple):
    """One look across the runs: when, which rows of each chunk had been answered by then, and what
    it told.
    """

    at: datetime
    answered: Counter[str]
    facts: dict[str, Any]


@dataclass
class Story:
    """What happened: the bench, the runs in order, what was read and refused, and every row
    delivered.
    """

    bench: Bench
    runs: list[str] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    chunks: dict[str, dict[str, int]] = field(default_factory=dict)  # rows sent by chunk
    delivered: dict[tuple[str, int], Row] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    taken: list[Ingested] = field(default_factory=list)
    committed: dict[str, datetime] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)

    def rows_of(self, run: str) -> list[Row]:
        """Return the answered rows of a run, each once however often it was delivered."""
        return [row for row in self.delivered.values() if row.chunk.startswith(run)]

    def now(self) -> datetime:
        """Return the bench's clock."""
        return self.bench.now()


def live(folder: Path, rows: int = 100, per_chunk: int = 20, nights: int = NIGHTS) -> Story:
    """Live through the nights: drop, submit, let the partner answer as the night's habits say,
    ingest.
    """
    clock = {"now": datetime.combine(FIRST, datetime.min.time(), UTC) + timedelta(hours=3)}
    bench = replace(
        local_bench(folder, portal={"rows_per_chunk": per_chunk}), now=lambda: clock["now"]
    )
    story = Story(bench)
    with portals(FIRST) as (plain, shuffled):
        for night in range(nights):
            day = FIRST + timedelta(days=night)
            clock["now"] = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=3)
            _submit(story, day, rows + 7 * night, seed=night)
            clock["now"] += timedelta(hours=5)
            portal = shuffled if night % 2 else plain
            plain.today = shuffled.today = day
            _book(
                story,
                answer_store(
                    bench.adapters, bench.issuer.issuer, portal, HABITS[night % len(HABITS)]
                ),
            )
            clock["now"] += timedelta(hours=1)
            story.taken.append(bench.ingest())
            answered = Counter(row.chunk for row in story.delivered.values())
            story.looks.append(Look(clock["now"], answered, reconcile_runs(bench.context)))
    return story


@contextmanager
def portals(today: date) -> Iterator[tuple[Portal, Portal]]:
    """Give a portal that keeps the order and one that does not; the same seed makes them book the
    same.
    """
    with GpgOpener([keys.sound().secret]) as opener:
        manner: dict[str, Any] = {
            "today": today,
            "fail_share": 0.12,
            "seed": 5,
            "error_shape": "mixed",
        }
        yield Portal(opener, **manner), Portal(opener, shuffle=True, **manner)


def _submit(story: Story, day: date, rows: int, seed: int) -> None:
    out = BytesIO()
    truth = write_sample(out, rows, bad=0.05, seed=seed, as_of=day)
    manifest = story.bench.submit(
        story.bench.drop_bytes(out.getvalue(), f"bank-{day:%Y%m%d}.csv")
    ).manifest
    story.runs.append(manifest.run)
    story.committed[manifest.run] = story.now()
    story.read[manifest.run] = rows
    story.bad[manifest.run] = truth.bad["row"].n_unique()
    story.chunks[manifest.run] = {chunk.name: chunk.rows for chunk in manifest.chunks}


def _book(story: Story, answered: Answered) -> None:
    for delivery in answered.delivered:
        if delivery.chunk.startswith("elsewhere"):
            story.foreign.add(delivery.key)
            continue
        story.delivered |= {
            (delivery.chunk, row.row): Row(delivery.chunk, row) for row in delivery.rows
        }
