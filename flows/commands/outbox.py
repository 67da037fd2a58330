"""The outbox: the chunks a person uploads, as a to-do list.

List them, fetch them, record what was done with them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import (
    DryRun,
    Field,
    Number,
    Reason,
    Rows,
    RunName,
    Target,
    shown,
)
from flows.commands.private_files import write_whole
from flows.commands.result import Result, Table, artifact
from flows.commands.sent_runs import upload_step
from flows.configuration import load_issuer, read_file
from flows.steps import FOLDER, Step, counted
from flows.wiring import edges, now, wire

with on_first_use():
    from flows.book import stored_book
    from flows.reports import ages, behind, lists
    from flows.runs import adapters as outside
    from flows.runs import chunks as sealed
    from flows.runs import context as contexts
    from flows.runs import errors as run_errors
    from flows.runs import outbox, stored_journal, stored_run, stored_runs

COLUMNS = ("chunk", "state", "since", "rows", "bytes")
IN_WORDS = {"held": "on hold"}  # states that are shown by another word
# a form reads no folder of the machine on which files are uploaded
OUTBOX = Form("outbox", "outbox: {action} {run}", picks="action", without=("fetched",))
DONE: dict[sealed.Move, str] = {
    "uploaded": "marked as uploaded; results are expected from now on",
    "held": "put on hold",
    "released": "waiting for upload again",
    "cancelled": "cancelled for good, never sent",
}
# what no chunk is where there is nothing to record
NONE_TO_MOVE: dict[sealed.Move, str] = {
    "uploaded": "waits for its upload",
    "held": "waits for its upload",
    "released": "is on hold or marked as uploaded",
    "cancelled": "waits for its upload or is on hold",
}
Chunks = Annotated[
    Sequence[Number], Field(help="Chunk numbers (default: every chunk this command can change).")
]


def outbox_list(context: Context, issuer: str, *, run: str = "") -> Result:
    """Return the chunks without a result: what to upload, what is on hold or uploaded, since when.

    Of one run, those with a result too.
    """
    adapters = edges(load_issuer(context.folder, issuer), context.folder)
    chunks = _chunks_of(adapters, issuer, run)
    facts = {"issuer": issuer, "chunks": [_facts(chunk) for chunk in chunks]}
    waiting = [chunk for chunk in chunks if chunk.state == "waiting"]
    if waiting:
        stored_journal.flush_journal(adapters, issuer)
    to_upload = counted(len(waiting), "chunk")
    title = f"{issuer}: {to_upload} to upload, {len(chunks):,} without a result"
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
        next_step = Step("upload", run or issuer, to=FOLDER)
    return Result(facts, [Table((*COLUMNS, "reason"), rows), everything], next_step)


def _chunks_of(adapters: outside.Adapters, issuer: str, run: str) -> Sequence[sealed.OutboxChunk]:
    """Return the chunks of a run, by default those without a result of all runs."""
    if run:
        return stored_run.StoredRun.by_id(adapters, run).outbox
    runs = stored_runs.StoredRuns(adapters, issuer)
    closed = stored_book.closed_runs(adapters, runs)
    return list(outbox.outboxes(runs, closed=closed))


def _row(chunk: sealed.OutboxChunk, moment: datetime) -> tuple[object, ...]:
    """Return the cells of COLUMNS."""
    since = ages.duration(moment - chunk.since)
    state = IN_WORDS.get(chunk.state, chunk.state)
    return chunk.chunk.name, state, since, chunk.chunk.rows, chunk.chunk.bytes


def fetch(context: Context, run: str, chunks: Sequence[int], *, to: Path) -> Result:
    """Copy waiting chunks of a run, or of all runs of an issuer, to a folder, with their sums."""

    def write(name: str, data: bytes) -> None:
        write_whole(to / name, [data])

    issuer = context.issuer_of(run)
    if issuer:
        _refuse_numbers(issuer, chunks)
        issuer_context = wire(context.folder, issuer)
        pinned = issuer_context.issuer.portal.fingerprints
        runs = stored_runs.StoredRuns(issuer_context.adapters, issuer)
        closed = stored_book.closed_runs(issuer_context.adapters, runs)
        by_run: dict[str, Sequence[int]] = {**outbox.waiting_by_run(runs, pinned, closed)}
    else:
        issuer_context = context.context_of(run)
        by_run = {run: chunks}
    stored_journal.flush_journal(issuer_context.adapters, issuer_context.issuer.issuer)
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    sums = to / outbox.SUMS
    known = sums.read_text("utf-8") if sums.is_file() else ""
    # of several issuers each is fetched by itself, to one folder
    others = outbox.sums_of_others(known, issuer_context.issuer.issuer)
    fetched = outbox.fetch_from(issuer_context.adapters, by_run, write, others)
    facts = {"run": run, "folder": str(to), "chunks": [_facts(chunk) for chunk in fetched]}
    if not fetched:
        return Result(facts, [f"{run}: no chunk is waiting for its upload"])
    lines = [
        f"{counted(len(fetched), 'chunk')} copied to {to}",
        f"to verify them: (cd {shlex.quote(str(to))} && sha256sum --check {outbox.SUMS})",
        "upload each file to the portal, then record it:",
    ]
    copied_to = to if issuer else None
    return Result(facts, lines, Step("upload", run, *chunks, to=copied_to, done=True))


def _refuse_numbers(issuer: str, chunks: Sequence[int]) -> None:
    """Raise NotFoundError where chunks of an issuer are named by number."""
    if chunks:
        listed = Step("upload", issuer)
        missing = "chunk of that number: name its run"
        raise run_errors.NotFoundError(place=issuer, what=missing, command=listed)


@entry("outbox uploaded", form=OUTBOX)
def uploaded(
    context: Context,
    run: Target,
    chunks: Chunks = (),
    *,
    fetched: Annotated[Path | None, Field(folder=True)] = None,
    dry_run: DryRun = False,
) -> Result:
    """Record that waiting chunks of RUN are uploaded to the portal; or those of all runs of an
    issuer that a fetch copied to a folder.

    Args:
        fetched: The folder that the chunks were fetched to: just those that its SHA256SUMS names.

    Example:
        cardlink outbox uploaded first-bank --fetched upload
    """
    issuer = context.issuer_of(run)
    if not issuer:
        return _uploaded_of_run(context, run, chunks, fetched, dry_run)
    _refuse_numbers(issuer, chunks)
    if fetched is None:
        raise outbox.FetchUnnamedError(issuer=issuer)
    moved = [
        _move(context, run_id, "uploaded", numbers, "", dry_run)
        for run_id, numbers in _fetched(wire(context.folder, issuer), run, fetched).items()
    ]
    return _all_moved(issuer, moved, dry_run)


def _uploaded_of_run(
    context: Context, run: str, chunks: Sequence[int], fetched: Path | None, dry_run: bool
) -> Result:
    """Record chunks of one run: those of these numbers that were fetched, if a folder is given."""
    if fetched is not None:
        issuer_context = context.context_of(run)
        numbers = _fetched(issuer_context, run, fetched).get(run, [])
        chunks = [number for number in numbers if number in (chunks or numbers)]
        if not chunks:
            return _all_moved(issuer_context.issuer.issuer, [], dry_run)
    return _move(context, run, "uploaded", chunks, "", dry_run)


def _fetched(
    issuer_context: contexts.IssuerContext, run: str, folder: Path
) -> dict[str, list[int]]:
    """Return the waiting chunks that were fetched to a folder, by run; NothingFetchedError."""
    if _is_missing(folder / outbox.SUMS):
        raise outbox.NothingFetchedError(folder=str(folder), sums=outbox.SUMS, run=run)
    sums = read_file(folder / outbox.SUMS, "the list of the chunks that were copied there")
    issuer = issuer_context.issuer.issuer
    runs = stored_runs.StoredRuns(issuer_context.adapters, issuer)
    return outbox.fetched_by_run(
        runs, sums.decode(), stored_book.closed_runs(issuer_context.adapters, runs)
    )


def _is_missing(file: Path) -> bool:
    """Return whether there is no such file; what else is wrong with a path, reading it says."""
    try:
        file.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _all_moved(issuer: str, moved: Sequence[Result], dry_run: bool) -> Result:
    """Show what was recorded for the chunks of several runs."""
    shown = list(chain.from_iterable(each.shown for each in moved))
    facts = {"issuer": issuer, "dry_run": dry_run, "runs": [each.facts for each in moved]}
    lines = shown or [f"{issuer}: none of these chunks waits for its upload"]
    changed = "" if dry_run else issuer
    return Result(facts, lines, _next_step("uploaded", issuer, dry_run), outbox=changed)


@entry("outbox hold", form=OUTBOX, acts={"hold": ""})
def hold(
    context: Context,
    run: RunName,
    chunks: Chunks = (),
    *,
    rows: Rows = "",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Hold back waiting chunks of RUN: they cannot be fetched until they are released.

    Example:
        cardlink outbox hold first-bank-20261120-3f9c21aa 2 3 --reason 'the portal is down'
    """
    return _move(
        context,
        run,
        "held",
        chunks,
        reason,
        dry_run,
        shown(rows, is_named=bool(chunks), dry_run=dry_run),
    )


