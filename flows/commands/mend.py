"""Put right what went wrong: each verb has a dry run, a reason and a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands.entry import (
    BreakName,
    ChunkPlace,
    Cli,
    Context,
    DryRun,
    Form,
    Help,
    Issuer,
    Number,
    Reason,
    RunName,
    entry,
)
from flows.commands.outbox import Chunks, numbered
from flows.commands.result import Result
from flows.commands.results import ingested, report_of
from flows.wiring import cleaner, wire

if TYPE_CHECKING:
    from flows.operations.by_hand import Decided
    from flows.operations.remediation import ClosedBreaks
    from flows.runs.context import IssuerContext

MEND = Form("mend", "mend: {verb} {run}", picks="verb")
ONE_FILE = "result files are named where they are at hand"
ResultName = Annotated[str, Help("The result file, by its name below the issuer's results.")]
ResultRow = Annotated[Number, Help("Data row of the result file, from 1.")]
Break = Annotated[BreakName, Cli(metavar="BREAK"), Help("Kind of break, such as RESULT_SHORT.")]
Place = Annotated[ChunkPlace, Help('A chunk, such as "chunk 7"; without it, all breaks of that kind.')]


@entry("mend abandon", form=MEND)
def abandon(context: Context, run: RunName, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Abandon RUN before its commit, for good: it is never resumed, and nothing of it is sent."""
    from flows.operations.remediation import abandon as abandon_step

    issuer_context = context.context_of(run)
    done = abandon_step(issuer_context.adapters, run, reason, dry_run=dry_run)
    line = f"{run}: abandoned; it will never be committed, and nothing of it is sent"
    next_step = (
        f"a new run of its extract: cardlink submit {issuer_context.issuer.issuer} --extract NAME --new-run REASON"
    )
    return _remediated(done.model_dump(mode="json"), [line], next_step, dry_run)


