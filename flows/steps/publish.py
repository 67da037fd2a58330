"""Seal chunks in groups beside the reading, and publish them create-only, each read back before it counts.

A seal record (digests of ciphertext) is written before the ciphertext itself. After a crash, whatever lies under
a chunk's name is adopted only if a seal record names its digest; a truncated or foreign object never is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import polars as pl

from flows.core.chunk_csv import Header, write_chunk
from flows.core.errors import OperatorError, TryAgainError
from flows.core.names import RunKeys
from flows.core.planning import canonical, digest
from flows.core.ports import Plain, Sealed, Sealer, Store
from flows.steps.edges import read
from schemas.manifest import ManifestChunk

GROUP = 32  # chunks per gpg process
SEALERS = 2  # gpg processes at a time
WIRES = 16  # uploads at a time
AHEAD = 2 * SEALERS  # groups under way before reading waits


class ForeignChunkError(OperatorError):
    """Something that no run of ours sealed lies under a chunk's name."""

    says = "{0}: {1} bytes that this run did not seal (truncated or foreign). Nothing was overwritten."
    then = "Move the object away and find out who wrote it, then run the same command again."

    def __init__(self, key: str, size: int) -> None:
        super().__init__(key, size)


class PartialRunError(TryAgainError):
    """Some chunks could not be sealed or published; the others stand, nothing is committed."""

    says = "{0}: {1} chunks not published ({2}); {3} stand. Nothing is committed yet."
    then = "Run the same command again: cardlink submit {4} --extract {5}"

    def __init__(self, run: str, count: int, why: str, standing: int, issuer: str, extract: str) -> None:
        super().__init__(run, count, why, standing, issuer, extract)


class Draft(NamedTuple):
    """One chunk in the clear, with its number and rows."""

    number: int
    rows: int
    plain: Plain


class Outcome(NamedTuple):
    """What became of one chunk: published, or the code of its trouble."""

    number: int
    chunk: ManifestChunk | None
    trouble: str = ""


class Publisher:
    """Take chunks in order, publish them out of order, give them back in order."""

    def __init__(self, store: Store, sealer: Sealer, keys: RunKeys, header: Header, extension: str) -> None:
        self._store = store
        self._sealer = sealer
        self._keys = keys
        self._header = header
        self._extension = extension
        self._records = self._read_records()
        self._present = {entry.key.rpartition("/")[2] for entry in store.keys(keys.chunks)}
        self._sealers = ThreadPoolExecutor(SEALERS, "seal")
        self._wires = ThreadPoolExecutor(WIRES, "publish")
        self._group: list[Draft] = []
        self._under_way: list[Future[list[Outcome]]] = []
        self._outcomes: list[Outcome] = []
        self.count = 0

    def add(self, rows: pl.DataFrame) -> int:
        """Take one chunk's rows and return its number (from 1); waits where sealing is behind."""
        self.count += 1
        plain = Plain(self._keys.chunk_name(self.count, "csv"), write_chunk(rows, self._header))
        self._group.append(Draft(self.count, rows.height, plain))
        if len(self._group) == GROUP:
            self._send()
        return self.count

    def finish(self) -> list[Outcome]:
        """Return the outcome of every chunk, in order, and end the threads."""
        self._send()
        while self._under_way:
            self._collect()
        self.close()
        return sorted(self._outcomes, key=lambda outcome: outcome.number)

    def close(self) -> None:
        """End the threads; what is under way is finished, what waits is dropped."""
        self._sealers.shutdown(cancel_futures=True)
        self._wires.shutdown(cancel_futures=True)

    def _send(self) -> None:
        if not self._group:
            return
        if len(self._under_way) >= AHEAD:
            self._collect()
        group, self._group = self._group, []
        self._under_way.append(self._sealers.submit(self._publish, group))

    def _collect(self) -> None:
        self._outcomes += self._under_way.pop(0).result()

    def _publish(self, group: list[Draft]) -> list[Outcome]:
        there = [draft for draft in group if self._name(draft) in self._present]
        todo = [draft for draft in group if self._name(draft) not in self._present]
        outcomes = list(self._wires.map(self._adopt, there))
        sealed = self._sealer.seal([draft.plain for draft in todo]) if todo else []
        self._record(zip(todo, sealed, strict=True))
        return outcomes + list(self._wires.map(self._store_one, todo, sealed))

    def _store_one(self, draft: Draft, sealed: Sealed) -> Outcome:
        if sealed.trouble:
            return Outcome(draft.number, None, sealed.trouble)
        try:
            self._store.create(self._key(draft), sealed.data)
        except TryAgainError as error:
            return Outcome(draft.number, None, type(error).__name__)
        return self._adopt(draft)

    def _adopt(self, draft: Draft) -> Outcome:
        """Read back what lies under the chunk's name; it counts if a seal record of this run names its digest."""
        try:
            stored = read(self._store, self._key(draft))
        except TryAgainError as error:
            return Outcome(draft.number, None, type(error).__name__)
        name, found = self._name(draft), digest(stored)
        if found not in self._records.get(name, ()):  # a twin may have sealed it since we looked
            self._records = self._read_records()
        if found not in self._records.get(name, ()):
            raise ForeignChunkError(self._key(draft), len(stored))
        return Outcome(
            draft.number,
            ManifestChunk(number=draft.number, name=name, rows=draft.rows, bytes=len(stored), sha256=found),
        )

    def _record(self, sealed: Iterable[tuple[Draft, Sealed]]) -> None:
        digests = {self._name(draft): digest(one.data) for draft, one in sealed if not one.trouble}
        if not digests:
            return
        record = canonical(digests)
        self._store.create(f"{self._keys.seals}{min(digests)}-{digest(record)[:16]}.json", record)
        for name, found in digests.items():
            self._records.setdefault(name, set()).add(found)

    def _read_records(self) -> dict[str, set[str]]:
        records: dict[str, set[str]] = {}
        for entry in list(self._store.keys(self._keys.seals)):
            for name, found in json.loads(read(self._store, entry.key)).items():
                records.setdefault(name, set()).add(found)
        return records

    def _name(self, draft: Draft) -> str:
        return self._keys.chunk_name(draft.number, self._extension)

    def _key(self, draft: Draft) -> str:
        return self._keys.chunk(draft.number, self._extension)