@entry("outbox release", form=OUTBOX, acts={"release": ""})
def release(
    context: Context,
    run: RunName,
    chunks: Chunks = (),
    *,
    rows: Rows = "",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Let chunks of RUN on hold, or marked as uploaded by mistake, wait for upload again.

    Example:
        cardlink outbox release first-bank-20261120-3f9c21aa 2 --reason 'the portal is up'
    """
    return _move(
        context,
        run,
        "released",
        chunks,
        reason,
        dry_run,
        shown(rows, is_named=bool(chunks), dry_run=dry_run),
    )


@entry("outbox cancel", form=OUTBOX, acts={"cancel": ""})
def cancel(
    context: Context,
    run: RunName,
    chunks: Chunks = (),
    *,
    rows: Rows = "",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Cancel chunks of RUN that wait or are on hold, for good: a cancelled chunk is never sent.

    Example:
        cardlink outbox cancel first-bank-20261120-3f9c21aa 2 --reason 'recalled' --dry-run
    """
    cancelled = _move(
        context,
        run,
        "cancelled",
        chunks,
        reason,
        dry_run,
        shown(rows, is_named=bool(chunks), dry_run=dry_run),
    )
    if not dry_run:  # its report counts them among the rows that wait
        issuer_context = context.context_of(run)
        stored = stored_run.StoredRun.by_id(issuer_context.adapters, run)
        behind.report_behind(issuer_context, [stored])
    return cancelled


def _move(
    context: Context,
    run: str,
    move: sealed.Move,
    chunks: Sequence[int],
    reason: str,
    dry_run: bool,
    rows: str | None = None,
) -> Result:
    """Record what was done with chunks of a run, or show what would be recorded."""
    issuer_context = context.context_of(run, dry_run=dry_run)
    issuer = issuer_context.issuer.issuer
    moved = outbox.move(issuer_context.adapters, run, move, chunks, reason, rows)
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
    if not moved:
        line = f"{run}: nothing to record; no chunk of it {NONE_TO_MOVE[move]}"
        if chunks:
            line = f"{run}: nothing to record; that was recorded for {numbered(chunks)} before"
    title = f"{run}: what was recorded"
    if dry_run:
        line = f"dry run, nothing was recorded: {line}"
        title = f"{run}: dry run, what would be recorded"
    table = artifact(records, f"{run}-{move}", title)
    changed = "" if dry_run else issuer
    count = None if chunks or move == "uploaded" else sum(chunk.chunk.rows for chunk in moved)
    next_step = _next_step(move, issuer, dry_run)
    return Result(facts, [line, table], next_step, outbox=changed, rows=count)


def _next_step(move: sealed.Move, issuer: str, dry_run: bool) -> Step:
    """Return the step after chunks were moved; after a dry run it lists them."""
    if move == "uploaded" and not dry_run:
        return Step("ingest", issuer)
    if move == "released" and not dry_run:
        return upload_step(issuer)
    return Step("upload", issuer)


def numbered(numbers: Sequence[int]) -> str:
    """Name chunks by number, at most ten of them."""
    first = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"{'chunk' if len(numbers) == 1 else 'chunks'} {first}{more}"


def _facts(chunk: sealed.OutboxChunk) -> dict[str, Any]:
    return {
        "run": chunk.run,
        **chunk.chunk.model_dump(),
        "state": chunk.state,
        "since": chunk.since.isoformat(),
        "clock": chunk.clock.isoformat(),
        "reason": chunk.reason,
    }
