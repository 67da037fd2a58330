"""The outbox: the chunks a person uploads, as a to-do list.

List them, fetch them, record what was done with them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Field, Issuer, Number, Reason, RunName
from flows.commands.result import Result, Table, artifact
from flows.configuration import load_issuer
from flows.steps import FOLDER, Step
from flows.wiring import edges, now

with on_first_use():
    from flows.reports import ages, lists
    from flows.runs import chunks as sealed
    from flows.runs import outbox, stored_run, stored_runs

COLUMNS = ("chunk", "state", "since", "rows", "bytes")
OUTBOX = Form("outbox", "outbox: {action} {run}", picks="action")
DONE: dict[sealed.Move, str] = {
    "uploaded": "marked as uploaded; their results are expected from now on",
    "held": "held back",
    "released": "waiting for upload again",
    "cancelled": "cancelled; they will not be sent",
}
Chunks = Annotated[
    Sequence[Number], Field(help="Chunk numbers (default: every chunk this command can change).")
]


@entry("outbox list", form="every form that sends shows the outbox")
def outbox_list(context: Context, issuer: Issuer, *, run: RunName = "") -> Result:
    """List the chunks without a result: what to upload, what is held or uploaded, since when.

    Args:
        issuer: Whose chunks.
        run: Only this run's chunks, those with a result too.
    """
    adapters = edges(load_issuer(context.folder, issuer), context.folder)
    if run:
        chunks = stored_run.StoredRun.by_id(adapters.store, run).outbox
    else:
        chunks = list(outbox.outboxes(stored_runs.StoredRuns(adapters.store, issuer)))
    facts = {"issuer": issuer, "chunks": [_facts(chunk) for chunk in chunks]}
    waiting = [chunk for chunk in chunks if chunk.state == "waiting"]
    title = f"{issuer}: {len(waiting):,} chunks to upload, {len(chunks):,} without a result"
    moment = now()
    sums = [(*_row(chunk, moment), chunk.chunk.sha256) for chunk in chunks[: lists.SHOWN]]
    head = (*COLUMNS, "sha256")
    everything = Table(head, sums, f"{issuer}-outbox", title, on_terminal=False)
    if not chunks:
        line = f"{issuer}: no chunk is waiting for an upload or a result"
        return Result(facts, [line, everything])
    rows = [(*_row(chunk, moment), chunk.reason) for chunk in chunks]
    next_step = Step("ingest", issuer)
    if waiting:
        next_step = Step("outbox fetch", waiting[0].run, to=FOLDER)
    return Result(facts, [Table((*COLUMNS, "reason"), rows), everything], next_step)


def _row(chunk: sealed.OutboxChunk, moment: datetime) -> tuple[object, ...]:
    """Return the cells of COLUMNS."""
    since = ages.duration(moment - chunk.since)
    return chunk.chunk.name, chunk.state, since, chunk.chunk.rows, chunk.chunk.bytes


@entry("outbox fetch", form="it writes to a folder on the machine the chunks are uploaded from")
def fetch(
    context: Context, run: RunName, chunks: Chunks = (), *, to: Annotated[Path, Field(folder=True)]
) -> Result:
    """Copy waiting chunks of RUN to a folder, with their SHA-256 sums.

    Args:
        to: The folder to write to.
    """

    def write(name: str, data: bytes) -> None:  # whole or not at all, for the owner alone
        part = to / f".{name}.part"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(data)
        part.replace(to / name)

    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    fetched = outbox.fetch(context.context_of(run).adapters, run, write, chunks)
    facts = {"run": run, "folder": str(to), "chunks": [_facts(chunk) for chunk in fetched]}
    if not fetched:
        return Result(facts, [f"{run}: no chunk is waiting for its upload"])
    lines = [
        f"{len(fetched):,} chunks copied to {to}",
        f"to verify them: (cd {shlex.quote(str(to))} && sha256sum --check {outbox.SUMS})",
        "upload each file to the portal, then record it:",
    ]
    return Result(facts, lines, Step("outbox uploaded", run, *chunks))


@entry("outbox uploaded", form=OUTBOX)
def uploaded(
    context: Context, run: RunName, chunks: Chunks = (), *, dry_run: DryRun = False
) -> Result:
    """Record that waiting chunks of RUN are uploaded to the portal."""
    return _move(context, run, "uploaded", chunks, "", dry_run)


@entry("outbox hold", form=OUTBOX)
def hold(
    context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Hold back waiting chunks of RUN: they cannot be fetched until they are released."""
    return _move(context, run, "held", chunks, reason, dry_run)


@entry("outbox release", form=OUTBOX, second="release")
def release(
    context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Let chunks of RUN that are held, or marked as uploaded by mistake, wait for upload again."""
    return _move(context, run, "released", chunks, reason, dry_run)


@entry("outbox cancel", form=OUTBOX)
def cancel(
    context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Cancel waiting or held chunks of RUN, for good: a cancelled chunk is never sent."""
    return _move(context, run, "cancelled", chunks, reason, dry_run)


def _move(
    context: Context, run: str, move: sealed.Move, chunks: Sequence[int], reason: str, dry_run: bool
) -> Result:
    """Record what was done with chunks of a run, or show what would be recorded."""
    issuer_context = context.context_of(run, dry_run=dry_run)
    issuer = issuer_context.issuer.issuer
    moved = outbox.move(issuer_context.adapters, run, move, chunks, reason)
    facts = {
        "issuer": issuer,
        "run": run,
        "move": move,
        "dry_run": dry_run,
        "chunks": [_facts(chunk) for chunk in moved],
    }
    records = [
        {"chunk": chunk.chunk.name, "rows": chunk.chunk.rows, "state": chunk.state}
        for chunk in moved
    ]
    line = f"{run}: {numbered([chunk.chunk.number for chunk in moved])} {DONE[move]}"
    title = f"{run}: what was recorded"
    if dry_run:
        line = f"dry run, nothing was recorded: {line}"
        title = f"{run}: dry run, what would be recorded"
    table = artifact(records, f"{run}-{move}", title)
    changed = "" if dry_run else issuer
    return Result(facts, [line, table], Step("outbox list", issuer), outbox=changed)


def numbered(numbers: Sequence[int]) -> str:
    """Name chunks by number, at most ten of them."""
    if not numbers:
        return "no chunks"
    first = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"chunks {first}{more}"


def _facts(chunk: sealed.OutboxChunk) -> dict[str, Any]:
    return {
        "run": chunk.run,
        **chunk.chunk.model_dump(),
        "state": chunk.state,
        "since": chunk.since.isoformat(),
        "clock": chunk.clock.isoformat(),
        "reason": chunk.reason,
    }
