"""The manual step between commit and result: fetch chunks for upload, record what was done with them.

Everything an operator does is an event of the run, written once and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.chunks import MOVES, ChunkEvent, Item, Move, State, after, outbox, stored_chunks
from flows.runs.context import Adapters, record_event
from flows.runs.documents import NoReasonError, keys_of, read_manifest
from flows.runs.identity import digest
from flows.runs.store import ConflictError, read

SUMS = "SHA256SUMS"  # what `sha256sum --check` reads


class ChunkStateError(OperatorError):
    """The state of a chunk does not allow the operation."""

    message = "Chunk {number} of {run} is {state}: it cannot be {action}."
    next_step = "`cardlink outbox list ISSUER --run {run}` shows every chunk; an uploaded one cannot be recalled."


class NoSuchChunkError(OperatorError):
    """The run has no chunk of that number."""

    message = "{run} has chunks 1 to {last}, but no chunk {number}."
    next_step = "`cardlink outbox list ISSUER --run {run}` shows every chunk."


def move(
    adapters: Adapters, run: str, what: Move, numbers: Collection[int] = (), reason: str = "", *, dry_run: bool = False
) -> list[Item]:
    """Record what was done to chunks of a run (by default all that allow it); return their new state.

    Raises ChunkStateError, NoSuchChunkError, NoReasonError; then, and in a dry run, nothing is recorded.
    """
    if what != "uploaded" and not reason.strip():
        raise NoReasonError
    chosen = select_chunks(outbox(adapters, run), run, MOVES[what][0], what, numbers)
    if dry_run:
        done = ChunkEvent(what, adapters.now(), adapters.actor, reason=redact(reason.strip()))
        return [after(item, done) for item in chosen]
    names = [item.chunk.name for item in chosen]
    if names:
        record_event(adapters, keys_of(run), what, chunks=names, reason=reason.strip())
    moved = {item.chunk.number for item in chosen}
    return [item for item in outbox(adapters, run) if item.chunk.number in moved]


def fetch(adapters: Adapters, run: str, put: Callable[[str, bytes], None], numbers: Collection[int] = ()) -> list[Item]:
    """Put the waiting chunks of a run, checked against their digests, and SUMS for upload; return them.

    Chunks that are held, uploaded, answered or cancelled are not put: ChunkStateError where one is named.
    """
    waiting: frozenset[State] = frozenset({"waiting"})
    chosen = select_chunks(outbox(adapters, run), run, waiting, "fetched", numbers)
    manifest = read_manifest(adapters.store, keys_of(run))
    stored = stored_chunks(adapters.store, manifest) if manifest else {}
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
    """Return the chunks of these numbers, or all in one of these states; NoSuchChunkError, ChunkStateError."""
    by_number = {item.chunk.number: item for item in found}
    for number in numbers:
        if number not in by_number:
            raise NoSuchChunkError(run=run, last=len(found), number=number)
        if by_number[number].state not in states:
            raise ChunkStateError(number=number, run=run, state=by_number[number].state, action=what)
    return [item for item in found if item.state in states and (not numbers or item.chunk.number in numbers)]
