"""Seal chunks in groups beside the reading, and publish them create-only, each read back before it counts.

The digests of a group's ciphertext are written before the ciphertext itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError, TryAgainError
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import RunKeys
from flows.runs.sealing import Plain, Sealed, Sealer
from flows.runs.store import ConflictError, ObjectDamagedError, ObjectMissingError, Store, StoreBusyError, read
from flows.submissions.chunking import write_chunk
from schemas.manifest import ManifestChunk

CONTESTS = 16  # twins that seal the same group at the same moment

GROUP = 32  # chunks per gpg process and seal record; another number finds no older record: raise RECIPE with it
SEALERS = 2  # gpg processes at a time
PREFETCHED = 2 * SEALERS  # groups under way before reading waits
ENOUGH = 100  # troubled chunks after which the trouble is not the chunks' own


class SealRecords:
    """The records of one group of chunks of one run, as far as they have been read."""

    def __init__(self, store: Store, prefix: str, group: int) -> None:
        self._store = store
        self._base = f"{prefix}{group:05d}-"
        self._length = 0
        self._digests: dict[str, set[str]] = {}
        self._reading = Lock()  # the uploads of a group ask at once
        self.catch_up()

    @property
    def empty(self) -> bool:
        """True where nobody has sealed any chunk of the group yet."""
        return self._length == 0

    def names(self, chunk: str, digest: str) -> bool:
        """Tell whether this run has sealed `chunk` to exactly these bytes; a twin may have done so just now."""
        if digest not in self._digests.get(chunk, ()):
            self.catch_up()
        return digest in self._digests.get(chunk, ())

    def add(self, digests: Mapping[str, str]) -> None:
        """Write the digests of freshly sealed chunks, by chunk name, as the chain's next record."""
        record = canonical(dict(digests))
        for _ in range(CONTESTS):
            if self._store.create(self._key(self._length + 1), record):
                self._take(digests)
                return
            self.catch_up()
        raise StoreBusyError(place=self._base, code="contested")

    def catch_up(self) -> None:
        """Read what has been added to the chain since."""
        with self._reading:
            while (record := _read(self._store, self._key(self._length + 1))) is not None:
                self._take(record)

    def _take(self, digests: Mapping[str, str]) -> None:
        self._length += 1
        for chunk, sha256 in digests.items():
            self._digests.setdefault(chunk, set()).add(sha256)

    def _key(self, number: int) -> str:
        return f"{self._base}{number:03d}.json"


def _read(store: Store, key: str) -> dict[str, str] | None:
    try:
        record = json.loads(read(store, key))
    except ObjectMissingError:
        return None
    except ValueError:  # no JSON: not ours, and raised below without a chain
        record = None
    if not isinstance(record, dict):
        raise ConflictError(key=key)
    return record


class ForeignChunkError(OperatorError):
    """There is an unknown object at a chunk's key."""

    message = "{key}: unknown object of {size} bytes at a chunk's key (truncated or foreign). Nothing was overwritten."
    next_step = "Move the object away and find out who wrote it, then run the same command again."


class PartialRunError(TryAgainError):
    """Some chunks could not be sealed or published; the others stand, nothing is committed."""

    message = "{run}: {count} chunks not published ({reason}); {published} are. Nothing is committed yet."
    next_step = "To finish it: {command}"


class ChunkDraft(NamedTuple):
    """One chunk in the clear: its number, upload name and lines, which become one text where they are sealed."""

    number: int
    name: str
    text: pl.Series


class SealedChunk(NamedTuple):
    """One chunk as it was sealed just now, and its digest; `trouble` is a code where that did not work."""

    data: bytes
    sha256: str
    trouble: str


class Outcome(NamedTuple):
    """What became of one chunk: published, or the code of its trouble; `foreign` needs an operator."""

    number: int
    chunk: ManifestChunk | None
    trouble: str = ""
    foreign: ForeignChunkError | None = None


