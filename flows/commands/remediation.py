"""Remediation: put right what went wrong.

Each command has a dry run, needs a reason and leaves a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.outbox import Chunks, numbered
from flows.commands.parameters import (
    DryRun,
    ExtractName,
    Field,
    Issuer,
    Number,
    Reason,
    Rows,
    RunName,
    Target,
    shown,
)
from flows.commands.result import Result
from flows.commands.results import ingested, report_of
from flows.redaction import redact
from flows.steps import FOLDER, Sentence, Step, Text, counted
from flows.wiring import cleaner, wire
from schemas.breaks import DECISIONS, KINDS, LOST

with on_first_use():
    from flows.operations import break_decisions, manual_attribution, remediation
    from flows.operations import reseal as reseals
    from flows.runs import context as contexts
    from flows.runs import dismissed_days
    from flows.runs import keys as stored_keys

# a form seals all chunks of a run again, and has no cuid in its log
WITHOUT = ("chunks", "row", "cuid", "changed", "replacing", "refused", "undo")
MEND = Form("mend", "mend: {verb} {run}", picks="verb", without=WITHOUT)
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
        help=(
            "What was found out, and so what becomes of the rows; "
            "the report shows what a break offers."
        ),
    ),
]
ResultName = Annotated[str, Field(help="The result file, by its name below the issuer's results.")]
ResultRow = Annotated[Number, Field(help="Data row of the result file, from 1.")]


@entry("mend abandon", form=MEND, acts={"abandon": ""})
def abandon(context: Context, run: RunName, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """End RUN before its commit, for good: it is never resumed, and none of its rows are sent.

    Example:
        cardlink mend abandon first-bank-20261120-3f9c21aa --reason 'a new file comes' --dry-run
    """
    issuer_context = context.context_of(run, dry_run=dry_run)
    record = remediation.abandon(issuer_context.adapters, run, reason)
    line = f"{run}: abandoned; it will never be committed, and none of its rows are sent"
    next_step = remediation.next_after_abandoning(issuer_context.adapters, run)
    return remediated(record.model_dump(mode="json"), [line], next_step, dry_run)


@entry("mend take-over", form=MEND)
def take_over(context: Context, run: RunName, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """End a dead process's claim on RUN, so that the next submit resumes it at once.

    Example:
        cardlink mend take-over first-bank-20261120-3f9c21aa --reason 'the machine is gone'
    """
    issuer_context = context.context_of(run, dry_run=dry_run)
    claim = remediation.take_over(issuer_context.adapters, run, reason)
    since = claim.since.isoformat(timespec="seconds")
    until = claim.until.isoformat(timespec="seconds")
    line = f"{run}: the claim of {claim.holder} from {since} to {until} is ended"
    facts = {"run": run, "holder": claim.holder, "since": since, "until": until}
    return remediated(facts, [line], Step("submit", issuer_context.issuer.issuer), dry_run)


@entry("mend reseal", form=MEND, acts={"reseal": ""})
def reseal(
    context: Context, run: RunName, chunks: Chunks = (), *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Seal chunks of RUN that wait or are on hold again, to the keys now in the settings.

    Example:
        cardlink mend reseal first-bank-20261120-3f9c21aa --reason 'new portal key' --dry-run
    """
    issuer_context = context.context_of(run)
    deleting = cleaner(issuer_context.issuer, context.folder)
    resealed = reseals.reseal(issuer_context, deleting, run, chunks, reason, dry_run=dry_run)
    keys = ", ".join(resealed.recipients)
    if resealed.chunks:
        numbers = numbered(resealed.chunks)
        line = f"{run}: {numbers} sealed again to {keys}; every row matches the ledger"
    else:
        line = f"{run}: every chunk that waits or is on hold is already sealed to {keys}"
    lines = [line]
    if resealed.retired or resealed.left:
        deleted = f"{counted(resealed.retired, 'old object')} deleted"
        if resealed.left:
            deleted += f"; {resealed.left:,} could not be deleted and are ignored"
        lines.append(deleted)
    next_step = Step("upload", run, to=FOLDER)
    return remediated({"run": run, **resealed._asdict()}, lines, next_step, dry_run)


