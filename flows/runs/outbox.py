"""What operators do with the chunks of committed runs: fetch, upload, hold, cancel."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.adapters import Adapters
from flows.runs.chunks import EXPECTING, MOVES, OPEN, Move, OutboxChunk, State
from flows.runs.errors import NotFoundError
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from flows.runs.keys import RunId
from flows.runs.shown_rows import refuse_other_rows
from flows.runs.store import ConflictError, read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import FOLDER, ISSUER, Sentence, Slot, Step
from schemas.database import CHUNK

SUMS = "SHA256SUMS"  # what `sha256sum --check` reads
WAITING: frozenset[State] = frozenset({"waiting"})


class ChunkStateError(OperatorError):
    """The state of a chunk does not allow the operation."""

    message = "Chunk {number} of {run} is {state}: it cannot be {action}."
    next_step = Sentence(
        "{outbox} shows every chunk; an uploaded one cannot be recalled.",
        outbox=Step("upload", Slot("run")),
    )


class FetchUnnamedError(OperatorError):
    """Chunks of any run of an issuer are to be recorded as uploaded, and no folder says which."""

    message = "No folder says which chunks of {issuer} were uploaded. Nothing was recorded."
    next_step = Sentence(
        "Name the folder that they were fetched to: {done}",
        done=Step("upload", Slot("issuer"), to=FOLDER, done=True),
    )


class NothingFetchedError(OperatorError):
    """Chunks are to be recorded as uploaded that were copied to a folder without any."""

    message = "No chunks were copied to {folder}: it has no {sums}. Nothing was recorded."
    next_step = Sentence(
        "Copy them first, and upload them: {fetch}; or name the folder they were copied to.",
        fetch=Step("upload", Slot("run"), to=Slot("folder")),
    )


class OtherChunkError(OperatorError):
    """A chunk that was fetched is not the one that waits in the outbox."""

    message = "Chunk {chunk} was sealed again after it was fetched. Nothing was recorded."
    next_step = Sentence(
        "If the portal has the earlier file, ask the partner to delete it; then fetch and upload "
        "it again: {fetch}.",
        fetch=Step("upload", ISSUER, to=FOLDER),
    )


def outboxes(
    runs: StoredRuns, states: Collection[State] = OPEN, closed: Collection[str] = ()
) -> Iterator[OutboxChunk]:
    """Yield the chunks of an issuer's runs that are in one of these states, oldest run first.

    `closed`: ids of runs all of whose chunks are answered, which are left out.
    """
    for run in runs.committed(closed):
        if OPEN.issuperset(states) and _is_answered(run):
            continue
        yield from (chunk for chunk in run.outbox if chunk.state in states)


def _is_answered(run: StoredRun) -> bool:
    """Return whether every chunk is answered, by the run's report."""
    return run.summary is not None and not run.summary["rows"]["awaiting"]


def move(
    adapters: Adapters,
    run: str,
    step: Move,
    numbers: Collection[int] = (),
    reason: str = "",
    rows: str | None = None,
) -> list[OutboxChunk]:
    """Record what was done to chunks of a run (by default all that allow it).

    OtherRowsError where they have not just as many `rows` as were shown.

    Returns their new state; of those named that were there already, nothing. Raises
    ChunkStateError, NotFoundError, NoReasonError; then nothing is recorded.
    """
    why = reason.strip()
    if step != "uploaded":
        why = adapters.signed(reason)["reason"]
    issuer = StoredRun.by_id(adapters, run).issuer
    work = partial(_move, adapters, run, step, numbers, why, rows)
    moved = enter(adapters, issuer, step, work, run=run, reason=why)
    outbox = StoredRun.by_id(adapters, run).outbox if moved else []
    return [chunk for chunk in outbox if chunk.chunk.number in moved]


def _move(
    adapters: Adapters,
    run: str,
    step: Move,
    numbers: Collection[int],
    why: str,
    rows: str | None,
    act: Act,
) -> set[int]:
    """Bring chunks of a run to the state after a step; return which were not there already."""
    outbox = StoredRun.by_id(adapters.within(act.connection), run).outbox
    allowed, state = MOVES[step]
    there = {chunk.chunk.number for chunk in outbox if chunk.state == state}
    if numbers and there.issuperset(numbers):
        return set()
    left = [number for number in numbers if number not in there]
    chosen = select_chunks(outbox, run, allowed, step, left)
    if not chosen:
        return set()
    count = sum(chunk.chunk.rows for chunk in chosen)
    refuse_other_rows(act.issuer, f"The outbox of {run}", count, rows)
    now = adapters.now()
    for chunk in chosen:
        act.update(
            CHUNK,
            {"run": run, "number": chunk.chunk.number},
            state=state,
            since=now,
            by=redact(adapters.actor),
            reason=why,
            expected=now if step in EXPECTING else chunk.clock,
        )
    act.facts["chunks"] = [chunk.chunk.name for chunk in chosen]
    return {chunk.chunk.number for chunk in chosen}


