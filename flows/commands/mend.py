"""Remediation: put right what went wrong. Each verb has a dry run, needs a reason and leaves a
record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.entry import Context, Form, entry
from flows.commands.outbox import Chunks, numbered
from flows.commands.parameters import DryRun, ExtractName, Field, Issuer, Number, Reason, RunName
from flows.commands.result import Result
from flows.commands.results import ingested, report_of
from flows.redaction import redact
from flows.steps import EXTRACT, WHY, Sentence, Step, Text
from flows.wiring import cleaner, wire
from schemas.breaks import DECISIONS, KINDS

with on_first_use():
    from flows.operations import break_decisions, manual_attribution, remediation
    from flows.operations import reseal as reseals
    from flows.runs import context as contexts
    from flows.runs import keys as stored_keys

MEND = Form("mend", "mend: {verb} {run}", picks="verb")
ONE_FILE = "it names a row of a result file, which the operator has open"
Break = Annotated[
    str,
    Field(
        metavar="BREAK",
        names=lambda: [name for name, kind in KINDS.items() if not kind.notice],
        help="The kind of break to close or reopen, such as RESULT_SHORT.",
    ),
]
Place = Annotated[
    str,
    Field(
        pattern=r"chunk [0-9]{1,5}",
        help='One chunk, such as "chunk 7" (default: every break of that kind).',
    ),
]
Decision = Annotated[
    str,
    Field(
        names=lambda: list(DECISIONS),
        checked=True,
        help="What was found out, and so what becomes of the rows; the report shows what a break offers.",
    ),
]
ResultName = Annotated[str, Field(help="The result file, by its name below the issuer's results.")]
ResultRow = Annotated[Number, Field(help="Data row of the result file, from 1.")]


@entry("mend abandon", form=MEND)
def abandon(context: Context, run: RunName, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """End RUN before its commit, for good: it is never resumed, and none of its rows are sent."""
    issuer_context = context.context_of(run, dry_run=dry_run)
    done = remediation.abandon(issuer_context.adapters, run, reason)
    line = f"{run}: abandoned; it will never be committed, and none of its rows are sent"
    issuer = issuer_context.issuer.issuer
    next_step = Step("submit", issuer, extract=EXTRACT, new_run=WHY)
    return _remediated(done.model_dump(mode="json"), [line], next_step, dry_run)


@entry("mend take-over", form=MEND)
def take_over(context: Context, run: RunName, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """End a dead process's claim on RUN, so that the next submit resumes it at once."""
    issuer_context = context.context_of(run, dry_run=dry_run)
    claim = remediation.take_over(issuer_context.adapters, run, reason)
    since, until = (moment.isoformat(timespec="seconds") for moment in claim[1:])
    line = f"{run}: the claim of {claim.holder} from {since} to {until} is ended"
    facts = {"run": run, "holder": claim.holder, "since": since, "until": until}
    return _remediated(facts, [line], Step("submit", issuer_context.issuer.issuer), dry_run)