@entry("mend ingest-again", form=ONE_FILE, acts={"attribute": ""})
def reingest(
    context: Context,
    issuer: Issuer,
    result: ResultName = "",
    *,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Ingest the file RESULT again, and report the runs it belongs to.

    Args:
        result: The file (default: each file that belongs to no run).

    Example:
        cardlink mend ingest-again first-bank result.csv --reason 'the partner corrected it'
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    if result:
        decided = manual_attribution.reingest(issuer_context, result, reason)
        return _decided(issuer_context, decided, f"{result}: ingested again", dry_run)
    strays = manual_attribution.reingest_strays(issuer_context, reason)
    line = f"ingested again: {', '.join(strays) or 'every file belongs to a run'}"
    facts: dict[str, Any] = {"files": sorted(strays)}
    if dry_run or not strays:
        return remediated(facts, [line], Step("worklist", issuer), dry_run)
    calls = [decided.ingested for decided in strays.values()]
    reports = tuple(chain.from_iterable(call.reports for call in calls))
    breaks = tuple(dict.fromkeys(chain.from_iterable(call.breaks for call in calls)))
    done = calls[-1]._replace(reports=reports, breaks=breaks)
    return ingested(issuer_context, done, line, {**facts, "dry_run": False})


@entry("mend attribute", form=ONE_FILE, acts={"attribute": ""})
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

    Example:
        cardlink mend attribute first-bank a.csv --row 7 --to RUN:12 --reason 'they confirmed it'
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    run, _, number = to.rpartition(":")
    sent_row = int(number) if number.isdecimal() else 0
    place = (str(stored_keys.keys_of(run).run), sent_row)
    decided = manual_attribution.attribute_row(
        issuer_context, result, row, place, reason, last_4_confirmed
    )
    state = f": {decided.row['state']}"
    if decided.row["trouble"]:
        state = f", but still a break: {decided.row['trouble']}"
    line = f"{result}: row {row} attributed to row {sent_row} of {run}{state}"
    return _decided(issuer_context, decided, line, dry_run)


@entry("mend withdraw", form=ONE_FILE, acts={"attribute": ""})
def withdraw(
    context: Context,
    issuer: Issuer,
    result: ResultName,
    *,
    row: ResultRow,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Undo `mend attribute` for a row of the file RESULT.

    Example:
        cardlink mend withdraw first-bank result.csv --row 7 --reason 'of another bank' --dry-run
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    decided = manual_attribution.withdraw(issuer_context, result, row, reason)
    line = f"{result}: the manual attribution of row {row} is withdrawn"
    return _decided(issuer_context, decided, line, dry_run)


@entry("mend close", form=MEND, acts={"lost": f"decision={LOST}", "close": ""})
def close(
    context: Context,
    run: Target,
    break_name: Break,
    place: Place = "",
    *,
    decision: Decision = "explained",
    rows: Rows = "",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Close breaks of RUN, or of all runs of an issuer, by a decision about their rows; `lost` also
    gives up a chunk that has no result at all.

    Example:
        cardlink mend close first-bank-20261120-3f9c21aa RESULT_SHORT --rows 4 --reason lost
    """
    issuer = context.issuer_of(run)
    expected = shown(rows, dry_run=dry_run)
    if issuer:
        return _close_in_all_runs(context, issuer, break_name, decision, expected, reason, dry_run)
    issuer_context = context.context_of(run, dry_run=dry_run)
    settled = break_decisions.close_break(
        issuer_context, run, break_name, place, reason, decision, expected=expected
    )
    effect = DECISIONS[decision].effect
    state = Sentence("closed as {decision}. {effect}", decision=decision, effect=effect)
    return _settled(issuer_context, run, settled, state, reason, dry_run)


def _close_in_all_runs(
    context: Context,
    issuer: str,
    break_name: str,
    decision: str,
    rows: str | None,
    reason: str,
    dry_run: bool,
) -> Result:
    """Close the breaks of a kind in all runs of an issuer."""
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    effect = DECISIONS[decision].effect
    state = Sentence("closed as {decision}. {effect}", decision=decision, effect=effect)
    lines: list[Text] = []
    runs: list[dict[str, Any]] = []
    total = 0
    for run in break_decisions.runs_to_close(issuer_context, break_name, rows):
        settled = break_decisions.close_break(issuer_context, run, break_name, "", reason, decision)
        breaks = _break_facts(settled)
        runs.append({"run": run, "breaks": breaks})
        count = sum(known["rows"] for known in breaks)
        total += count
        line = f"{run}: {break_name} ({counted(count, 'row')})"
        lines.append(Sentence("{line}: {state}", line=line, state=state))
    facts = {"issuer": issuer, "runs": runs, "reason": redact(reason)}
    return remediated(facts, lines, Step("worklist", issuer), dry_run, total)


@entry("mend reopen", form=MEND, acts={"close": ""})
def reopen(
    context: Context,
    run: RunName,
    break_name: Break,
    place: Place = "",
    *,
    rows: Rows = "",
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Reopen closed breaks of RUN: what was decided about their rows is undone.

    Example:
        cardlink mend reopen first-bank-20261120-3f9c21aa RESULT_SHORT --rows 4 --reason 'it came'
    """
    issuer_context = context.context_of(run, dry_run=dry_run)
    expected = shown(rows, dry_run=dry_run)
    settled = break_decisions.reopen_break(issuer_context, run, break_name, place, reason, expected)
    return _settled(issuer_context, run, settled, "open again", reason, dry_run)


@entry("dismiss", form=Form("dismiss", "dismiss {extract}"), acts={"dismiss": ""})
def dismiss(
    context: Context,
    issuer: Issuer,
    extract: ExtractName,
    *,
    undo: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Dismiss an extract that shall not be sent, such as a duplicate file or a test.

    It is pending no more. Or a business day on which no extract comes: it is missed no more.

    Args:
        extract: An extract by its name below the issuer's extracts. The decision holds for its
            bytes, under any name; of a full portfolio, under this one. Or a day: 2026-11-20.
        undo: Take the dismissal back: the extract is pending again, the day is missed again.

    Example:
        cardlink dismiss first-bank copy.csv --reason 'dropped twice'
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    record = remediation.dismiss(issuer_context, extract, reason, undo=undo)
    is_day = dismissed_days.day_named(extract) is not None
    if undo:
        state = "missed again" if is_day else "pending again"
    else:
        outlook = "no extract is expected" if is_day else "it will not be submitted"
        state = f"dismissed by {record.by}; {outlook}"
    facts = record.model_dump(mode="json")
    return remediated(facts, [f"{record.key}: {state}"], Step("worklist", issuer), dry_run)


def _settled(
    context: contexts.IssuerContext,
    run: str,
    settled: break_decisions.Settled,
    state: Text,
    reason: str,
    dry_run: bool,
) -> Result:
    """Show breaks that were closed or reopened, and the report of the run after that."""
    lines: list[Text] = []
    for run_break in settled.breaks:
        place = f"{run_break.name} ({counted(run_break.rows, 'row')}) {run_break.place}"
        lines.append(Sentence("{place}: {state}", place=place, state=state))
    if not lines:
        lines = [f"{run}: decided already, by a command that ended before it made the report"]
    facts: dict[str, Any] = {
        "run": run,
        "breaks": _break_facts(settled),
        "reason": redact(reason),
    }
    if dry_run:
        count = sum(run_break.rows for run_break in settled.breaks)
        return remediated(facts, lines, Step("report", run), dry_run, count)
    report = report_of(context, settled.report.summary)
    facts |= {"dry_run": False, "report": report.facts}
    next_step = Step("worklist", context.issuer.issuer)
    return Result(facts, [*lines, "", *report.shown], next_step, report.exit_code)


def _break_facts(settled: break_decisions.Settled) -> list[dict[str, Any]]:
    return [
        {"name": run_break.name, "rows": run_break.rows, "place": run_break.place}
        for run_break in settled.breaks
    ]


def _decided(
    context: contexts.IssuerContext, decided: manual_attribution.Decided, line: str, dry_run: bool
) -> Result:
    """Show a decision about a result file, and the reports of the runs it concerns."""
    facts: dict[str, Any] = {**decided.record.model_dump(mode="json"), "outcome": decided.row}
    if dry_run:
        return remediated(facts, [line], Step("worklist", context.issuer.issuer), dry_run)
    return ingested(context, decided.ingested, line, {**facts, "dry_run": False})


def remediated(
    facts: dict[str, Any],
    lines: Sequence[Text],
    next_step: Step,
    dry_run: bool,
    rows: int | None = None,
) -> Result:
    """Show a decision that was recorded, or would be; `rows`: as of `Result`."""
    if dry_run:
        lines = [Sentence("dry run, nothing was changed: {line}", line=lines[0]), *lines[1:]]
    return Result({**facts, "dry_run": dry_run}, lines, next_step, rows=rows)
