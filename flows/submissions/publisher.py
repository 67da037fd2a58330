"""Seal chunks in groups while the extract is still being read, and publish them create-only.

A chunk counts once it was read back and a seal record names its digest; so a chunk that a dead run
or a concurrent process published is adopted rather than sealed again.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import polars as pl

from flows.errors import LimitError, OperatorError, TryAgainError
from flows.runs.context import IssuerContext
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.sealing import Plain, Sealed, Sealer
from flows.runs.store import ObjectDamagedError, ObjectMissingError, read
from flows.stopping import uninterrupted
from flows.submissions.chunk_csv import write_chunk
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.manifest import ManifestChunk

SEALERS = 2  # gpg processes at a time
ENOUGH = 100  # failed chunks after which the cause is not the chunks' own


class ForeignChunkError(OperatorError):
    """An unknown object is at a chunk's key."""

    message = (
        "{key}: unknown object of {size} bytes at a chunk's key (truncated or foreign). "
        "Nothing was overwritten."
    )
    next_step = "Move the object away and find out who wrote it, then run {same_command} again."


class PartialRunError(TryAgainError):
    """Some chunks could not be sealed or published.

    The others are published; nothing is committed.
    """

    message = (
        "{run}: {count:chunk} not published ({reason}); {published} are. Nothing is committed yet."
    )
    next_step = "To finish it: {command:bare}"


class ChunkDraft(NamedTuple):
    """One chunk in the clear: its number, upload name and lines."""

    number: int
    name: str
    text: pl.Series


class SealedDraft(NamedTuple):
    """A chunk that was sealed just now, or that could not be sealed: `sealed.trouble` says why."""

    draft: ChunkDraft
    sealed: Sealed
    sha256: str


class Outcome(NamedTuple):
    """What became of one chunk: published, or why not (`trouble`, a code)."""

    number: int
    chunk: ManifestChunk | None
    trouble: str = ""
    foreign: ForeignChunkError | None = None  # an operator must act


