"""The partner, and the person who carries files to it: uploads what waits, brings back what comes,
with gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import NamedTuple

from flows.runs.keys import results
from flows.runs.outbox import fetch, move, outboxes
from flows.runs.sealing import Opener
from flows.simulator.chance import chance
from flows.simulator.portal import Booked, Portal
from tests.night import Bench

LATE = 0.15  # of the chunks are answered one to three days later than the others
FORGOTTEN = 0.1  # of the chunks: one row in three is not in the result
WHOLE_AFTER = 6  # days until the partner brings the rest, where it is asked
NEVER = 0.3  # of the gaps are never filled


class Received(NamedTuple):
    """One row as the portal received it, and on which day."""

    day: date
    chunk: str
    row: Booked


class Coming(NamedTuple):
    """A result file that will come."""

    day: date
    name: str
    chunk: str
    rows: tuple[Booked, ...]


@dataclass
class Keyring:
    """The key the portal has at the moment, and what it opened, in order."""

    opener: Opener
    opened: list[bytes] = field(default_factory=list)

    def open(self, message: bytes, limit: int) -> bytes:
        """Open a message and keep its content."""
        self.opened.append(self.opener.open(message, limit))
        return self.opened[-1]


@dataclass
class Partner:
    """The portal with its books, the files that will come, and every row that was delivered."""

    portal: Portal
    keyring: Keyring
    delay: int = 0  # days until most chunks are answered
    received: list[Received] = field(default_factory=list)
    coming: list[Coming] = field(default_factory=list)
    delivered: dict[tuple[str, int], Booked] = field(default_factory=dict)
    # the last day on which a chunk was answered
    answered: dict[str, date] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  # chunks whose gaps are never filled

    def take(self, bench: Bench, day: date) -> None:
        """Upload every chunk that waits."""
        self.portal.today = day
        context = bench.context.adapters
        waiting = list(outboxes(bench.runs, frozenset({"waiting"})))
        for run in sorted({item.run for item in waiting}):
            files: dict[str, bytes] = {}
            fetched = fetch(context, run, files.__setitem__)
            for item in fetched:
                self.portal.upload(item.chunk.name, files[item.chunk.name])
                rows = self.portal.books[-1].rows
                self.received += [Received(day, item.chunk.name, row) for row in rows]
                self._promise(item.chunk.name, rows, day)
            move(context, run, "uploaded")

    def answer(self, bench: Bench, day: date) -> set[str]:
        """Bring the result files that are due; return their keys."""
        due = [one for one in self.coming if one.day <= day]
        for file in due:
            self.coming.remove(file)
            bench.store.replace(
                results(bench.issuer.issuer) + file.name, [self.portal.result(file.rows)]
            )
            news = {(file.chunk, row.row): row for row in file.rows}
            if news.keys() - self.delivered.keys():
                self.answered[file.chunk] = day
            self.delivered |= news
        return {results(bench.issuer.issuer) + file.name for file in due}

    def _promise(self, chunk: str, rows: tuple[Booked, ...], day: date) -> None:
        """Decide when a chunk is answered, and whether something is forgotten."""
        seed, name = self.portal.seed, f"card-links-{chunk.partition('.')[0]}-result"
        late = chance(seed, "late", chunk)
        when = day + timedelta(days=self.delay + (1 + int(late / LATE * 3) if late < LATE else 0))
        some = tuple(row for row in rows if row.row % 3)
        if len(some) == len(rows) or chance(seed, "forgotten", chunk) >= FORGOTTEN:
            self.coming.append(Coming(when, f"{name}.csv", chunk, rows))
            return
        self.coming.append(Coming(when, f"{name}.csv", chunk, some))
        if chance(seed, "never", chunk) < NEVER:
            self.lost.add(chunk)
        else:
            self.coming.append(
                Coming(when + timedelta(days=WHOLE_AFTER), f"{name}-whole.csv", chunk, rows)
            )
