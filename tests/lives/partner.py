"""The partner, and the person who carries files to it: uploads what waits, brings back what comes,
with gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.runs.keys import results
from flows.runs.outbox import fetch, move, outboxes
from flows.runs.sealing import Opener
from flows.simulator.chance import chance
from flows.simulator.portal import Booked, Portal
from schemas.portal import MONTH, PAN, YEAR
from tests.lives.deliveries import Card
from tests.night import Bench

REFUSED = 0.04  # of the rows
LATE = 0.15  # of the chunks are answered one to three days later than the others
FORGOTTEN = 0.1  # of the chunks: one row in three is not in the result
WHOLE_AFTER = 6  # days until the partner brings the rest, where it is asked
NEVER = 0.3  # of the gaps are never filled
Position = tuple[str, int]  # chunk and data row


class Received(NamedTuple):
    """One row as the portal opened it and what it booked, and on which day."""

    day: date
    chunk: str
    card: Card
    row: Booked

    @property
    def position(self) -> Position:
        """Where it was sent."""
        return self.chunk, self.row.row

    @property
    def run(self) -> str:
        """The run that sent it."""
        return run_of(self.chunk)


class Coming(NamedTuple):
    """A result file that will come."""

    day: date
    name: str
    chunk: str
    rows: tuple[Booked, ...]


@dataclass
class Keyring:
    """The key the portal has at the moment, and the last that it opened."""

    opener: Opener
    content: bytes = b""

    def open(self, message: bytes, limit: int) -> bytes:
        """Open a message and keep its content."""
        self.content = self.opener.open(message, limit)
        return self.content


@dataclass
class Partner:
    """The portal with its books, the files that will come, and every row that was delivered."""

    bench: Bench
    keyring: Keyring
    portal: Portal
    delay: int = 0  # days until most chunks are answered
    received: list[Received] = field(default_factory=list)
    coming: list[Coming] = field(default_factory=list)
    delivered: dict[Position, Booked] = field(default_factory=dict)
    came: dict[Position, date] = field(default_factory=dict)  # the day a row's answer came first
    # the last day on which a chunk was answered
    answered: dict[str, date] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  # chunks whose gaps are never filled

    @classmethod
    def of(cls, bench: Bench, opener: Opener, seed: int, delay: int = 0) -> Partner:
        """Return the partner of an issuer."""
        keyring = Keyring(opener)
        today = bench.now().date()
        portal = Portal(keyring, today=today, fail_share=REFUSED, seed=seed)
        return cls(bench, keyring, portal, delay)

    def take(self) -> None:
        """Upload every chunk that waits."""
        day = self.portal.today = self.bench.now().date()
        context = self.bench.context.adapters
        waiting = outboxes(self.bench.runs, frozenset({"waiting"}))
        for run in sorted({item.run for item in waiting}):
            files: dict[str, bytes] = {}
            for item in fetch(context, run, files.__setitem__):
                chunk = item.chunk.name
                self.portal.upload(chunk, files[chunk])
                rows = self.portal.books[-1].rows
                for card, row in zip(self._opened_cards(), rows, strict=True):
                    self.received.append(Received(day, chunk, card, row))
                self._promise(chunk, rows, day)
            move(context, run, "uploaded")

    def _opened_cards(self) -> list[Card]:
        rows = pl.read_csv(BytesIO(self.keyring.content), infer_schema=False)
        return [Card(*card) for card in rows.select(PAN, pl.col(YEAR) + pl.col(MONTH)).rows()]

    def answer(self) -> set[str]:
        """Bring the result files that are due; return their keys."""
        day = self.bench.now().date()
        due = [file for file in self.coming if file.day <= day]
        keys = set[str]()
        for file in due:
            self.coming.remove(file)
            keys.add(results(self.bench.issuer.issuer) + file.name)
            self.bench.drop_result(self.portal.result(file.rows), file.name)
            answers = {(file.chunk, row.row): row for row in file.rows}
            if answers.keys() - self.delivered.keys():
                self.answered[file.chunk] = day
            self.delivered |= answers
            for position in answers:
                self.came.setdefault(position, day)
        return keys

    def _promise(self, chunk: str, rows: tuple[Booked, ...], day: date) -> None:
        """Decide when a chunk is answered, and whether something is forgotten."""
        seed = self.portal.seed
        name = f"card-links-{chunk.partition('.')[0]}-result"
        luck = chance(seed, "late", chunk)
        late = 1 + int(luck / LATE * 3) if luck < LATE else 0
        when = day + timedelta(days=self.delay + late)
        some = tuple(row for row in rows if row.row % 3)
        if len(some) == len(rows) or chance(seed, "forgotten", chunk) >= FORGOTTEN:
            self.coming.append(Coming(when, f"{name}.csv", chunk, rows))
            return
        self.coming.append(Coming(when, f"{name}.csv", chunk, some))
        if chance(seed, "never", chunk) < NEVER:
            self.lost.add(chunk)
        else:
            whole = when + timedelta(days=WHOLE_AFTER)
            self.coming.append(Coming(whole, f"{name}-whole.csv", chunk, rows))


def run_of(chunk: str) -> str:
    """Return the run of a chunk."""
    return chunk.partition(".")[0][:-6]
