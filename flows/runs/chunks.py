"""The chunks of a committed run as they count now: where each is stored, and its state between upload and result.

waiting ──uploaded──► uploaded ──(its result)──► answered
   │ ▲                    │
 held  released ◄─────────┘ (marked by mistake)
   ▼ │
 held ──cancelled──► cancelled

A result answers a chunk whatever was marked before it: ingest works whether or not anyone marked anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, get_args

from flows.runs.chains import records
from flows.runs.context import Adapters
from flows.runs.documents import UnknownRunError, keys_of, read_manifest, read_purged, run_ids
from flows.runs.keys import RunKeys
from flows.runs.outcomes import StoredOutcomes
from flows.runs.store import Store, read
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

_WHAT = re.compile(rf"-({'|'.join(['committed', *get_args(Move)])})-[0-9a-f]{{8}}\.json$")


class ChunkEvent(NamedTuple):
    """One event of a run: what was done to which chunks (none named: all of them), when, and why."""

    move: Move
    at: datetime
    by: str = ""
    chunks: frozenset[int] = frozenset()
    reason: str = ""


class Item(NamedTuple):
    """One chunk in the outbox: its state, since when, and when the clock of its expected answer began."""

    run: str
    chunk: ManifestChunk
    state: State
    since: datetime
    clock: datetime
    reason: str = ""

    def overdue(self, now: datetime, within: timedelta) -> bool:
        """True where an answer should have come: a chunk that was held back or cancelled has none to expect."""
        return self.state in ("waiting", "uploaded") and now - self.clock > within


def items(
    run: str,
    chunks: Sequence[ManifestChunk],
    committed: datetime,
    moves: Iterable[ChunkEvent],
    answered: Collection[int] = (),
) -> list[Item]:
    """Tell every chunk's state from the moves, oldest first; a move that does not fit the state changes nothing."""
    found = {chunk.number: Item(run, chunk, "waiting", committed, committed) for chunk in chunks}
    for move in sorted(moves, key=lambda one: one.at):
        for number in move.chunks or found.keys():
            if number in found:
                found[number] = after(found[number], move)
    return [
        item._replace(state="answered") if item.chunk.number in answered else item for _, item in sorted(found.items())
    ]


def after(item: Item, move: ChunkEvent) -> Item:
    """Return how a chunk stands after a move; one that does not fit its state changes nothing."""
    fits, state = MOVES[move.move]
    if item.state not in fits:
        return item
    clock = move.at if move.move in ("uploaded", "released") else item.clock
    return item._replace(state=state, since=move.at, clock=clock, reason=move.reason)


class StoredChunk(NamedTuple):
    """One chunk as it counts now: its object's size and digest, its key, and whom it is sealed to."""

    chunk: ManifestChunk
    key: str
    recipients: tuple[str, ...]


def current_chunks(keys: RunKeys, manifest: Manifest, reseals: Iterable[Reseal]) -> dict[int, StoredChunk]:
    """Return the chunks of a run by number; of several sealings of one the last counts."""
    found = {one.number: StoredChunk(one, keys.chunks + one.name, manifest.recipients) for one in manifest.chunks}
    for reseal in reseals:
        place = keys.sealed(reseal.generation)
        found |= {one.number: StoredChunk(one, place + one.name, reseal.recipients) for one in reseal.chunks}
    return found


def stored_chunks(store: Store, manifest: Manifest) -> dict[int, StoredChunk]:
    """Return where every chunk of a committed run lies, by number."""
    keys = keys_of(manifest.run)
    return current_chunks(keys, manifest, records(store, keys.reseals, Reseal))


def as_it_lies(store: Store, manifest: Manifest) -> Manifest:
    """Return a manifest with size and digest of its chunks as they count now."""
    return manifest.model_copy(update={"chunks": tuple(one.chunk for one in stored_chunks(store, manifest).values())})


def outbox(adapters: Adapters, run: str) -> list[Item]:
    """Return every chunk of a committed run with its state; UnknownRunError before the commit."""
    return _read(adapters.store, keys_of(run), True)


def outboxes(adapters: Adapters, issuer: str, states: Collection[State] = OPEN) -> Iterator[Item]:
    """Yield the chunks of an issuer's runs that are in one of these states, oldest run first."""
    for run in run_ids(adapters.store, issuer):
        yield from (item for item in _read(adapters.store, RunKeys(run), False) if item.state in states)


def _read(store: Store, keys: RunKeys, must: bool) -> list[Item]:
    manifest = read_manifest(store, keys)
    if manifest is None:
        if must:
            raise UnknownRunError(run=str(keys.run))
        return []
    answered: Collection[int] = StoredOutcomes(store, keys).chunks()
    if not answered and read_purged(store, keys, "ledger") is not None:  # only what was done with was purged
        answered = {item.chunk.number for item in chunk_states(store, keys, manifest) if item.state != "cancelled"}
    return chunk_states(store, keys, manifest, answered)


def chunk_states(store: Store, keys: RunKeys, manifest: Manifest, answered: Collection[int] = ()) -> list[Item]:
    """Return how every chunk of a run stands by its events, those known to be answered apart."""
    events = [json.loads(read(store, entry.key)) for entry in list(store.keys(keys.events)) if _WHAT.search(entry.key)]
    moves = [_moved(event, manifest) for event in events if event["what"] in MOVES]
    return items(manifest.run, as_it_lies(store, manifest).chunks, _committed(store, keys, events), moves, answered)


def _moved(event: dict[str, object], manifest: Manifest) -> ChunkEvent:
    named = event.get("chunks") or []
    numbers = {chunk.name: chunk.number for chunk in manifest.chunks}
    chosen = frozenset(numbers[name] for name in named if name in numbers) if isinstance(named, list) else frozenset()
    move: Move = event["what"]  # type: ignore[assignment]  # the caller picked the events of MOVES
    at = datetime.fromisoformat(str(event["at"]))
    return ChunkEvent(move, at, str(event.get("by", "")), chosen, str(event.get("reason", "")))


def _committed(store: Store, keys: RunKeys, events: Sequence[dict[str, object]]) -> datetime:
    """Return when the run was committed: its event, or, where a crash swallowed that, the manifest's own time."""
    reported = [datetime.fromisoformat(str(event["at"])) for event in events if event["what"] == "committed"]
    return min(reported) if reported else next(entry.modified for entry in store.keys(keys.manifest))
