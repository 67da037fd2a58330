"""What operators do with the chunks of committed runs: fetch, upload, hold, cancel."""

from collections.abc import Callable, Collection, Iterator, Sequence

from flows.errors import OperatorError
from flows.runs import documents
from flows.runs.adapters import Adapters
from flows.runs.chunks import MOVES, OPEN, Item, Move, State, chunk_states, stored_chunks
from flows.runs.closings import chunk_of, closed_breaks
from flows.runs.documents import read_summary
from flows.runs.errors import NotFoundError
from flows.runs.events import record_event
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.outcomes import StoredOutcomes
from flows.runs.store import ConflictError, Store, read
from schemas.breaks import LOST, RESULT_SHORT
from schemas.manifest import Manifest


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
