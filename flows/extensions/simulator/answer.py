"""The person between store and portal: uploads committed chunks and drops the result files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from flows.errors import TryAgainError
from flows.extensions.simulator.chance import chance, token
from flows.extensions.simulator.portal import Booked, Portal
from flows.extensions.simulator.uploads import UploadRefusedError
from flows.runs.adapters import Adapters
from flows.runs.keys import results
from flows.runs.store import Store
from flows.runs.stored_runs import StoredRuns


class Habits(NamedTuple):
    """How results arrive; the numbers are shares of the chunks."""

    late: float = 0.0  # not today: drawn again on the portal's next day
    twice: float = 0.0  # the same result under two names, as a browser's second download
    halves: float = 0.0  # half of the rows now, the others by the next call
    swapped: bool = False  # each result under the name of its neighbour's
    foreign: bool = False  # one more file, of cardholders that were never sent
    nameless: bool = False  # result files under meaningless names


class Delivery(NamedTuple):
    """One result file: its key (a bare name until written), its chunk, the truth about its rows."""

    key: str
    chunk: str
    rows: tuple[Booked, ...]


class ResultThereError(TryAgainError):
    """Another process is answering the same chunks."""

    message = "{key} already exists."
    next_step = (
        "Another simulator is answering the same chunks; run the command again when it has ended."
    )


class Answered(NamedTuple):
    """What one call did: files delivered, chunks the portal refused (name, why), chunks waiting."""

    delivered: tuple[Delivery, ...]
    refused: tuple[tuple[str, str], ...]
    waiting: tuple[str, ...]

    @property
    def linked(self) -> int:
        """Rows delivered with a link."""
        return sum(row.url is not None for row in self._rows)

    @property
    def errors(self) -> int:
        """Rows delivered with an error."""
        return sum(row.url is None for row in self._rows)

    @property
    def _rows(self) -> Iterator[Booked]:
        return chain.from_iterable(delivery.rows for delivery in self.delivered)


def answer_store(
    adapters: Adapters, issuer: str, portal: Portal, habits: Habits | None = None
) -> Answered:
    """Upload every chunk not yet answered, and write its result file below `results/`."""
    person = _Person(adapters.store, issuer, portal, habits or Habits())
    for key, chunk in committed_chunks(adapters, issuer):
        person.carry(key, chunk)
    return person.finish()


def committed_chunks(adapters: Adapters, issuer: str) -> Iterator[tuple[str, str]]:
    """Yield key and upload name of every chunk of every run that has a manifest.

    Those of purged runs are done with.
    """
    for run in StoredRuns(adapters, issuer).committed():
        if run.purged_chunks is None:
            for stored in run.sealed_chunks.values():
                yield stored.key, stored.chunk.name


class _Person:
    """Carries chunks to the portal one by one, and at the end drops what came back."""

    def __init__(self, store: Store, issuer: str, portal: Portal, habits: Habits) -> None:
        self._store = store
        self._portal = portal
        self._habits = habits
        self._folder = results(issuer)
        self._there = {entry.key.removeprefix(self._folder) for entry in store.keys(self._folder)}
        self._ready: list[Delivery] = []
        self._refused: list[tuple[str, str]] = []
        self._waiting: list[str] = []

    def carry(self, key: str, chunk: str) -> None:
        """Upload one chunk, unless it is answered already or late today."""
        whole = self._name(chunk)
        first = self._name(chunk, "-1of2")
        second = self._name(chunk, "-2of2")
        if {whole, second} & self._there:
            return
        if first not in self._there and self._draws("late", chunk, self._portal.today):
            self._waiting.append(chunk)
            return
        rows = self._upload(key, chunk)
        half = len(rows) // 2
        if first in self._there:
            self._ready.append(Delivery(second, chunk, rows[half:]))
        elif half and self._draws("halves", chunk):
            self._ready.append(Delivery(first, chunk, rows[:half]))
        elif rows:
            self._ready.append(Delivery(whole, chunk, rows))

    def finish(self) -> Answered:
        """Write what came back, under the names the habits make of it."""
        names = [ready.key for ready in self._ready]
        if self._habits.swapped:
            names = names[1:] + names[:1]
        files = [ready._replace(key=name) for ready, name in zip(self._ready, names, strict=True)]
        files += [second_download(file) for file in files if self._draws("twice", file.chunk)]
        if self._habits.foreign:
            elsewhere = f"elsewhere-{self._portal.today:%Y%m%d}-00001"
            files.append(Delivery(self._name(elsewhere), elsewhere, (self._portal.foreign_row(),)))
        return Answered(tuple(map(self._drop, files)), tuple(self._refused), tuple(self._waiting))

    def _upload(self, key: str, chunk: str) -> tuple[Booked, ...]:
        try:
            self._portal.upload(chunk, _content(self._store, key))
        except UploadRefusedError as error:
            self._refused.append((chunk, error.fields["reason"]))
            return ()
        return self._portal.books[-1].rows

    def _drop(self, file: Delivery) -> Delivery:
        key = self._folder + file.key
        if not self._store.create(key, self._portal.result(file.rows)):
            raise ResultThereError(key=key)
        return file._replace(key=key)

    def _name(self, chunk: str, part: str = "") -> str:
        if self._habits.nameless:
            return f"download-{token(self._portal.seed, chunk, part)[:8]}.csv"
        return result_name(chunk, part)

    def _draws(self, habit: str, *names: object) -> bool:
        return chance(self._portal.seed, habit, *names) < float(getattr(self._habits, habit))


def result_name(chunk: str, part: str = "") -> str:
    """Return how a browser names the result of a chunk."""
    return f"card-links-{chunk.partition('.')[0]}-result{part}.csv"


def second_download(file: Delivery) -> Delivery:
    """Return the same result as a browser names its second download."""
    return file._replace(key=file.key.removesuffix(".csv") + " (1).csv")


def _content(store: Store, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()
