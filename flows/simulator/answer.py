"""The person between store and portal: uploads the chunks of committed runs and drops the result files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from flows.core.names import RunId, RunKeys, results, runs
from flows.core.ports import Store
from flows.simulator.chance import chance, token
from flows.simulator.portal import Booked, Portal, UploadRefusedError
from schemas.manifest import Manifest


class Habits(NamedTuple):
    """How well answers come: shares of chunks answered late, twice, in halves; names and files of others."""

    late: float = 0.0  # not today: drawn again on the portal's next day
    twice: float = 0.0  # the same result under two names, as a browser's second download
    halves: float = 0.0  # half of the rows now, the others by the next call
    swapped: bool = False  # each result under the name of its neighbour's
    foreign: bool = False  # one more file, of cardholders nobody sent
    nameless: bool = False  # result files under names that say nothing


class Delivery(NamedTuple):
    """One result file: its key, the chunk uploaded for it and the truth about the rows it holds."""

    key: str
    chunk: str
    rows: tuple[Booked, ...]


class Answered(NamedTuple):
    """What one call did: files delivered, chunks refused by the portal (name, why), chunks still waiting."""

    delivered: tuple[Delivery, ...]
    refused: tuple[tuple[str, str], ...]
    waiting: tuple[str, ...]

    @property
    def linked(self) -> int:
        """Rows delivered with a link."""
        return sum(row.url is not None for delivery in self.delivered for row in delivery.rows)

    @property
    def errors(self) -> int:
        """Rows delivered with an error."""
        return sum(row.url is None for delivery in self.delivered for row in delivery.rows)


def answer_store(store: Store, issuer: str, portal: Portal, habits: Habits | None = None) -> Answered:
    """Upload every chunk not yet answered and write its result file under the issuer's `results/`."""
    person = _Person(store, issuer, portal, habits or Habits())
    for key, chunk in committed_chunks(store, issuer):
        person.carry(key, chunk)
    return person.finish()


def committed_chunks(store: Store, issuer: str) -> Iterator[tuple[str, str]]:
    """Yield key and upload name of every chunk of every run that has a manifest."""
    for entry in store.keys(runs(issuer), shallow=True):
        run = RunId.parse(PurePosixPath(entry.key).name)
        keys = RunKeys(run) if run else None
        if keys and any(found.key == keys.manifest for found in store.keys(keys.manifest)):
            manifest = Manifest.model_validate_json(_content(store, keys.manifest))
            yield from ((keys.chunks + chunk.name, chunk.name) for chunk in manifest.chunks)


class _Person:
    def __init__(self, store: Store, issuer: str, portal: Portal, habits: Habits) -> None:
        self._store, self._portal, self._habits = store, portal, habits
        self._folder = results(issuer)
        self._there = {entry.key for entry in store.keys(self._folder)}
        self._ready: list[tuple[str, str, tuple[Booked, ...]]] = []  # result name, chunk, rows
        self._refused: list[tuple[str, str]] = []
        self._waiting: list[str] = []

    def carry(self, key: str, chunk: str) -> None:
        """Upload one chunk, unless it is answered or late today."""
        whole, first, second = (self._name(chunk, part) for part in ("", "-1of2", "-2of2"))
        there = {name for name in (whole, first, second) if self._folder + name in self._there}
        if whole in there or second in there:
            return
        if not there and self._draw("late", chunk, self._portal.today) < self._habits.late:
            self._waiting.append(chunk)
            return
        rows = self._upload(key, chunk)
        half = len(rows) // 2
        if first in there:
            self._ready.append((second, chunk, rows[half:]))
        elif half and self._draw("halves", chunk) < self._habits.halves:
            self._ready.append((first, chunk, rows[:half]))
        elif rows:
            self._ready.append((whole, chunk, rows))

    def finish(self) -> Answered:
        """Write what is ready under the names the habits make of it."""
        names = [name for name, _, _ in self._ready]
        if self._habits.swapped:
            names = names[1:] + names[:1]
        delivered = [
            self._drop(name, chunk, rows) for name, (_, chunk, rows) in zip(names, self._ready, strict=True)
        ]
        again = [
            self._drop(
                f"{delivery.key.removeprefix(self._folder).removesuffix('.csv')} (1).csv", *delivery[1:]
            )
            for delivery in delivered
            if self._draw("twice", delivery.chunk) < self._habits.twice
        ]
        if self._habits.foreign:
            self._store.create(
                f"{self._folder}{self._name('foreign', '')}", self._portal.result([self._stranger()])
            )
        return Answered(tuple(delivered + again), tuple(self._refused), tuple(self._waiting))

    def _upload(self, key: str, chunk: str) -> tuple[Booked, ...]:
        try:
            self._portal.upload(chunk, _content(self._store, key))
        except UploadRefusedError as error:
            self._refused.append((chunk, str(error.args[1])))
            return ()
        return self._portal.books[-1].rows

    def _drop(self, name: str, chunk: str, rows: tuple[Booked, ...]) -> Delivery:
        self._store.create(self._folder + name, self._portal.result(rows))
        return Delivery(self._folder + name, chunk, rows)

    def _name(self, chunk: str, part: str) -> str:
        if self._habits.nameless:
            return f"download-{token(self._portal.seed, chunk, part)[:8]}.csv"
        return f"card-links-{chunk.partition('.')[0]}-result{part}.csv"

    def _draw(self, what: str, *parts: object) -> float:
        return chance(self._portal.seed, what, *parts)

    def _stranger(self) -> Booked:
        mark = token(self._portal.seed, "stranger", self._portal.today)
        return Booked(
            1, f"stranger-{mark[:8]}", "0000", f"https://links.example.com/l/{mark}", self._portal.today, ()
        )


def _content(store: Store, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()
