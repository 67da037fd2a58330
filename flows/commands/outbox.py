"""The chunks that wait for a person, as a to-do list: list, fetch, and note what was done with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands.entry import Context, DryRun, Folder, Form, Help, Issuer, Number, Reason, RunName, entry
from flows.commands.result import Result, Table, artifact
from flows.wiring import edges as edges_of
from flows.wiring import load_issuer, now

if TYPE_CHECKING:
    from flows.runs.chunks import Item, Move
    from flows.runs.context import Adapters

OUTBOX = Form("outbox", "outbox: {action} {run}", without=("dry_run",), picks="action", picked="uploaded")
DONE: dict[Move, str] = {
    "uploaded": "marked as uploaded; the clock of the expected answer runs from now",
    "held": "held back",
    "released": "waiting again",
    "cancelled": "cancelled; they will not be sent",
}
Chunks = Annotated[Sequence[Number], Help("Chunk numbers; default: all chunks in a state that allows it.")]


@entry("outbox list", form="every form that sends shows the outbox")
def outbox_list(context: Context, issuer: Issuer, *, run: RunName = "") -> Result:
    """List the chunks without a result: those to upload, those held, those uploaded and since when.

    Args:
        issuer: Whose chunks.
        run: All chunks of one run, answered ones included.
    """
    from flows.reports.lists import outbox_rows
    from flows.reports.summary import duration
    from flows.runs.chunks import outbox, outboxes

    issuer_context, moment = _context(context, issuer), now()
    found = outbox(issuer_context, run) if run else list(outboxes(issuer_context, issuer))
    facts = {"issuer": issuer, "chunks": [_facts(item) for item in found]}
    waiting = [item for item in found if item.state == "waiting"]
    title = f"{issuer}: {len(waiting)} chunks to upload, {len(found)} not answered"
    everything = artifact(outbox_rows(found, moment), f"{issuer}-outbox", title)
    if not found:
        return Result(facts, [f"{issuer}: nothing waits for an upload or an answer", everything])
    rows = [
        [item.chunk.name, item.state, duration(moment - item.since), item.chunk.rows, item.chunk.bytes, item.reason]
        for item in found
    ]
    table = Table(("chunk", "state", "since", "rows", "bytes", "reason"), rows)
    next_step = f"cardlink outbox fetch {waiting[0].run} --to FOLDER" if waiting else f"cardlink ingest {issuer}"
    return Result(facts, [table, everything], next_step)


@entry("outbox fetch", form="it fills a folder on the machine of whoever uploads")
def fetch(context: Context, run: RunName, chunks: Chunks = (), *, to: Annotated[Path, Folder()]) -> Result:
    """Copy waiting chunks of RUN (or the numbered CHUNKS) to a folder, with their SHA-256 sums.

    Args:
        to: The folder to fill.
    """
    from flows.operations.outbox import SUMS
    from flows.operations.outbox import fetch as fetch_step
    from flows.runs.documents import run_of

    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    issuer_context = _context(context, run_of(run).issuer)
    done = fetch_step(issuer_context, run, lambda name, data: _write(to / name, data), chunks)
    facts = {"run": run, "folder": str(to), "chunks": [_facts(item) for item in done.items]}
    if not done.items:
        return Result(facts, [f"{run}: no chunk waits for its upload"])
    lines = [f"{len(done.items):,} chunks in {to}", f"check them there: sha256sum --check {SUMS}"]
    return Result(facts, lines, f"upload each file to the portal, then: cardlink outbox uploaded {run}")


@entry("outbox uploaded", form=OUTBOX)
def uploaded(context: Context, run: RunName, chunks: Chunks = (), *, dry_run: DryRun = False) -> Result:
    """Mark waiting chunks of RUN (or the numbered CHUNKS) as uploaded."""
    return _move(context, run, "uploaded", chunks, "", dry_run)


@entry("outbox hold", form=OUTBOX)
def hold(context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Hold waiting chunks back until they are released."""
    return _move(context, run, "held", chunks, reason, dry_run)


@entry("outbox release", form=OUTBOX)
def release(context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Return held chunks, or chunks marked as uploaded by mistake, to waiting."""
    return _move(context, run, "released", chunks, reason, dry_run)


@entry("outbox cancel", form=OUTBOX)
def cancel(context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Cancel waiting or held chunks for good: a cancelled chunk is never sent."""
    return _move(context, run, "cancelled", chunks, reason, dry_run)


def _move(context: Context, run: str, what: Move, chunks: Sequence[int], reason: str, dry_run: bool) -> Result:
    """Note what was done to chunks of a run, or report what would be noted."""
    from flows.operations.outbox import move
    from flows.runs.documents import run_of

    issuer = run_of(run).issuer
    done = move(_context(context, issuer), run, what, chunks, reason, dry_run=dry_run)
    facts = {
        "issuer": issuer,
        "run": run,
        "move": what,
        "dry_run": dry_run,
        "chunks": [_facts(item) for item in done],
    }
    would = "dry run, nothing was noted: " if dry_run else ""
    line = f"{would}{run}: {numbered([item.chunk.number for item in done])} {DONE[what]}"
    return Result(facts, [line], f"cardlink outbox list {issuer}", outbox="" if dry_run else issuer)


def numbered(numbers: Sequence[int]) -> str:
    """Name chunks by number, at most ten of them."""
    named = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"chunks {named}{more}" if numbers else "no chunks"


def _context(context: Context, issuer: str) -> Adapters:
    return edges_of(load_issuer(context.folder, issuer).root, context.folder)


def _facts(item: Item) -> dict[str, Any]:
    times = {"since": item.since.isoformat(), "clock": item.clock.isoformat()}
    return {"run": item.run, **item.chunk.model_dump(), "state": item.state, **times, "reason": item.reason}


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, for its owner alone."""
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
    part.replace(path)
