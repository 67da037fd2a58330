"""Seal chunks in groups while the extract is still being read, and publish them create-only.

Their names have the epoch of the claim under which they are sealed: whoever takes a run over seals
all of it under names of its own, and what the last holder has sealed or still seals is never
committed.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import polars as pl

from flows.errors import LimitError, TryAgainError
from flows.runs.context import IssuerContext
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.sealing import Plain, Sealed, Sealer
from flows.runs.store import read
from flows.stopping import uninterrupted
from flows.submissions.chunk_csv import write_chunk
from schemas.manifest import ManifestChunk

GROUP = 32  # chunks per gpg process
SEALERS = 2  # gpg processes at a time
NAME_TAKEN = "name.taken"  # the trouble of a chunk whose name another object has
ENOUGH = 100  # failed chunks after which the cause is not the chunks' own


class PartialRunError(TryAgainError):
    """Some chunks could not be sealed or published; nothing is committed."""

    message = "{run}: {count:chunk} not published ({reason}). Nothing is committed yet."
    next_step = "To finish it: {command:bare}"


class ChunkDraft(NamedTuple):
    """One chunk in the clear: its number, upload name and lines."""

    number: int
    name: str
    text: pl.Series


class Outcome(NamedTuple):
    """What became of one chunk: published, or why not (`trouble`, a code)."""

    number: int
    chunk: ManifestChunk | None
    trouble: str = ""


class Publisher:
    """Take chunks in order, publish them in any order, return their outcomes in order.

    Without `sealer` chunks are only counted. `epoch`: of the claim on the run.
    """

    def __init__(
        self, context: IssuerContext, sealer: Sealer | None, keys: RunKeys, epoch: int = 1
    ) -> None:
        self._store = context.adapters.store
        self._sealer = sealer
        self._keys = keys
        self._epoch = epoch
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
        name = self._keys.chunk_name(self.count, self._extension, self._epoch)
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
        """Seal a group and store its chunks."""
        sealed = zip(group, self._seal(group), strict=True)
        return list(self._connections.map(lambda chunk: self._store_chunk(*chunk), sealed))

    def _seal(self, drafts: Sequence[ChunkDraft]) -> list[Sealed]:
        """Seal drafts, and those that failed once more.

        A gpg process that was killed takes its whole group with it.
        """
        if self._sealer is None:
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
        return sealed

    def _store_chunk(self, draft: ChunkDraft, sealed: Sealed) -> Outcome:
        """Write one chunk that was sealed just now."""
        if sealed.trouble:
            return _troubled(draft, sealed.trouble)
        key = self._keys.chunks + draft.name
        try:
            is_stored = self._store.create(key, sealed.data)
            # a write that was repeated because no response came may have found itself
            if not is_stored and read(self._store, key) != sealed.data:
                return _troubled(draft, NAME_TAKEN)
        except LimitError:  # of this machine, so no chunk will fare better
            raise
        except TryAgainError as error:
            return _troubled(draft, type(error).__name__)
        chunk = ManifestChunk(
            number=draft.number,
            name=draft.name,
            rows=len(draft.text),
            bytes=len(sealed.data),
            sha256=digest(sealed.data),
        )
        return Outcome(draft.number, chunk)


def _troubled(draft: ChunkDraft, trouble: str) -> Outcome:
    return Outcome(draft.number, None, trouble)