class Publisher:
    """Take chunks in order, publish them out of order, give them back in order."""

    def __init__(self, context: IssuerContext, sealer: Sealer, keys: RunKeys) -> None:
        self._store = context.adapters.store
        self._sealer = sealer
        self._keys = keys
        self._header = context.header
        self._extension = context.issuer.portal.extension
        self._sealers = ThreadPoolExecutor(SEALERS, "seal")
        self._connections = ThreadPoolExecutor(context.adapters.connections, "publish")
        self._group: list[ChunkDraft] = []
        self._under_way: list[Future[list[Outcome]]] = []
        self._outcomes: list[Outcome] = []
        self._troubled = 0
        self.count = 0

    @property
    def has_given_up(self) -> bool:
        """True once so many chunks are in trouble that more of them would only take time."""
        return self._troubled >= ENOUGH

    def add(self, rows: pl.DataFrame) -> int:
        """Take one chunk's rows and return its number (from 1); waits where sealing is behind."""
        self.count += 1
        self._group.append(ChunkDraft(self.count, self._keys.chunk_name(self.count, self._extension), rows["text"]))
        if len(self._group) == GROUP:
            self.send()
        return self.count

    def send(self) -> None:
        """Begin with the chunks taken last; where they are no whole group, no others may follow."""
        if not self._group:
            return
        if len(self._under_way) >= PREFETCHED:
            self._collect()
        group, self._group = self._group, []
        self._under_way.append(self._sealers.submit(self._publish, group))

    def finish(self) -> list[Outcome]:
        """Return the outcome of every chunk, in order, and end the threads."""
        self.send()
        while self._under_way:
            self._collect()
        self.close()
        return sorted(self._outcomes, key=lambda outcome: outcome.number)

    def close(self) -> None:
        """End the threads: requests and gpg processes under way are finished, what waits is dropped."""
        self._connections.shutdown(wait=False, cancel_futures=True)
        self._sealers.shutdown(cancel_futures=True)
        self._connections.shutdown()

    def _collect(self) -> None:
        outcomes = self._under_way.pop(0).result()
        self._troubled += sum(outcome.chunk is None for outcome in outcomes)
        self._outcomes += outcomes

    def _publish(self, group: Sequence[ChunkDraft]) -> list[Outcome]:
        try:
            return self._publish_group(group)
        except TryAgainError as error:  # its seal records could not be read or written
            return [Outcome(draft.number, None, type(error).__name__) for draft in group]

    def _publish_group(self, group: Sequence[ChunkDraft]) -> list[Outcome]:
        """Adopt what a dead run or a twin published, seal and publish the rest."""
        records = SealRecords(self._store, self._keys.seals, (group[0].number - 1) // GROUP)
        there: list[Outcome | None] = [None] * len(group)
        if not records.empty:
            there = list(self._connections.map(lambda draft: self._adopt(draft, records), group))
        todo = [draft for draft, outcome in zip(group, there, strict=True) if outcome is None]
        fresh = [SealedChunk(one.data, digest(one.data), one.trouble) for one in self._seal(todo)]
        digests = {draft.name: one.sha256 for draft, one in zip(todo, fresh, strict=True) if not one.trouble}
        if digests:
            records.add(digests)
        stored = self._connections.map(lambda draft, one: self._store_one(draft, one, records), todo, fresh)
        return [outcome for outcome in there if outcome is not None] + list(stored)

    def _seal(self, todo: Sequence[ChunkDraft]) -> list[Sealed]:
        """Seal drafts, those that did not work once more: a gpg that was killed takes its whole group along."""
        plain = [Plain(self._keys.chunk_name(one.number, "csv"), write_chunk(one.text, self._header)) for one in todo]
        sealed = self._sealer.seal(plain) if plain else []
        again = [at for at, one in enumerate(sealed) if one.trouble]
        if again:
            for at, one in zip(again, self._sealer.seal([plain[at] for at in again]), strict=True):
                sealed[at] = one
        return sealed

    def _store_one(self, draft: ChunkDraft, fresh: SealedChunk, records: SealRecords) -> Outcome:
        if fresh.trouble:
            return Outcome(draft.number, None, fresh.trouble)
        try:
            self._store.create(self._key(draft), fresh.data)
        except TryAgainError as error:
            return Outcome(draft.number, None, type(error).__name__)
        return self._adopt(draft, records, fresh) or Outcome(draft.number, None, ObjectMissingError.__name__)

    def _adopt(self, draft: ChunkDraft, records: SealRecords, fresh: SealedChunk | None = None) -> Outcome | None:
        """Read back what lies under a chunk's name: it counts where a seal record names it; None for nothing."""
        try:
            size, sha256 = self._settled(draft, records, fresh)
        except ObjectMissingError:
            return None
        except TryAgainError as error:
            return Outcome(draft.number, None, type(error).__name__)
        except ForeignChunkError as error:
            return Outcome(draft.number, None, type(error).__name__, error)
        chunk = ManifestChunk(number=draft.number, name=draft.name, rows=len(draft.text), bytes=size, sha256=sha256)
        return Outcome(draft.number, chunk)

    def _settled(self, draft: ChunkDraft, records: SealRecords, fresh: SealedChunk | None) -> tuple[int, str]:
        """Return size and digest of what lies under a chunk's name."""
        key = self._key(draft)
        stored = read(self._store, key)
        sha256 = fresh.sha256 if fresh is not None and fresh.data == stored else digest(stored)
        if records.names(draft.name, sha256):
            return len(stored), sha256
        if read(self._store, key) != stored:  # damaged on its way here, not where it lies
            raise ObjectDamagedError(key=key)
        raise ForeignChunkError(key=key, size=len(stored))

    def _key(self, draft: ChunkDraft) -> str:
        return self._keys.chunks + draft.name
