"""The chunks of a committed run as they are now: where each is stored, and its state between commit and result.

waiting ──uploaded──► uploaded ──(its result)──► answered
   │ ▲                    │
 held  released ◄─────────┘ (marked by mistake)
   ▼ │
 held ──cancelled──► cancelled

A result answers a chunk in any state: ingest works whether or not an operator marked the upload.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, get_args

from flows.runs.chains import records
from flows.runs.context import Adapters
from flows.runs.documents import UnknownRunError, keys_of, manifests, read_manifest, read_purged, read_summary
from flows.runs.keys import RunKeys
from flows.runs.outcomes import StoredOutcomes
from flows.runs.store import Store
from flows.runs.versions import read_events
from schemas.breaks import LOST, RESULT_SHORT
from schemas.manifest import Manifest, ManifestChunk
from schemas.records import Closing, Reseal

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
    """One event of a run: what was done to which chunks (none named: all), when, by whom and why."""

    move: Move
    at: datetime
    by: str = ""
    chunks: frozenset[int] = frozenset()
    reason: str = ""


class Item(NamedTuple):
    """One chunk in the outbox: its state, since when, and from when its result is expected."""

    run: str
    chunk: ManifestChunk
    state: State
    since: datetime
    clock: datetime
    reason: str = ""

    def overdue(self, now: datetime, within: timedelta) -> bool:
        """Return whether a result should have come; none is expected for a chunk that is held or cancelled."""
        return self.state in ("waiting", "uploaded") and now - self.clock > within


def items(
    run: str,
    chunks: Sequence[ManifestChunk],
    committed: datetime,
    moves: Iterable[ChunkEvent],
    answered: Collection[int] = (),
) -> list[Item]:
    """Return every chunk with the state that the moves, in order of time, have brought it to."""
    found = {chunk.number: Item(run, chunk, "waiting", committed, committed) for chunk in chunks}
    for move in sorted(moves, key=lambda one: one.at):
        for number in move.chunks or found.keys():
            if number in found:
                found[number] = after(found[number], move)
    return [
        item._replace(state="answered") if item.chunk.number in answered else item for _, item in sorted(found.items())
    ]


def after(item: Item, move: ChunkEvent) -> Item:
    """Return a chunk after a move; a move that its state does not allow changes nothing."""
    fits, state = MOVES[move.move]
    if item.state not in fits:
        return item
    clock = move.at if move.move in ("uploaded", "released") else item.clock
    return item._replace(state=state, since=move.at, clock=clock, reason=move.reason)


class StoredChunk(NamedTuple):
    """One chunk as it is now: its object's size and digest, its key, and whom it is sealed to."""

    chunk: ManifestChunk
    key: str
    recipients: tuple[str, ...]


def current_chunks(keys: RunKeys, manifest: Manifest, reseals: Iterable[Reseal]) -> dict[int, StoredChunk]:
    """Return the chunks of a run by number, each as it was sealed last."""
    found = {one.number: StoredChunk(one, keys.chunks + one.name, manifest.recipients) for one in manifest.chunks}
    for reseal in reseals:
        place = keys.sealed(reseal.generation)
        found |= {one.number: StoredChunk(one, place + one.name, reseal.recipients) for one in reseal.chunks}
    return found


def stored_chunks(store: Store, manifest: Manifest) -> dict[int, StoredChunk]:
    """Return where every chunk of a committed run is stored, by number."""
    keys = keys_of(manifest.run)
    return current_chunks(keys, manifest, records(store, keys.reseals, Reseal))


def as_it_lies(store: Store, manifest: Manifest) -> Manifest:
    """Return a manifest with size and digest of its chunks as they are now."""
    return manifest.model_copy(update={"chunks": tuple(one.chunk for one in stored_chunks(store, manifest).values())})


def outbox(adapters: Adapters, run: str) -> list[Item]:
    """Return every chunk of a committed run with its state; UnknownRunError before the commit."""
    manifest = read_manifest(adapters.store, keys_of(run))
    if manifest is None:
        raise UnknownRunError(run=run)
    return _outbox(adapters.store, manifest)


def outboxes(adapters: Adapters, issuer: str, states: Collection[State] = OPEN) -> Iterator[Item]:
    """Yield the chunks of an issuer's runs that are in one of these states, oldest run first."""
    for manifest in manifests(adapters.store, issuer):
        summary = read_summary(adapters.store, keys_of(manifest.run)) if OPEN.issuperset(states) else None
        if summary and not summary["rows"]["awaiting"]:  # every chunk is answered
            continue
        yield from (item for item in _outbox(adapters.store, manifest) if item.state in states)


def _outbox(store: Store, manifest: Manifest) -> list[Item]:
    keys = keys_of(manifest.run)
    lost = (one for one in closed_breaks(store, keys) if (one.name, one.decision) == (RESULT_SHORT, LOST))
    answered: Collection[int] = StoredOutcomes(store, keys).chunks() | {chunk_of(one.place) for one in lost}
    if not answered and read_purged(store, keys, "ledger") is not None:  # only finished runs are purged
        answered = {item.chunk.number for item in chunk_states(store, keys, manifest) if item.state != "cancelled"}
    return chunk_states(store, keys, manifest, answered)


def chunk_states(store: Store, keys: RunKeys, manifest: Manifest, answered: Collection[int] = ()) -> list[Item]:
    """Return every chunk of a run with its state by the run's events; those in `answered` are answered."""
    events = read_events(store, [entry for entry in store.keys(keys.events) if _WHAT.search(entry.key)])
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
    """Return when the run was committed: by its event, or, where a crash prevented that, by the manifest's own time."""
    times = [datetime.fromisoformat(str(event["at"])) for event in events if event["what"] == "committed"]
    return min(times) if times else next(entry.modified for entry in store.keys(keys.manifest))


ROWS = ", rows "
_CHUNK = re.compile(r"chunk (\d+)")


def place_of(place: str) -> str:
    """Return the place of a break without its row numbers: `chunk 7` of `chunk 7, rows 1, 2`."""
    return place.partition(ROWS)[0]


def chunk_of(place: str) -> int:
    """Return the number of the chunk that a place names, 0 where it names a file."""
    named = _CHUNK.fullmatch(place_of(place))
    return int(named[1]) if named else 0


def closed_breaks(store: Store, keys: RunKeys) -> list[Closing]:
    """Return the closings of a run that are not reopened, by kind and place, oldest first.

    One that names its rows adds to the earlier ones at its place; any other replaces them.
    """
    last: dict[tuple[str, str], list[Closing]] = {}
    for one in records(store, keys.closed, Closing):
        at = (one.name, place_of(one.place))
        before = [other for other in last.get(at, ()) if other.covers and one.covers]
        last[at] = [*before, one] if one.what == "closed" else []
    return [one for _, closings in sorted(last.items()) for one in closings]