@entry("mend reseal", form=MEND)
def reseal(
    context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Seal waiting and held chunks of RUN again, to the keys now in the settings."""
    issuer_context = context.context_of(run)
    deleting = cleaner(issuer_context.issuer, context.folder)
    done = reseals.reseal(issuer_context, deleting, run, chunks, reason, dry_run=dry_run)
    keys = ", ".join(done.recipients)
    lines = [f"{run}: every chunk that is waiting or held is already sealed to {keys}"]
    if done.chunks:
        lines = [
            f"{run}: {numbered(done.chunks)} sealed again to {keys}; every row matches the ledger"
        ]
    if done.retired or done.left:
        left = f"; {done.left:,} could not be deleted and are ignored" if done.left else ""
        lines += [f"{done.retired:,} old objects deleted{left}"]
    next_step = Step("outbox list", issuer_context.issuer.issuer, run=run)
    return _remediated({"run": run, **done._asdict()}, lines, next_step, dry_run)


@entry("mend ingest-again", form=ONE_FILE)
def reingest(
    context: Context, issuer: Issuer, result: ResultName, *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Ingest the file RESULT again, and report the runs it belongs to."""
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    done = manual_attribution.reingest(issuer_context, result, reason)
    return _decided(issuer_context, done, f"{result}: ingested again", dry_run)


@entry("mend attribute", form=ONE_FILE)
def attribute(
    context: Context,
    issuer: Issuer,
    result: ResultName,
    *,
    row: ResultRow,
    to: Annotated[str, Field(metavar="RUN:ROW")],
    last_4_confirmed: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Attribute a row of the file RESULT that no rule could place to the row it answers.

    Args:
        to: The row that was sent: its run, and its row in the extract.
        last_4_confirmed: The partner confirmed that it is that card, although its last four digits
            differ.
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    run, _, number = to.rpartition(":")
    place = (str(stored_keys.keys_of(run).run), int(number) if number.isdecimal() else 0)
    done = manual_attribution.attribute_row(
        issuer_context, result, row, place, reason, last_4_confirmed
    )
    state = (
        f", but still a break: {done.row['trouble']}"
        if done.row["trouble"]
        else f": {done.row['state']}"
    )
    return _decided(
        issuer_context,
        done,
        f"{result}: row {row} attributed to row {place[1]} of {run}{state}",
        dry_run,
    )


@entry("mend withdraw", form=ONE_FILE)
def withdraw(
    context: Context,
    issuer: Issuer,
    result: ResultName,
    *,
    row: ResultRow,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Undo `mend attribute` for a row of the file RESULT."""
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    done = manual_attribution.withdraw(issuer_context, result, row, reason)
    return _decided(
        issuer_context, done, f"{result}: the manual attribution of row {row} is withdrawn", dry_run
    )


@entry("mend close", form=MEND)
def close(
    context: Context,
    run: RunName,
    break_name: Break,
    place: Place = "",
    *,
    decision: Decision = "explained",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Close breaks of RUN by a decision about their rows; `lost` also gives up a chunk that has no
    result at all.
    """
    act = partial(break_decisions.close_break, decision=decision)
    state = Sentence(
        "closed as {decision}. {effect}", decision=decision, effect=DECISIONS[decision].effect
    )
    return _breaks(context, act, state, run, break_name, place, reason, dry_run=dry_run)


@entry("mend reopen", form=MEND)
def reopen(
    context: Context,
    run: RunName,
    break_name: Break,
    place: Place = "",
    *,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Reopen closed breaks of RUN: what was decided about their rows is undone."""
    return _breaks(
        context,
        break_decisions.reopen_break,
        "open again",
        run,
        break_name,
        place,
        reason,
        dry_run=dry_run,
    )


@entry("dismiss", form=Form("dismiss", "dismiss {extract}"))
def dismiss(
    context: Context,
    issuer: Issuer,
    extract: ExtractName,
    *,
    undo: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Dismiss an extract that shall not be sent, such as a duplicate file or a test: it is pending
    no more.

    Args:
        extract: An extract by its name below the issuer's extracts. The decision holds for its
            bytes, under any name; of a full portfolio, under this one.
        undo: Take the dismissal back: the extract is pending again.
    """
    done = remediation.dismiss(
        wire(context.folder, issuer, dry_run=dry_run), extract, reason, undo=undo
    )
    line = f"{done.key}: " + (
        "pending again" if undo else f"dismissed by {done.by}; it will not be submitted"
    )
    return _remediated(done.model_dump(mode="json"), [line], Step("extracts", issuer), dry_run)


def _breaks(
    context: Context,
    act: Callable[..., break_decisions.Settled],
    state: Text,
    run: str,
    *given: str,
    dry_run: bool,
) -> Result:
    """Close or reopen breaks (`given`: kind, place, reason); show which, and the report of the run
    after that.
    """
    issuer_context = context.context_of(run, dry_run=dry_run)
    breaks, report = act(issuer_context, run, *given)
    lines = [
        Sentence(
            "{break_}: {state}", break_=f"{one.name} ({one.rows:,} rows) {one.place}", state=state
        )
        for one in breaks
    ]
    named = [{"name": one.name, "rows": one.rows, "place": one.place} for one in breaks]
    facts: dict[str, Any] = {"run": run, "breaks": named, "reason": redact(given[-1])}
    if dry_run:
        return _remediated(facts, lines, Step("report", run), True)
    after = report_of(issuer_context, report.summary)
    facts = {**facts, "dry_run": False, "report": after.facts}
    return Result(facts, [*lines, "", *after.shown], after.next_step, after.exit_code)


def _decided(
    context: contexts.IssuerContext, done: manual_attribution.Decided, line: str, dry_run: bool
) -> Result:
    """Show a decision about a result file, and the reports of the runs it concerns."""
    facts: dict[str, Any] = {**done.record.model_dump(mode="json"), "outcome": done.row}
    if dry_run:
        return _remediated(facts, [line], Step("status", context.issuer.issuer), True)
    return ingested(context, done.ingested, line, {**facts, "dry_run": False})


def _remediated(
    facts: dict[str, Any], lines: Sequence[Text], next_step: Step, dry_run: bool
) -> Result:
    if dry_run:
        lines = [Sentence("dry run, nothing was changed: {line}", line=lines[0]), *lines[1:]]
    return Result({**facts, "dry_run": dry_run}, lines, next_step)
