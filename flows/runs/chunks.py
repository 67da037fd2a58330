"""The chunks of a committed run as they are now, and what operators do with them: fetch, upload,
hold, cancel.

waiting ──uploaded──► uploaded ──(its result)──► answered
   │ ▲                    │
 held  released ◄─────────┘ (marked by mistake)
   ▼ │
 held ──cancelled──► cancelled

A result answers a chunk in any state: ingest works whether or not an operator marked the upload.
What an operator does is an event of the run, written once and never changed.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

from flows.errors import OperatorError
from flows.runs import documents
from flows.runs.chains import records
from flows.runs.context import Adapters, record_event
from flows.runs.documents import NotFoundError, keys_of, read_summary
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.outcomes import StoredOutcomes
from flows.runs.store import ConflictError, Store, read
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
COMMITTED = "committed"  # the event of a run's commit
OPEN: frozenset[State] = frozenset({"waiting", "held", "uploaded"})

_WHAT = re.compile(rf"-({'|'.join([COMMITTED, *get_args(Move)])})-[0-9a-f]{{8}}\.json$")


class ChunkEvent(NamedTuple):
    """One event of a run: what was done to which chunks (none named: all), when and why."""

    move: Move
    at: datetime
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
        """Return whether a result should have come; none is expected for a chunk that is held or
        cancelled.
        """
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
        fits, state = MOVES[move.move]
        for number in move.chunks or found.keys():
            item = found.get(number)
            if item and item.state in fits:  # a move that its state does not allow changes nothing
                clock = move.at if move.move in ("uploaded", "released") else item.clock
                found[number] = item._replace(
                    state=state, since=move.at, clock=clock, reason=move.reason
                )
    return [
        item._replace(state="answered") if item.chunk.number in answered else item
        for _, item in sorted(found.items())
    ]


class StoredChunk(NamedTuple):
    """One chunk as it is now: its object's size and digest, its key, and whom it is sealed to."""

    chunk: ManifestChunk
    key: str
    recipients: tuple[str, ...]


def stored_chunks(store: Store, manifest: Manifest) -> dict[int, StoredChunk]:
    """Return the chunks of a committed run by number, each as it was sealed last."""
    keys = keys_of(manifest.run)
    return chunks_as_sealed(keys, manifest, records(store, keys.reseals, Reseal))


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


def as_it_lies(store: Store, manifest: Manifest) -> Manifest:
    """Return a manifest with size and digest of its chunks as they are now."""
    return manifest.model_copy(
        update={"chunks": tuple(one.chunk for one in stored_chunks(store, manifest).values())}
    )


def outbox(adapters: Adapters, run: str) -> list[Item]:
    """Return every chunk of a committed run with its state; UnknownRunError before the commit."""
    return _outbox(adapters.store, documents.committed(adapters.store, run))


def outboxes(adapters: Adapters, issuer: str, states: Collection[State] = OPEN) -> Iterator[Item]:
    """Yield the chunks of an issuer's runs that are in one of these states, oldest run first."""
    for manifest in documents.manifests(adapters.store, issuer):
        summary = (
            read_summary(adapters.store, keys_of(manifest.run)) if OPEN.issuperset(states) else None
        )
        if summary and not summary["rows"]["awaiting"]:  # every chunk is answered
            continue
        yield from (item for item in _outbox(adapters.store, manifest) if item.state in states)


def _outbox(store: Store, manifest: Manifest) -> list[Item]:
    keys = keys_of(manifest.run)
    lost = (
        one
        for one in closed_breaks(store, keys)
        if (one.name, one.decision) == (RESULT_SHORT, LOST)
    )
    answered: Collection[int] = StoredOutcomes(store, keys).chunks() | {
        chunk_of(one.place) for one in lost
    }
    # only finished runs are purged
    if not answered and documents.read_purged(store, keys, "ledger") is not None:
        answered = {
            item.chunk.number
            for item in chunk_states(store, keys, manifest)
            if item.state != "cancelled"
        }
    return chunk_states(store, keys, manifest, answered)


