"""The chunks of a committed run: as they were sealed last, and their states.

waiting ──uploaded──► uploaded ──(its result)──► answered
   │ ▲                    │
 held  released ◄─────────┘ (marked by mistake)
   ▼ │
 held ──cancelled──► cancelled

A result answers a chunk in any state: ingest works whether or not an operator marked the upload.
So `answered` is no column of the table `chunk`; what an operator does is, and an entry of the
journal.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, select

from flows.redaction import redact
from flows.runs.keys import RunKeys
from schemas.database import CHUNK
from schemas.manifest import Manifest, ManifestChunk
from schemas.records import Reseal

State = Literal["waiting", "held", "uploaded", "answered", "cancelled"]
Move = Literal["uploaded", "held", "released", "cancelled"]
MOVES: dict[Move, tuple[frozenset[State], State]] = {
    "uploaded": (frozenset({"waiting"}), "uploaded"),
    "held": (frozenset({"waiting"}), "held"),
    "released": (frozenset({"held", "uploaded"}), "waiting"),
    "cancelled": (frozenset({"waiting", "held"}), "cancelled"),
}
OPEN: frozenset[State] = frozenset({"waiting", "held", "uploaded"})
EXPECTING: frozenset[Move] = frozenset({"uploaded", "released"})  # its result, from then on


class OutboxChunk(NamedTuple):
    """One chunk in the outbox: its state, since when, and from when its result is expected."""

    run: str
    chunk: ManifestChunk
    state: State
    since: datetime
    clock: datetime
    reason: str = ""

    def overdue(self, now: datetime, within: timedelta) -> bool:
        """Return whether a result should have come.

        None is expected for a chunk that is on hold or cancelled.
        """
        return self.state in ("waiting", "uploaded") and now - self.clock > within


def as_offered(now: datetime, actor: str) -> dict[str, Any]:
    """Return the state of a chunk whose run is committed now, as columns of its row."""
    by = redact(actor)
    return {"state": "waiting", "since": now, "by": by, "reason": "", "expected": now}


def chunk_states(connection: Connection, issuer: str, run: str) -> dict[int, Row[Any]]:
    """Return in which state the chunks of a run are (`state`, `since`, `expected`, `reason`)."""
    columns = (CHUNK.c[name] for name in ("number", "state", "since", "expected", "reason"))
    query = select(*columns).where(CHUNK.c.issuer == issuer, CHUNK.c.run == run)
    return {row.number: row for row in connection.execute(query)}


def in_outbox(
    run: str, chunks: Iterable[ManifestChunk], states: Mapping[int, Any]
) -> list[OutboxChunk]:
    """Return chunks with their states, by number."""
    with_state = ((chunk, states[chunk.number]) for chunk in chunks)
    return [
        OutboxChunk(run, chunk, state.state, state.since, state.expected, state.reason)
        for chunk, state in with_state
    ]


class StoredChunk(NamedTuple):
    """One chunk as it is now: its object's size and digest, its key, and whom it is sealed to."""

    chunk: ManifestChunk
    key: str
    recipients: tuple[str, ...]


def chunks_as_sealed(
    keys: RunKeys, manifest: Manifest, reseals: Iterable[Reseal]
) -> dict[int, StoredChunk]:
    """Return the chunks of a committed run by number, each as the last of its reseals has it."""
    chunks = {
        chunk.number: StoredChunk(chunk, keys.chunks + chunk.name, manifest.recipients)
        for chunk in manifest.chunks
    }
    for reseal in reseals:
        folder = keys.sealed(reseal.generation)
        for chunk in reseal.chunks:
            chunks[chunk.number] = StoredChunk(chunk, folder + chunk.name, reseal.recipients)
    return chunks
