"""Who goes out again: resubmission, the template people correct rows in, renewal, and nights that were missed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands.entry import (
    DRY_OR_SEND,
    Choice,
    Cli,
    Context,
    Days,
    ExtractName,
    Form,
    Help,
    Issuer,
    ListDigest,
    Number,
    OneOf,
    Reason,
    ReasonCode,
    RunName,
    entry,
)
from flows.commands.result import Result, Table, artifact
from flows.commands.submit import LONGEST, run_facts, submitted
from flows.wiring import FileThereError, wire
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT

if TYPE_CHECKING:
    from flows.resend.backfill import BackfillList
    from flows.resend.renewal import RenewalPlan
    from flows.resend.resubmission import Request, ResendPlan
    from flows.runs.context import IssuerContext

LISTED = 20  # rows that stay, shown one by one
BOM = "\ufeff".encode()  # a spreadsheet that reads it saves UTF-8
WHICH = Choice(
    "which",
    "Which of its rows.",
    {
        "partner errors": {"errors": True},
        "errors to resubmit as is": {"action": (RESUBMIT,)},
        "our rejects": {"rejects": True},
        "no answer": {"missing": True},
        "as codes or corrections say": {},
    },
)
AGAIN = Form("resubmit", "resubmit {run}: {mode}", hours=LONGEST, without=("row",), choices=(WHICH, DRY_OR_SEND))
Errors = Annotated[bool, Help("Rows refused by the partner.")]
Codes = Annotated[
    Sequence[ReasonCode],
    Cli("--code"),
    Help("Rows with these reason codes, or with codes that begin with them, such as address.postal_code."),
]
Action = Annotated[str, OneOf(lambda: (RESUBMIT, FIX, ASK, NOTHING), checked=True)]
Actions = Annotated[Sequence[Action], Help("Rows whose reason asks for this action.")]
Missing = Annotated[bool, Help("Rows without a result.")]
Rejects = Annotated[bool, Help("Rows rejected by us.")]
Rows = Annotated[Sequence[Number], Help("A row of RUN, by number.")]


@entry("resubmit", form=AGAIN)
def resubmit(
    context: Context,
    run: RunName,
    *,
    errors: Errors = False,
    codes: Codes = (),
    action: Actions = (),
    missing: Missing = False,
    rejects: Rejects = False,
    row: Rows = (),
    corrections: Annotated[ExtractName, Cli(metavar="FILE")] = "",
    extract: ExtractName = "",
    reason: Reason = "",
    override_reason: Annotated[Reason, Cli("--override", "REASON")] = "",
    dry_run: bool = False,
) -> Result:
    """Send rows of RUN again as a new run, from its extract or from a corrected file.

    Args:
        run: The run whose rows are sent again; rows that are linked or awaiting a result are left out.
        corrections: A completed correction template: its name below the issuer's corrections, or on the command line
            a local file.
        extract: A corrected extract there, whose rows replace rows by number or cuid; not combined with a template.
        reason: Why; recorded with the new run. Required to send.
        override_reason: Why cards that are linked or awaiting a result are sent a second time; recorded. Without it
            they are left out.
        dry_run: Report how many rows would be sent and why the others are left out; write nothing.
    """
    from flows.resend.resubmission import Request, plan_resubmit
    from flows.resend.resubmission import resubmit as resubmit_step
    from flows.resend.selection import RowSelection

    issuer_context = context.context_of(run)
    wanted = RowSelection(errors, frozenset(codes), frozenset(action), missing, rejects, frozenset(row))
    request = Request(run, wanted, reason, override_reason, corrections, extract)
    local = Path(corrections)
    content = local.read_bytes() if corrections and context.local_files and local.is_file() else None
    named = request._replace(corrections=local.name) if content is not None else request
    if dry_run:
        return _preview(issuer_context, request, plan_resubmit(issuer_context, named, content))
    with context.progress(run) as progress:
        done = resubmit_step(issuer_context, named, progress, content)
    facts = {"issuer": issuer_context.issuer.issuer, "of": run, **run_facts(done)}
    shown = submitted(issuer_context, done, f"{done.manifest.counts.submitted:,} rows of {run} go out again")
    return Result(
        facts, shown, f"cardlink outbox list {issuer_context.issuer.issuer}", outbox=issuer_context.issuer.issuer
    )


@entry("corrections", form="it writes a file on the machine of whoever fills it in")
def corrections(
    context: Context,
    run: RunName,
    *,
    errors: Errors = False,
    codes: Codes = (),
    action: Actions = (),
    missing: Missing = False,
    rejects: Rejects = False,
    row: Rows = (),
    to: Path | None = None,
) -> Result:
    """Write a correction template of RUN's refused rows (default: all of them), without card numbers.

    Args:
        to: The file (default: RUN-corrections.csv).
    """
    from flows.resend.corrections import REFUSED_ROWS, correction_template
    from flows.resend.selection import RowSelection
    from flows.runs.frames import csv_pieces
    from flows.runs.keys import corrections as dropped
    from schemas.corrections import template_columns

    issuer_context, path = context.context_of(run), to or Path(f"{run}-corrections.csv")
    if path.exists():
        raise FileThereError(path=str(path))
    wanted = RowSelection(errors, frozenset(codes), frozenset(action), missing, rejects, frozenset(row))
    frames = list(correction_template(issuer_context, run, wanted if wanted.anything else REFUSED_ROWS))
    pieces = csv_pieces(frames, template_columns())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.writelines([BOM, *pieces])
    lines = sum(frame.height for frame in frames)
    shown = [
        f"{path}: {lines:,} lines, one per row and reason",
        "fill in the column correction; (empty) takes a field away; a line may be added for another column of a row",
        f"or drop it, filled in, below {issuer_context.issuer.root}/{dropped(issuer_context.issuer.issuer)}",
    ]
    next_step = f"cardlink resubmit {run} --corrections {path} --reason REASON --dry-run"
    return Result({"run": run, "file": str(path), "lines": lines}, shown, next_step if lines else "")


def _preview(context: IssuerContext, request: Request, chosen: ResendPlan) -> Result:
    from flows.resend.resubmission import command

    rows, left, over = chosen.outgoing, chosen.rows.drop_nulls("why"), chosen.outgoing.filter("over").height
    reported = f"dry run, nothing was written: {rows.height:,} rows of {request.run} would go out again"
    if chosen.already is not None:
        reported = f"dry run: run {chosen.already.run} is of these rows and for this reason; nothing would be sent"
    stays = [{"rows": number, "stays": why} for why, number in chosen.left.items()]
    shown: list[str | Table] = [reported, artifact(stays, f"{request.run}-again", f"{reported}; the others:")]
    if over:
        shown += [f"{over:,} of them are linked or await their answer: the override sends them a second time"]
    each = left.head(LISTED).select("origin", "state", "why", "where").fill_null("").rows()
    shown += ["", Table(("row", "state", "stays: it is", "in run"), each)] if each else []
    shown += [f"and {left.height - LISTED:,} more"] if left.height > LISTED else []
    strangers = chosen.source.strangers
    shown += [f"{len(strangers):,} rows of the corrected extract replace nothing asked for"] if len(strangers) else []
    next_step = command(request if request.reason else request._replace(reason="REASON"))
    facts = {
        "issuer": context.issuer.issuer,
        "of": request.run,
        "dry_run": True,
        "rows": rows.height,
        "overridden": over,
        "left": chosen.left,
        "each": chosen.rows.select("row", "origin", "state", "reason", "why", "where").to_dicts(),
        "strangers": strangers.to_list(),
        "already": chosen.already.run if chosen.already else None,
    }
    return Result(facts, shown, next_step if rows.height else "")


RENEW = Form("renew", "renew {issuer}: {mode}", hours=LONGEST, without=("extract",), choices=(DRY_OR_SEND,))


@entry("renew", form=RENEW)
def renew(
    context: Context,
    issuer: Issuer,
    *,
    within_days: Annotated[Days, Cli("--within")] = 14,
    extract: ExtractName = "",
    dry_run: bool = False,
) -> Result:
    """Renew links that are about to expire, for cardholders who are still in the latest extract.

    Args:
        issuer: Whose cardholders.
        within_days: Renew links that expire within this many days, or have expired.
        extract: The extract that shows who is still a cardholder (default: the latest).
        dry_run: Report how many links would be renewed, and who is left out and why; write nothing.
    """
    from flows.resend.renewal import Request, command, renewals
    from flows.resend.renewal import renew as renew_step

    issuer_context, request = wire(context.folder, issuer), Request(within_days, extract)
    if dry_run:
        due = renewals(issuer_context, request)
        line = f"{issuer}: {due.rows.height:,} links that end by {due.until} would be made anew, from {due.of.run}"
        next_step = command(issuer, request) if due.rows.height else ""
        return Result(_due(issuer, due), [line, *_left_out(issuer, due)], next_step)
    with context.progress(f"renewal of {issuer}") as progress:
        done = renew_step(issuer_context, request, progress)
    facts, left_out = _due(issuer, done.due), _left_out(issuer, done.due)
    if done.submitted is None:
        return Result(facts, [f"{issuer}: nothing to renew", *left_out])
    line = f"{done.submitted.manifest.counts.submitted:,} links that end by {done.due.until} are made anew"
    shown = [*submitted(issuer_context, done.submitted, line), *left_out]
    return Result(facts | run_facts(done.submitted), shown, f"cardlink outbox list {issuer}", outbox=issuer)


def _due(name: str, due: RenewalPlan) -> dict[str, Any]:
    until, rows = due.until.isoformat(), due.rows.height
    return {"issuer": name, "of": due.of.run, "until": until, "rows": rows, "left_out": due.left_out}


def _left_out(name: str, due: RenewalPlan) -> list[Table]:
    from flows.reports.lists import reason_rows

    columns = ("left out", "cards", "what to do")
    cards = [tuple(row.values()) for row in reason_rows(due.left_out)]
    title = f"{due.rows.height:,} links that end by {due.until} are due, from {due.of.run}; left out:"
    return [Table(columns, cards, f"{name}-renewal", title, on_terminal=bool(cards))]


BACKFILL = Form("backfill", "backfill {issuer}: {first_day} to {last_day}", hours=LONGEST)


@entry("backfill", form=BACKFILL)
def backfill(
    context: Context,
    issuer: Issuer,
    *,
    first_day: Annotated[date, Cli("--from")],
    last_day: Annotated[date, Cli("--to")],
    send_list: Annotated[ListDigest, Cli("--send", "DIGEST")] = "",
) -> Result:
    """List the extracts of missed days and what would be sent, or send exactly such a list.

    Args:
        issuer: Whose extracts.
        first_day: The first business date.
        last_day: The last business date.
        send_list: Leave empty to see the list with its digest; nothing is written. With that digest, exactly this
            list is sent; it is refused if the outcome would differ by then.
    """
    from flows.resend.backfill import DateRange, missed_table, send
    from flows.resend.backfill import backfill as list_step

    issuer_context, span = wire(context.folder, issuer), DateRange(first_day, last_day)
    if send_list:
        with context.progress(issuer) as progress:
            done = send(issuer_context, span, send_list, lambda _, reported: progress(reported))
        sent = {"issuer": issuer, "list": send_list, "runs": [one.manifest.run for one in done]}
        shown = [part for one in done for part in submitted(issuer_context, one)]
        nothing = f"{issuer}: nothing of list {send_list} is to be sent"
        return Result(sent, shown or [nothing], f"cardlink outbox list {issuer}", outbox=issuer)
    listed = list_step(issuer_context, span)
    facts = {**listed.model_dump(mode="json"), "digest": listed.digest}
    if not listed.missed:
        return Result(facts, [f"{issuer}: every extract from {first_day} to {last_day} is submitted"])
    missed = _missed(listed, missed_table(listed))
    if not listed.to_send:
        return Result(facts, missed)
    next_step = f"cardlink backfill {issuer} --from {first_day} --to {last_day} --send {listed.digest}"
    return Result(facts, [*missed, f"list {listed.digest}; nothing was written"], next_step)


def _missed(listed: BackfillList, rows: Sequence[Mapping[str, Any]]) -> list[str | Table]:
    columns = ("extract", "business date", "run", "rows", "sent", "rejected", "suppressed", "chunks")
    sent = [list(row.values())[: len(columns)] for row in rows if not row["refused"]]
    title = f"{len(listed.to_send)} of {len(listed.missed)} extracts would be sent; list {listed.digest}"
    shown: list[str | Table] = [artifact(rows, f"{listed.issuer}-backfill", title)]
    shown += [Table(columns, sent)] if sent else []
    return [*shown, *(f"refused: {one.extract}: {one.refused}" for one in listed.missed if one.refused)]
