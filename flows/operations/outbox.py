"""The manual step between commit and result: fetch chunks for upload, record what was done with them.

Everything an operator does is an event of the run, written once and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from flows.errors import OperatorError
from flows.runs.chunks import MOVES, Item, Move, State, outbox, stored_chunks
from flows.runs.context import Adapters, record_event
from flows.runs.documents import NotFoundError, keys_of, read_manifest
from flows.runs.identity import digest
from flows.runs.store import ConflictError, read

SUMS = "SHA256SUMS"  # what `sha256sum --check` reads


class ChunkStateError(OperatorError):
    """The state of a chunk does not allow the operation."""

    message = "Chunk {number} of {run} is {state}: it cannot be {action}."
    next_step = "`cardlink outbox list ISSUER --run {run}` shows every chunk; an uploaded one cannot be recalled."


def move(adapters: Adapters, run: str, what: Move, numbers: Collection[int] = (), reason: str = "") -> list[Item]:
    """Record what was done to chunks of a run (by default all that allow it); return their new state.

    Raises ChunkStateError, NotFoundError, NoReasonError; then nothing is recorded.
    """
    why = adapters.signed(reason)["reason"] if what != "uploaded" else reason.strip()
    chosen = select_chunks(outbox(adapters, run), run, MOVES[what][0], what, numbers)
    if names := [item.chunk.name for item in chosen]:
        record_event(adapters, keys_of(run), what, chunks=names, reason=why)
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
    """Return the chunks of these numbers, or all in one of these states; NotFoundError, ChunkStateError."""
    by_number = {item.chunk.number: item for item in found}
    for number in numbers:
        if number not in by_number:
            listed = f"cardlink outbox list {keys_of(run).run.issuer} --run {run}"
            raise NotFoundError(place=run, what=f"chunk {number}", command=listed)
        if by_number[number].state not in states:
            raise ChunkStateError(number=number, run=run, state=by_number[number].state, action=what)
    return [item for item in found if item.state in states and (not numbers or item.chunk.number in numbers)]
