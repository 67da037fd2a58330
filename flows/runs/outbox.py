"""What operators do with the chunks of committed runs: fetch, upload, hold, cancel."""

from collections.abc import Callable, Collection, Iterator, Sequence

from flows.errors import OperatorError
from flows.runs.adapters import Adapters
from flows.runs.chunks import MOVES, OPEN, Move, OutboxChunk, State
from flows.runs.errors import NotFoundError
from flows.runs.events import record_event
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.store import ConflictError, read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import ISSUER, Sentence, Slot, Step

SUMS = "SHA256SUMS"  # what `sha256sum --check` reads
WAITING: frozenset[State] = frozenset({"waiting"})


class ChunkStateError(OperatorError):
    """The state of a chunk does not allow the operation."""

    message = "Chunk {number} of {run} is {state}: it cannot be {action}."
    next_step = Sentence(
        "{outbox} shows every chunk; an uploaded one cannot be recalled.",
        outbox=Step("outbox list", ISSUER, run=Slot("run")),
    )


def outboxes(runs: StoredRuns, states: Collection[State] = OPEN) -> Iterator[OutboxChunk]:
    """Yield the chunks of an issuer's runs that are in one of these states, oldest run first."""
    for run in runs.committed():
        if OPEN.issuperset(states) and _is_answered(run):
            continue
        yield from (chunk for chunk in run.outbox if chunk.state in states)


def _is_answered(run: StoredRun) -> bool:
    """Return whether every chunk is answered, by the run's report."""
    return run.summary is not None and not run.summary["rows"]["awaiting"]


def move(
    adapters: Adapters, run: str, step: Move, numbers: Collection[int] = (), reason: str = ""
) -> list[OutboxChunk]:
    """Record what was done to chunks of a run (by default all that allow it).

    Returns their new state. Raises ChunkStateError, NotFoundError, NoReasonError; then nothing is
    recorded.
    """
    why = reason.strip()
    if step != "uploaded":
        why = adapters.signed(reason)["reason"]
    stored = StoredRun.by_id(adapters.store, run)
    allowed, _ = MOVES[step]
    chosen = select_chunks(stored.outbox, run, allowed, step, numbers)
    if chosen:
        names = [chunk.chunk.name for chunk in chosen]
        record_event(adapters, stored.keys, step, chunks=names, reason=why)
    moved = {chunk.chunk.number for chunk in chosen}
    return [chunk for chunk in stored.fresh().outbox if chunk.chunk.number in moved]


def fetch(
    adapters: Adapters, run: str, put: Callable[[str, bytes], None], numbers: Collection[int] = ()
) -> list[OutboxChunk]:
    """Put the waiting chunks of a run, and SUMS for upload; return the chunks.

    Each is checked against its digest. Chunks that are held, uploaded, answered or cancelled are
    not put: ChunkStateError where one is named.
    """
    stored = StoredRun.by_id(adapters.store, run)
    chosen = select_chunks(stored.outbox, run, WAITING, "fetched", numbers)
    for chunk in chosen:
        key = stored.sealed_chunks[chunk.chunk.number].key
        content = read(adapters.store, key)
        if digest(content) != chunk.chunk.sha256:
            raise ConflictError(key=key)
        put(chunk.chunk.name, content)
    sums = "".join(f"{chunk.chunk.sha256}  {chunk.chunk.name}\n" for chunk in chosen)
    put(SUMS, sums.encode())
    return chosen


def select_chunks(
    chunks: Sequence[OutboxChunk],
    run: str,
    states: Collection[State],
    action: str,
    numbers: Collection[int],
) -> list[OutboxChunk]:
    """Return the chunks of these numbers, or all in one of these states.

    NotFoundError where a number has no chunk; ChunkStateError where it is in another state, so that
    the `action` is refused.
    """
    by_number = {chunk.chunk.number: chunk for chunk in chunks}
    for number in numbers:
        if number not in by_number:
            listed = Step("outbox list", keys_of(run).run.issuer, run=run)
            raise NotFoundError(place=run, what=f"chunk {number}", command=listed)
        state = by_number[number].state
        if state not in states:
            raise ChunkStateError(number=number, run=run, state=state, action=action)
    if numbers:
        return [chunk for chunk in chunks if chunk.chunk.number in numbers]
    return [chunk for chunk in chunks if chunk.state in states]