class Publisher:
    """Take chunks in order, publish them in any order, return their outcomes in order.

    Without `sealer` chunks are only counted.
    """

    def __init__(self, context: IssuerContext, sealer: Sealer | None, keys: RunKeys) -> None:
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
        """Whether so many chunks have failed that going on would only take time."""
        return self._troubled >= ENOUGH

    def add(self, rows: pl.DataFrame) -> int:
        """Take one chunk's rows and return its number (from 1); waits while sealing is behind."""
        self.count += 1
        name = self._keys.chunk_name(self.count, self._extension)
        if self._sealer is None:
            chunk = ManifestChunk(
                number=self.count, name=name, rows=rows.height, bytes=0, sha256=""
            )
            self._outcomes.append(Outcome(self.count, chunk))
            return self.count
        self._group.append(ChunkDraft(self.count, name, rows["text"]))
        if len(self._group) == GROUP:
            self.send()
        return self.count

    def send(self) -> None:
        """Seal and publish the waiting chunks; a group that is not full must be the last."""
        if not self._group:
            return
        if len(self._under_way) > SEALERS:  # one more than are sealed waits
            self._collect()
        group = self._group
        self._group = []
        # a stop in between would leave work that nobody waits for, sealing on after the end
        with uninterrupted():
            self._under_way.append(self._sealers.submit(self._publish, group))

    def finish(self) -> list[Outcome]:
        """Return the outcome of every chunk, in order, and end the threads."""
        self.send()
        while self._under_way:
            self._collect()
        self.close()
        return sorted(self._outcomes)  # by number, which no two have

    def close(self) -> None:
        """End the threads: requests and gpg processes in progress finish, what waits is dropped."""
        self._connections.shutdown(cancel_futures=True)
        self._sealers.shutdown(cancel_futures=True)

    def _collect(self) -> None:
        outcomes = self._under_way.pop(0).result()
        self._troubled += sum(outcome.chunk is None for outcome in outcomes)
        self._outcomes += outcomes

    def _publish(self, group: Sequence[ChunkDraft]) -> list[Outcome]:
        try:
            return self._publish_group(group)
        except LimitError:  # of this machine, so no chunk will fare better
            raise
        except TryAgainError as error:  # its seal records could not be read or written
            return [_troubled(draft, type(error).__name__) for draft in group]

    def _publish_group(self, group: Sequence[ChunkDraft]) -> list[Outcome]:
        """Adopt what a dead run or a concurrent process published, seal and publish the others."""
        records = SealRecords(self._store, self._keys.seals, (group[0].number - 1) // GROUP)
        adopted = self._adopt_published(group, records) if records.length else []
        known = {outcome.number for outcome in adopted}
        fresh = self._seal([draft for draft in group if draft.number not in known])
        digests = {chunk.draft.name: chunk.sha256 for chunk in fresh if not chunk.sealed.trouble}
        if digests:
            records.add(digests)
        return adopted + list(self._connections.map(partial(self._store_chunk, records), fresh))

    def _adopt_published(self, group: Sequence[ChunkDraft], records: SealRecords) -> list[Outcome]:
        """Return the outcomes of the chunks of a group at whose keys there is an object."""
        outcomes = self._connections.map(partial(self._read_back, records), group)
        return [outcome for outcome in outcomes if outcome is not None]

    def _seal(self, drafts: Sequence[ChunkDraft]) -> list[SealedDraft]:
        """Seal drafts, and those that failed once more.

        A gpg process that was killed takes its whole group with it.
        """
        if self._sealer is None or not drafts:
            return []
        plain = [
            Plain(self._keys.chunk_name(draft.number, "csv"), write_chunk(draft.text, self._header))
            for draft in drafts
        ]
        sealed = list(self._sealer.seal(plain))
        failed = [place for place, chunk in enumerate(sealed) if chunk.trouble]
        if failed:
            resealed = self._sealer.seal([plain[place] for place in failed])
            for place, chunk in zip(failed, resealed, strict=True):
                sealed[place] = chunk
        return [
            SealedDraft(draft, chunk, digest(chunk.data))
            for draft, chunk in zip(drafts, sealed, strict=True)
        ]

    def _store_chunk(self, records: SealRecords, fresh: SealedDraft) -> Outcome:
        """Write one chunk that was sealed just now, and read it back."""
        draft, sealed, _ = fresh
        if sealed.trouble:
            return _troubled(draft, sealed.trouble)
        try:
            self._store.create(self._keys.chunks + draft.name, sealed.data)
        except TryAgainError as error:
            return _troubled(draft, type(error).__name__)
        outcome = self._read_back(records, draft, fresh)
        return outcome or _troubled(draft, ObjectMissingError.__name__)

    def _read_back(
        self, records: SealRecords, draft: ChunkDraft, fresh: SealedDraft | None = None
    ) -> Outcome | None:
        """Return the outcome of the object at a chunk's key, None where there is none.

        The object counts where a seal record names its digest. `fresh` is what was sealed just
        now, so that the same bytes are not hashed twice.
        """
        key = self._keys.chunks + draft.name
        try:
            stored = read(self._store, key)
            if fresh is not None and stored == fresh.sealed.data:
                sha256 = fresh.sha256
            else:
                sha256 = digest(stored)
            is_ours = records.names(draft.name, sha256)
            # other bytes on a second look: damaged in transit, not in the store
            if not is_ours and read(self._store, key) != stored:
                return _troubled(draft, ObjectDamagedError.__name__)
        except ObjectMissingError:
            return None
        except TryAgainError as error:
            return _troubled(draft, type(error).__name__)
        if not is_ours:
            foreign = ForeignChunkError(key=key, size=len(stored))
            return Outcome(draft.number, None, foreign=foreign)
        chunk = ManifestChunk(
            number=draft.number,
            name=draft.name,
            rows=len(draft.text),
            bytes=len(stored),
            sha256=sha256,
        )
        return Outcome(draft.number, chunk)


def _troubled(draft: ChunkDraft, trouble: str) -> Outcome:
    return Outcome(draft.number, None, trouble)
