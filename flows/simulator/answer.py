"""The person between store and portal: uploads the chunks of committed runs and drops the result
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flows.errors import TryAgainError
from flows.runs.chunks import stored_chunks
from flows.runs.documents import manifests, read_purged
from flows.runs.keys import keys_of, results
from flows.runs.store import Store
from flows.simulator.chance import chance, token
from flows.simulator.portal import Booked, Portal, UploadRefusedError


class Habits(NamedTuple):
    """How results arrive: shares of chunks answered late, twice, in halves; swapped names, foreign
    files.
    """

    late: float = 0.0  # not today: drawn again on the portal's next day
    twice: float = 0.0  # the same result under two names, as a browser's second download
    halves: float = 0.0  # half of the rows now, the others by the next call
    swapped: bool = False  # each result under the name of its neighbour's
    foreign: bool = False  # one more file, of cardholders that were never sent
    nameless: bool = False  # result files under meaningless names


class Delivery(NamedTuple):
    """One result file: its key (a bare name until written), the chunk it answers and the truth
    about its rows.
    """

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
    """What one call did: files delivered, chunks refused by the portal (name, why), chunks still
    waiting.
    """

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


def answer_store(
    store: Store, issuer: str, portal: Portal, habits: Habits | None = None
) -> Answered:
    """Upload every chunk not yet answered and write its result file under the issuer's
    `results/`.
    """
    person = _Person(store, issuer, portal, habits or Habits())
    for key, chunk in committed_chunks(store, issuer):
        person.carry(key, chunk)
    return person.finish()


def committed_chunks(store: Store, issuer: str) -> Iterator[tuple[str, str]]:
    """Yield key and upload name of every chunk of every run that has a manifest; purged ones are
    done with.
    """
    for manifest in manifests(store, issuer):
        if read_purged(store, keys_of(manifest.run), "chunks") is None:
            yield from (
                (one.key, one.chunk.name) for one in stored_chunks(store, manifest).values()
            )


class _Person:
    """Carries chunks to the portal one by one, and at the end drops what came back."""

    def __init__(self, store: Store, issuer: str, portal: Portal, habits: Habits) -> None:
        self._store, self._portal, self._habits = store, portal, habits
        self._folder = results(issuer)
        self._there = {entry.key.removeprefix(self._folder) for entry in store.keys(self._folder)}
        self._ready: list[Delivery] = []
        self._refused: list[tuple[str, str]] = []
        self._waiting: list[str] = []

    def carry(self, key: str, chunk: str) -> None:
        """Upload one chunk, unless it is answered already or late today."""
        whole, first, second = (self._name(chunk, part) for part in ("", "-1of2", "-2of2"))
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
        files += [again(file) for file in files if self._draws("twice", file.chunk)]
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
        return f"card-links-{chunk.partition('.')[0]}-result{part}.csv"

    def _draws(self, habit: str, *names: object) -> bool:
        return chance(self._portal.seed, habit, *names) < float(getattr(self._habits, habit))


def again(file: Delivery) -> Delivery:
    """Return the same result as a browser names its second download."""
    return file._replace(key=file.key.removesuffix(".csv") + " (1).csv")


def _content(store: Store, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()
