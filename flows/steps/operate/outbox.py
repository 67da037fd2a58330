"""The manual step between commit and answer: list the chunks to upload, fetch them to a folder, note what was done.

Everything an operator does is an event of the run, written once; nothing is edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, get_args

from flows.core.errors import OperatorError
from flows.core.names import RunId, RunKeys
from flows.core.ports import Store
from flows.core.redaction import redact
from flows.core.run.outbox import MOVES, OPEN, Item, Move, Moved, State, after, items
from flows.core.run.planning import digest
from flows.steps.answers.outcomes import Told
from flows.steps.edges import ConflictError, Edges, note, read
from flows.steps.operate.purged import read_purged
from flows.steps.operate.resealed import as_it_lies, lying
from flows.steps.runs import NoReasonError, UnknownRunError, keys_of, read_manifest, run_ids
from schemas.manifest import Manifest

SUMS = "SHA256SUMS"  # what `sha256sum --check` reads
_WHAT = re.compile(rf"-({'|'.join(['committed', *get_args(Move)])})-[0-9a-f]{{8}}\.json$")


class ChunkStateError(OperatorError):
    """A chunk is not in a state in which that can be done to it."""

    message = "Chunk {number} of {run} is {state}: it cannot be {action}."
    next_step = "`cardlink outbox list` shows every chunk; an uploaded one cannot be taken back from the portal."


class NoSuchChunkError(OperatorError):
    """A run has no chunk of that number."""

    message = "{run} has chunks 1 to {last}, no chunk {number}."
    next_step = "`cardlink outbox list` shows every chunk."


class SentTwiceError(OperatorError):
    """Another run of an extract whose chunks are, or may be, at the portal already."""

    message = (
        "{extract} would be sent twice: {count} of the {chunks} chunks of run {run} are uploaded, answered or waiting."
    )
    next_step = "Cancel those that wait (`cardlink outbox cancel {run}`); uploaded ones cannot be taken back."


class Fetched(NamedTuple):
    """Chunks ready for upload: the file that lists their digests, and them."""

    sums: str
    items: tuple[Item, ...]


def outbox(edges: Edges, run: str) -> list[Item]:
    """Return every chunk of a committed run with its state; UnknownRunError before the commit."""
    return _read(edges.store, keys_of(run), True)


def outboxes(edges: Edges, issuer: str, states: Collection[State] = OPEN) -> Iterator[Item]:
    """Yield the chunks of an issuer's runs that are in one of these states, oldest run first."""
    for run in run_ids(edges.store, issuer):
        yield from (item for item in _read(edges.store, RunKeys(run), False) if item.state in states)


def move(
    edges: Edges, run: str, what: Move, numbers: Collection[int] = (), reason: str = "", *, dry_run: bool = False
) -> list[Item]:
    """Note what was done to chunks of a run (none named: all it can be done to); return how they stand now.

    Raises ChunkStateError, NoSuchChunkError, NoReasonError; then, and in a dry run, nothing is noted.
    """
    if what != "uploaded" and not reason.strip():
        raise NoReasonError()
    chosen = choose(outbox(edges, run), run, MOVES[what][0], what, numbers)
    if dry_run:
        done = Moved(what, edges.now(), edges.actor, reason=redact(reason.strip()))
        return [after(item, done) for item in chosen]
    names = [item.chunk.name for item in chosen]
    if names:
        note(edges, keys_of(run), what, chunks=names, reason=reason.strip())
    moved = {item.chunk.number for item in chosen}
    return [item for item in outbox(edges, run) if item.chunk.number in moved]


def fetch(edges: Edges, run: str, put: Callable[[str, bytes], None], numbers: Collection[int] = ()) -> Fetched:
    """Put the waiting chunks of a run where they can be uploaded from, each held against its digest, and their sums.

    Chunks that are held, uploaded, answered or cancelled are not given out: ChunkStateError where one is named.
    """
    waiting: frozenset[State] = frozenset({"waiting"})
    chosen = choose(outbox(edges, run), run, waiting, "fetched", numbers)
    keys = keys_of(run)
    manifest = read_manifest(edges.store, keys)
    there = lying(edges.store, manifest) if manifest else {}
    for item in chosen:
        content = read(edges.store, there[item.chunk.number].key)
        if digest(content) != item.chunk.sha256:
            raise ConflictError(key=there[item.chunk.number].key)
        put(item.chunk.name, content)
    sums = "".join(f"{item.chunk.sha256}  {item.chunk.name}\n" for item in chosen)
    put(SUMS, sums.encode())
    return Fetched(SUMS, tuple(chosen))


def refuse_twice(edges: Edges, extract: str, runs: Collection[str]) -> None:
    """Raise SentTwiceError where an earlier run of an extract may have sent a card that another run would send."""
    for run in runs:
        if read_manifest(edges.store, keys_of(run)) is None:
            continue
        found = outbox(edges, run)
        out = [item for item in found if item.state != "cancelled"]
        if out:
            raise SentTwiceError(extract=extract, count=len(out), chunks=len(found), run=run)


def choose(
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


def _read(store: Store, keys: RunKeys, must: bool) -> list[Item]:
    manifest = read_manifest(store, keys)
    if manifest is None:
        if must:
            raise UnknownRunError(run=str(keys.run))
        return []
    answered: Collection[int] = Told(store, keys).chunks()
    if not answered and read_purged(store, keys, "ledger") is not None:  # only what was done with was purged
        answered = {item.chunk.number for item in standing_of(store, keys, manifest) if item.state != "cancelled"}
    return standing_of(store, keys, manifest, answered)


def standing_of(store: Store, keys: RunKeys, manifest: Manifest, answered: Collection[int] = ()) -> list[Item]:
    """Return how every chunk of a run stands by its events, those known to be answered apart."""
    events = [json.loads(read(store, entry.key)) for entry in list(store.keys(keys.events)) if _WHAT.search(entry.key)]
    moves = [_moved(event, manifest) for event in events if event["what"] in MOVES]
    return items(manifest.run, as_it_lies(store, manifest).chunks, _committed(store, keys, events), moves, answered)


def _moved(event: dict[str, object], manifest: Manifest) -> Moved:
    named = event.get("chunks") or []
    numbers = {chunk.name: chunk.number for chunk in manifest.chunks}
    chosen = frozenset(numbers[name] for name in named if name in numbers) if isinstance(named, list) else frozenset()
    move: Move = event["what"]  # type: ignore[assignment]  # the caller picked the events of MOVES
    at = datetime.fromisoformat(str(event["at"]))
    return Moved(move, at, str(event.get("by", "")), chosen, str(event.get("reason", "")))


def _committed(store: Store, keys: RunKeys, events: Sequence[dict[str, object]]) -> datetime:
    """Return when the run was committed: its event, or, where a crash swallowed that, the manifest's own time."""
    told = [datetime.fromisoformat(str(event["at"])) for event in events if event["what"] == "committed"]
    return min(told) if told else next(entry.modified for entry in store.keys(keys.manifest))


def run_of(text: str) -> RunId:
    """Read a run id; UnknownRunError where the text is none."""
    return keys_of(text).run