def chunk_states(
    store: Store, keys: RunKeys, manifest: Manifest, answered: Collection[int] = ()
) -> list[Item]:
    """Return every chunk of a run with its state by the run's events; those in `answered` are
    answered.
    """
    events = read_events(
        store, [entry for entry in store.keys(keys.events) if _WHAT.search(entry.key)]
    )
    committed = commit_time(events)
    if committed is None:  # where a crash prevented the event of the commit
        committed = next(entry.modified for entry in store.keys(keys.manifest))
    chunks = as_it_lies(store, manifest).chunks
    return items(manifest.run, chunks, committed, moves_in(events, chunks), answered)


def commit_time(events: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when a run was committed, by its events; None where none says so."""
    times = (event["at"] for event in events if event["what"] == COMMITTED)
    return min(map(datetime.fromisoformat, times), default=None)


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


SUMS = "SHA256SUMS"  # what `sha256sum --check` reads


class ChunkStateError(OperatorError):
    """The state of a chunk does not allow the operation."""

    message = "Chunk {number} of {run} is {state}: it cannot be {action}."
    next_step = "`cardlink outbox list ISSUER --run {run}` shows every chunk; an uploaded one cannot be recalled."


def move(
    adapters: Adapters, run: str, what: Move, numbers: Collection[int] = (), reason: str = ""
) -> list[Item]:
    """Record what was done to chunks of a run (by default all that allow it); return their new
    state.

    Raises ChunkStateError, NotFoundError, NoReasonError; then nothing is recorded.
    """
    why = adapters.signed(reason)["reason"] if what != "uploaded" else reason.strip()
    chosen = select_chunks(outbox(adapters, run), run, MOVES[what][0], what, numbers)
    if names := [item.chunk.name for item in chosen]:
        record_event(adapters, keys_of(run), what, chunks=names, reason=why)
    moved = {item.chunk.number for item in chosen}
    return [item for item in outbox(adapters, run) if item.chunk.number in moved]


def fetch(
    adapters: Adapters, run: str, put: Callable[[str, bytes], None], numbers: Collection[int] = ()
) -> list[Item]:
    """Put the waiting chunks of a run, checked against their digests, and SUMS for upload; return
    them.

    Chunks that are held, uploaded, answered or cancelled are not put: ChunkStateError where one is
    named.
    """
    waiting: frozenset[State] = frozenset({"waiting"})
    manifest = documents.committed(adapters.store, run)
    chosen = select_chunks(_outbox(adapters.store, manifest), run, waiting, "fetched", numbers)
    stored = stored_chunks(adapters.store, manifest)
    for item in chosen:
        key = stored[item.chunk.number].key
        content = read(adapters.store, key)
        if digest(content) != item.chunk.sha256:
            raise ConflictError(key=key)
        put(item.chunk.name, content)
    sums = "".join(f"{item.chunk.sha256}  {item.chunk.name}\n" for item in chosen)
    put(SUMS, sums.encode())
    return chosen


def select_chunks(
    found: Sequence[Item], run: str, states: Collection[State], what: str, numbers: Collection[int]
) -> list[Item]:
    """Return the chunks of these numbers, or all in one of these states; NotFoundError,
    ChunkStateError.
    """
    by_number = {item.chunk.number: item for item in found}
    for number in numbers:
        if number not in by_number:
            listed = f"cardlink outbox list {keys_of(run).run.issuer} --run {run}"
            raise NotFoundError(place=run, what=f"chunk {number}", command=listed)
        if by_number[number].state not in states:
            raise ChunkStateError(
                number=number, run=run, state=by_number[number].state, action=what
            )
    return [
        item
        for item in found
        if item.state in states and (not numbers or item.chunk.number in numbers)
    ]