@entry("mend take-over", form=MEND)
def take_over(context: Context, run: RunName, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """End the claim of a dead process on RUN, so that the next submit continues at once."""
    from flows.operations.remediation import take_over as take_over_step

    issuer_context = context.context_of(run)
    had = take_over_step(issuer_context.adapters, run, reason, dry_run=dry_run)
    since, until = (moment.isoformat(timespec="seconds") for moment in had[1:])
    line = f"{run}: claimed by {had.holder} since {since}, until {until}; that claim is ended"
    facts = {"run": run, "holder": had.holder, "since": since, "until": until}
    return _remediated(facts, [line], f"cardlink submit {issuer_context.issuer.issuer}", dry_run)


@entry("mend reseal", form=MEND)
def reseal(context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Reseal waiting and held chunks of RUN (or the numbered CHUNKS) to the keys that are configured now."""
    from flows.operations.reseal import reseal as reseal_step

    issuer_context = context.context_of(run)
    done = reseal_step(
        issuer_context, cleaner(issuer_context.issuer.root, context.folder), run, chunks, reason, dry_run=dry_run
    )
    facts: dict[str, Any] = {"run": run, **done._asdict()}
    keys = ", ".join(done.recipients)
    lines = [f"{run}: {numbered(done.chunks)} sealed anew to {keys}, every row as the ledger has it"]
    if not done.chunks:
        lines = [f"{run}: every chunk that waits or is held is sealed to {keys} already"]
    if done.retired or done.left:
        left = f"; {done.left:,} could not be deleted here: they count for nothing" if done.left else ""
        lines += [f"{done.retired:,} old objects are deleted{left}"]
    return _remediated(facts, lines, f"cardlink outbox list {issuer_context.issuer.issuer} --run {run}", dry_run)


@entry("mend ingest-again", form=ONE_FILE)
def reingest(
    context: Context, issuer: Issuer, result: ResultName, *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Ingest the file RESULT again, and update the reports of the runs it answers."""
    from flows.operations.by_hand import reingest as again_step

    issuer_context = wire(context.folder, issuer)
    return _decided(
        issuer_context, again_step(issuer_context, result, reason, dry_run=dry_run), f"{result}: taken up again"
    )


@entry("mend attribute", form=ONE_FILE)
def attribute(
    context: Context,
    issuer: Issuer,
    result: ResultName,
    *,
    row: ResultRow,
    to: Annotated[str, Cli(metavar="RUN:ROW")],
    last_4_confirmed: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Match a row of the file RESULT by hand to the row it answers.

    Args:
        to: The row that was sent: run and row number, as RUN:ROW.
        last_4_confirmed: The partner confirmed that it is this card, although its last four digits differ.
    """
    from flows.operations.by_hand import attribute_row
    from flows.runs.documents import run_of

    issuer_context = wire(context.folder, issuer)
    run, _, number = to.rpartition(":")
    place = (str(run_of(run)), int(number) if number.isdecimal() else 0)
    done = attribute_row(issuer_context, result, row, place, reason, last_4_confirmed=last_4_confirmed, dry_run=dry_run)
    state = f", but still a break: {done.row['trouble']}" if done.row["trouble"] else f": {done.row['state']}"
    return _decided(issuer_context, done, f"{result}: row {row} belongs to row {place[1]} of {run}{state}")


@entry("mend withdraw", form=ONE_FILE)
def withdraw(
    context: Context, issuer: Issuer, result: ResultName, *, row: ResultRow, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Withdraw a match that `mend attribute` made."""
    from flows.operations.by_hand import withdraw as withdraw_step

    issuer_context = wire(context.folder, issuer)
    done = withdraw_step(issuer_context, result, row, reason, dry_run=dry_run)
    return _decided(issuer_context, done, f"{result}: what was said by hand of row {row} is withdrawn")


@entry("mend close", form=MEND)
def close(
    context: Context, run: RunName, break_name: Break, place: Place = "", *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Close breaks of RUN that are settled or beyond repair: all of a kind, such as RESULT_SHORT, or those at PLACE."""
    from flows.operations.remediation import close_break

    issuer_context = context.context_of(run)
    return _breaks(
        issuer_context,
        run,
        close_break(issuer_context, run, break_name, place, reason, dry_run=dry_run),
        "closed",
        reason,
    )


@entry("mend reopen", form=MEND)
def reopen(
    context: Context, run: RunName, break_name: Break, place: Place = "", *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Reopen closed breaks of RUN: all of a kind, or those at PLACE."""
    from flows.operations.remediation import reopen_break

    issuer_context = context.context_of(run)
    done = reopen_break(issuer_context, run, break_name, place, reason, dry_run=dry_run)
    return _breaks(issuer_context, run, done, "open again", reason)


def _breaks(context: IssuerContext, run: str, done: ClosedBreaks, state: str, reason: str) -> Result:
    """Show which breaks were closed or opened, and how the run stands now."""
    from flows.redaction import redact

    lines = [f"{one.name} ({one.rows:,} rows) {one.place}: {state}" for one in done.breaks]
    named = [{"name": one.name, "rows": one.rows, "place": one.place} for one in done.breaks]
    facts: dict[str, Any] = {"run": run, "breaks": named, "reason": redact(reason)}
    if done.report is None:
        return _remediated(facts, lines, f"cardlink report {run}", True)
    now = report_of(context, done.report.summary)
    facts = {**facts, "dry_run": False, "report": now.facts}
    return Result(facts, [*lines, "", *now.shown], now.next_step, now.exit_code)


def _decided(context: IssuerContext, done: Decided, line: str) -> Result:
    """Show what was decided about a result file, and how the runs it concerns stand now."""
    facts: dict[str, Any] = {**done.record.model_dump(mode="json"), "outcome": done.row}
    if done.ingested is None:
        return _remediated(facts, [line], f"cardlink status {context.issuer.issuer}", True)
    return ingested(context, done.ingested, line, {**facts, "dry_run": False})


def _remediated(facts: dict[str, Any], lines: Sequence[str], next_step: str, dry_run: bool) -> Result:
    shown = [f"dry run, nothing was done: {lines[0]}", *lines[1:]] if dry_run else lines
    return Result({**facts, "dry_run": dry_run}, shown, next_step)
