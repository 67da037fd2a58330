"""The chunks of a committed run: as they were sealed last, and their states.

waiting ──uploaded──► uploaded ──(its result)──► answered
   │ ▲                    │
 held  released ◄─────────┘ (marked by mistake)
   ▼ │
 held ──cancelled──► cancelled

A result answers a chunk in any state: ingest works whether or not an operator marked the upload.
What an operator does is an event of the run, written once and never changed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from flows.runs.keys import RunKeys
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


class ChunkEvent(NamedTuple):
    """One event of a run: what was done to which chunks (none named: all), when and why."""

    move: Move
    at: datetime
    chunks: frozenset[int] = frozenset()
    reason: str = ""


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


def outbox_chunks(
    run: str,
    chunks: Sequence[ManifestChunk],
    committed: datetime,
    moves: Iterable[ChunkEvent],
    answered: Collection[int] = (),
) -> list[OutboxChunk]:
    """Return every chunk with the state that the moves, in order of time, have brought it to."""
    states = {
        chunk.number: OutboxChunk(run, chunk, "waiting", committed, committed) for chunk in chunks
    }
    for move in sorted(moves, key=lambda move: move.at):
        for number in move.chunks or states.keys():
            if number in states:
                states[number] = _moved(states[number], move)
    for number in states.keys() & set(answered):
        states[number] = states[number]._replace(state="answered")
    return [state for _, state in sorted(states.items())]


def _moved(chunk: OutboxChunk, move: ChunkEvent) -> OutboxChunk:
    """Return a chunk after a move; one that its state does not allow changes nothing."""
    allowed, state = MOVES[move.move]
    if chunk.state not in allowed:
        return chunk
    moved = chunk._replace(state=state, since=move.at, reason=move.reason)
    expects_result = move.move in ("uploaded", "released")
    return moved._replace(clock=move.at) if expects_result else moved


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


def moves_in(
    events: Iterable[Mapping[str, Any]], chunks: Iterable[ManifestChunk]
) -> Iterator[ChunkEvent]:
    """Yield what the events of a run did to its chunks."""
    numbers = {chunk.name: chunk.number for chunk in chunks}
    for event in events:
        if event["what"] in MOVES:
            names = event.get("chunks") or ()
            moved = frozenset(numbers[name] for name in names if name in numbers)
            moment = datetime.fromisoformat(event["at"])
            yield ChunkEvent(event["what"], moment, moved, event.get("reason", ""))