def waiting_by_run(
    runs: StoredRuns, pinned: Collection[str], closed: Collection[str] = ()
) -> dict[str, list[int]]:
    """Return the chunks of an issuer that wait for the upload, by run.

    Without those sealed to a key that is not `pinned` any more; `closed` as in `outboxes`.
    """
    by_run: dict[str, list[int]] = {}
    for run in runs.committed(closed):
        waits = [] if _is_answered(run) else [item for item in run.outbox if item.state in WAITING]
        numbers = [item.chunk.number for item in waits if _fits(run, item, pinned)]
        if numbers:
            by_run[run.id] = numbers
    return by_run


def _fits(run: StoredRun, item: OutboxChunk, pinned: Collection[str]) -> bool:
    return set(run.sealed_chunks[item.chunk.number].recipients) <= set(pinned)


def fetch(
    adapters: Adapters, run: str, put: Callable[[str, bytes], None], numbers: Collection[int] = ()
) -> list[OutboxChunk]:
    """Put the waiting chunks of a run, and SUMS for upload; return the chunks (`fetch_from`)."""
    return fetch_from(adapters, {run: numbers}, put)


def fetch_from(
    adapters: Adapters,
    numbers_by_run: Mapping[str, Collection[int]],
    put: Callable[[str, bytes], None],
    before: str = "",
) -> list[OutboxChunk]:
    """Put the waiting chunks of runs, of each all or those of these numbers, and SUMS for upload.

    `before`: the lines of SUMS that stay. Returns the chunks. Each is checked against its digest.
    Chunks that are on hold, uploaded, answered or cancelled are not put: ChunkStateError where one
    is named.
    """
    fetched: list[OutboxChunk] = []
    for run, numbers in numbers_by_run.items():
        stored = StoredRun.by_id(adapters, run)
        chosen = select_chunks(stored.outbox, run, WAITING, "fetched", numbers)
        for chunk in chosen:
            put(chunk.chunk.name, _sealed(adapters, stored, chunk))
        fetched += chosen
    sums = "".join(f"{chunk.chunk.sha256}  {chunk.chunk.name}\n" for chunk in fetched)
    put(SUMS, f"{before}{sums}".encode())
    return fetched


def _sealed(adapters: Adapters, run: StoredRun, chunk: OutboxChunk) -> bytes:
    """Return the content of a chunk as it was sealed last; ConflictError where it is another."""
    key = run.sealed_chunks[chunk.chunk.number].key
    content = read(adapters.store, key)
    if digest(content) != chunk.chunk.sha256:
        raise ConflictError(key=key)
    return content


def sums_of_others(sums: str, issuer: str) -> str:
    """Return the lines of SUMS that are about chunks of other issuers."""
    return "".join(
        line for line in sums.splitlines(keepends=True) if _issuer_of(line) not in ("", issuer)
    )


def _issuer_of(line: str) -> str:
    """Return the issuer of the chunk in a line of SUMS, "" where it is none."""
    name = line.rstrip("\n").rpartition("  ")[2]
    run = RunId.parse(name.partition(".")[0].rpartition("-")[0])
    return run.issuer if run is not None else ""


def fetched_by_run(
    runs: StoredRuns, sums: str, closed: Collection[str] = ()
) -> dict[str, list[int]]:
    """Return the chunks that SUMS of a fetch names and that still wait for the upload, by run.

    OtherChunkError where one was sealed again since. `closed` as in `outboxes`.
    """
    digests: dict[str, str] = {}
    for line in sums.splitlines():
        sha256, _, name = line.partition("  ")
        digests[name] = sha256
    by_run: dict[str, list[int]] = {}
    for chunk in outboxes(runs, WAITING, closed):
        sha256 = digests.get(chunk.chunk.name, "")
        if sha256 and sha256 != chunk.chunk.sha256:
            raise OtherChunkError(chunk=chunk.chunk.name)
        if sha256:
            by_run.setdefault(chunk.run, []).append(chunk.chunk.number)
    return by_run


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
            raise NotFoundError(place=run, what=f"chunk {number}", command=Step("upload", run))
        state = by_number[number].state
        if state not in states:
            raise ChunkStateError(number=number, run=run, state=state, action=action)
    if numbers:
        return [chunk for chunk in chunks if chunk.chunk.number in numbers]
    return [chunk for chunk in chunks if chunk.state in states]
