"""The outbox: the chunks a person uploads, as a to-do list. List them, fetch them, record what was
done with them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
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
    """List the chunks without a result: what to upload, what is held, what is uploaded and since
    when.

    Args:
        issuer: Whose chunks.
        run: Only this run's chunks, those with a result too.
    """
    adapters, moment = edges(load_issuer(context.folder, issuer), context.folder), now()
    if run:
        found = stored_run.StoredRun.by_id(adapters.store, run).outbox
    else:
        found = list(outbox.outboxes(stored_runs.StoredRuns(adapters.store, issuer)))
    facts = {"issuer": issuer, "chunks": [_facts(item) for item in found]}
    waiting = [item for item in found if item.state == "waiting"]
    title = f"{issuer}: {len(waiting):,} chunks to upload, {len(found):,} without a result"
    head = ("chunk", "state", "since", "rows", "bytes")
    rows = [
        (
            one.chunk.name,
            one.state,
            ages.duration(moment - one.since),
            one.chunk.rows,
            one.chunk.bytes,
        )
        for one in found
    ]
    sums = [(*row, one.chunk.sha256) for row, one in zip(rows[: lists.SHOWN], found, strict=False)]
    everything = Table((*head, "sha256"), sums, f"{issuer}-outbox", title, False)
    if not found:
        return Result(
            facts, [f"{issuer}: no chunk is waiting for an upload or a result", everything]
        )
    table = Table(
        (*head, "reason"), [(*row, item.reason) for row, item in zip(rows, found, strict=True)]
    )
    if waiting:
        next_step = Step("outbox fetch", waiting[0].run, to=FOLDER)
    else:
        next_step = Step("ingest", issuer)
    return Result(facts, [table, everything], next_step)


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
    done = outbox.fetch(context.context_of(run).adapters, run, write, chunks)
    facts = {"run": run, "folder": str(to), "chunks": [_facts(item) for item in done]}
    if not done:
        return Result(facts, [f"{run}: no chunk is waiting for its upload"])
    lines = [
        f"{len(done):,} chunks copied to {to}",
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
    """Let chunks of RUN that are held, or marked as uploaded by mistake, wait for their upload
    again.
    """
    return _move(context, run, "released", chunks, reason, dry_run)


@entry("outbox cancel", form=OUTBOX)
def cancel(
    context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Cancel waiting or held chunks of RUN, for good: a cancelled chunk is never sent."""
    return _move(context, run, "cancelled", chunks, reason, dry_run)


def _move(
    context: Context, run: str, what: sealed.Move, chunks: Sequence[int], reason: str, dry_run: bool
) -> Result:
    """Record what was done with chunks of a run, or show what would be recorded."""
    issuer_context = context.context_of(run, dry_run=dry_run)
    issuer = issuer_context.issuer.issuer
    done = outbox.move(issuer_context.adapters, run, what, chunks, reason)
    moved = [_facts(item) for item in done]
    title = f"{run}: {'dry run, what would be' if dry_run else 'what was'} recorded"
    table = artifact(
        [{"chunk": item.chunk.name, "rows": item.chunk.rows, "state": item.state} for item in done],
        f"{run}-{what}",
        title,
    )
    line = f"{run}: {numbered([item.chunk.number for item in done])} {DONE[what]}"
    return Result(
        {"issuer": issuer, "run": run, "move": what, "dry_run": dry_run, "chunks": moved},
        [f"dry run, nothing was recorded: {line}" if dry_run else line, table],
        Step("outbox list", issuer),
        outbox="" if dry_run else issuer,
    )


def numbered(numbers: Sequence[int]) -> str:
    """Name chunks by number, at most ten of them."""
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"chunks {', '.join(map(str, numbers[:10]))}{more}" if numbers else "no chunks"


def _facts(item: sealed.OutboxChunk) -> dict[str, Any]:
    times = {"since": item.since.isoformat(), "clock": item.clock.isoformat()}
    return {
        "run": item.run,
        **item.chunk.model_dump(),
        "state": item.state,
        **times,
        "reason": item.reason,
    }
