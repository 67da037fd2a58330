"""Resend: rows of a run, corrections to fill in, links about to expire, and nights that were
missed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import DRY_OR_SEND, Choice, Form
from flows.commands.parameters import (
    ExtractName,
    Field,
    Issuer,
    ListDigest,
    Number,
    Reason,
    ReasonCode,
    RunName,
)
from flows.commands.result import Part, Result, Table
from flows.commands.submit import LONGEST, outcome, run_facts, submitted
from flows.configuration import FileThereError
from flows.steps import WHY, Sentence, Step
from flows.wiring import wire
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT

with on_first_use():
    from flows.reports import lists
    from flows.resend import backfill as backfills
    from flows.resend import renewal, resubmission, resubmission_run, selection
    from flows.resend import template as templates
    from flows.runs import frames as stored_frames
    from flows.runs import keys
    from flows.submissions import rehearsal
    from schemas import corrections as tables

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
AGAIN = Form(
    "resubmit",
    "resubmit {run}: {mode}",
    hours=LONGEST,
    needs=("reason",),
    without=("row",),
    choices=(WHICH, DRY_OR_SEND),
)
Action = Annotated[str, Field(names=lambda: (RESUBMIT, FIX, ASK, NOTHING), checked=True)]


@entry("resubmit", form=AGAIN, second="override", when="override_reason")
def resubmit(
    context: Context,
    run: RunName,
    *,
    errors: bool = False,
    codes: Annotated[Sequence[ReasonCode], Field("--code")] = (),
    action: Sequence[Action] = (),
    missing: bool = False,
    rejects: bool = False,
    row: Sequence[Number] = (),
    corrections: Annotated[ExtractName, Field(metavar="FILE")] = "",
    extract: ExtractName = "",
    reason: Reason = "",
    override_reason: Annotated[Reason, Field("--override", "REASON")] = "",
    dry_run: bool = False,
) -> Result:
    """Send rows of RUN again as a new run, read from its extract or from a corrected file.

    Args:
        run: The run whose rows are sent again; rows with a link or awaiting their result stay.
        errors: Rows refused by the partner.
        codes: Rows refused for these reasons, ours or the partner's, or a first part of one:
            address.postal_code.
        action: Rows by the action their reason asks for.
        missing: Rows without a result.
        rejects: Rows we refused.
        row: A row of RUN, by its number.
        corrections: A filled-in correction template, by its name below the issuer's corrections; on
            the command line also a local file.
        extract: A corrected extract below the issuer's extracts, whose rows replace rows by number
            or cuid; not together with a template.
        reason: Why; kept with the new run. Required to send.
        override_reason: Why cards that are linked or awaiting are sent a second time; recorded.
            Without it they stay.
        dry_run: Show how many rows would be sent and why the others stay; write nothing.
    """
    issuer_context = context.context_of(run)
    issuer = issuer_context.issuer.issuer
    picked = selection.RowSelection(
        errors, frozenset(codes), frozenset(action), missing, rejects, frozenset(row)
    )
    request = resubmission.Request(run, picked, reason, override_reason, corrections, extract)
    local = Path(corrections)
    content = (
        local.read_bytes() if corrections and context.local_files and local.is_file() else None
    )
    named = request._replace(corrections=local.name) if content is not None else request
    if dry_run:
        return _preview(
            issuer, request, *resubmission_run.rehearse_resubmit(issuer_context, named, content)
        )
    with context.progress(run) as progress:
        done = resubmission_run.resubmit(issuer_context, named, progress, content)
    shown = submitted(
        issuer_context, done, f"{done.manifest.counts.submitted:,} rows of {run} are sent again"
    )
    facts = {"issuer": issuer, "of": run, **run_facts(done)}
    headline = (
        ""
        if done.already
        else f"rows of {run} again: {outcome([(done.manifest.counts, facts['chunks'])])}"
    )
    return Result(facts, shown, Step("outbox list", issuer), outbox=issuer, headline=headline)


@entry("corrections", form="it writes a file on the machine of the person who fills it in")
def corrections(context: Context, run: RunName, *, to: Path | None = None) -> Result:
    """Write the refused rows of RUN, ours and the partner's, as a template to fill in, without card
    numbers.

    Args:
        to: The file (default: RUN-corrections.csv).
    """
    path = to or Path(f"{run}-corrections.csv")
    if path.exists():
        raise FileThereError(path=str(path))
    issuer_context = context.context_of(run)
    issuer = issuer_context.issuer
    frames = list(templates.correction_template(issuer_context, run))
    pieces = stored_frames.csv_pieces(frames, tables.Template.dtypes())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.writelines([BOM, *pieces])
    lines = sum(frame.height for frame in frames)
    shown = [
        f"{path}: {lines:,} lines, one per row and reason",
        "fill in the column correction; (empty) clears a field; add a line to correct another column of a row",
        f"to use it in the Prefect form, put it in {issuer.root}/{keys.corrections(issuer.issuer)}",
    ]
    facts = {"run": run, "file": str(path), "lines": lines}
    next_step = Step("resubmit", run, corrections=path, reason=WHY, dry_run=True)
    return Result(facts, shown, next_step if lines else None)


def _preview(
    issuer: str,
    request: resubmission.Request,
    plan: resubmission.ResendPlan,
    checked: rehearsal.Checked,
) -> Result:
    left, over = plan.rows.drop_nulls("why"), plan.outgoing.filter("over").height
    sent = checked.counts.submitted
    line = f"dry run, nothing was written: {sent:,} rows of {request.run} would be sent again"
    if plan.already is not None:
        line = (
            f"dry run: run {plan.already.run} has these rows and this reason; nothing would be sent"
        )
    fates, title = (
        plan.fates.rows() if plan.already is None else [],
        f"Dry run: the rows selected of {request.run}",
    )
    shown: list[Part] = [
        line,
        Table(("rows", "reason", "count"), fates, f"{request.run}-again", title),
    ]
    if checked.refused:
        shown.append(Sentence("refused: {error}", error=checked.refused))
    if over:
        shown += [f"{over:,} of them are linked or awaiting: the override sends them a second time"]
    each = left.head(LISTED).select("origin", "state", "why", "where").fill_null("").rows()
    shown += ["", Table(("row", "state", "why it stays", "in run"), each)] if each else []
    shown += [f"and {left.height - LISTED:,} more"] if left.height > LISTED else []
    strangers = plan.source.strangers
    shown += (
        [f"{len(strangers):,} rows of the corrected extract replace no selected row"]
        if len(strangers)
        else []
    )
    next_step = resubmission_run.resubmit_step(request) if sent else None
    facts = {
        "issuer": issuer,
        "of": request.run,
        "dry_run": True,
        "rows": sent,
        "refused": plan.refused.height,
        "chunks": checked.chunks,
        "overridden": over,
        "left": plan.left,
        "each": plan.rows.select("row", "origin", "state", "reason", "why", "where").to_dicts(),
        "strangers": strangers.to_list(),
        "already": plan.already.run if plan.already else None,
    }
    return Result(facts, shown, next_step, 3 if checked.refused else 0)


@entry(
    "renew",
    form=Form("renew", "renew {issuer}: {mode}", LONGEST, choices=(DRY_OR_SEND,), actor="optional"),
)
def renew(
    context: Context,
    issuer: Issuer,
    *,
    within_days: Annotated[int, Field("--within", "DAYS", days=True, least=0, most=365)] = 14,
    dry_run: bool = False,
) -> Result:
    """Renew the links that are about to expire, for cardholders who are still in the latest
    extract.

    Args:
        issuer: Whose cardholders.
        within_days: Renew links that expire within this many days, or have expired.
        dry_run: Show whose link would be renewed, and who is left out and why; write nothing.
    """
    issuer_context = wire(context.folder, issuer)
    if dry_run:
        due, checked = renewal.rehearse_renew(issuer_context, within_days)
        sent = checked.counts.submitted
        line = f"{issuer}: {sent:,} links that expire by {due.until} would be renewed, from {due.of.run}"
        facts = _due_facts(issuer, due) | {
            "counts": checked.counts.model_dump(),
            "chunks": checked.chunks,
        }
        next_step = Step("renew", issuer, within=f"{within_days}d") if sent else None
        return Result(facts, [line, _left_out(issuer, due)], next_step)
    with context.progress(f"renewal of {issuer}") as progress:
        due, done = renewal.renew(issuer_context, within_days, progress)
    if done is None:
        return Result(
            _due_facts(issuer, due), [f"{issuer}: nothing to renew", _left_out(issuer, due)]
        )
    line = f"{done.manifest.counts.submitted:,} links that expire by {due.until} are renewed"
    shown = [*submitted(issuer_context, done, line), _left_out(issuer, due)]
    return Result(
        _due_facts(issuer, due) | run_facts(done),
        shown,
        Step("outbox list", issuer),
        outbox=issuer,
    )


def _due_facts(issuer: str, due: renewal.RenewalPlan) -> dict[str, Any]:
    until, rows = due.until.isoformat(), due.rows.height
    return {
        "issuer": issuer,
        "of": due.of.run,
        "until": until,
        "rows": rows,
        "left_out": due.left_out,
    }


def _left_out(issuer: str, due: renewal.RenewalPlan) -> Table:
    cards = [("due", due.rows.height, ""), *lists.reason_rows(due.left_out)]
    title = f"{due.rows.height:,} links that expire by {due.until} are due, from {due.of.run}; the others are left out"
    return Table(
        ("links", "cards", "what to do"),
        cards,
        f"{issuer}-renewal",
        title,
        on_terminal=len(cards) > 1,
    )


@entry(
    "backfill", form=Form("backfill", "backfill {issuer}: {first_day} to {last_day}", hours=LONGEST)
)
def backfill(
    context: Context,
    issuer: Issuer,
    *,
    first_day: Annotated[date, Field("--from")],
    last_day: Annotated[date, Field("--to")],
    send_list: Annotated[ListDigest, Field("--send", "DIGEST")] = "",
) -> Result:
    """List the extracts of missed nights and what they would send, or send exactly such a list.

    Args:
        issuer: Whose extracts.
        first_day: The first business date.
        last_day: The last business date.
        send_list: The digest of the list to send. Leave it empty first: the list is shown with its
            digest, and nothing is written. A list that would come out differently by now is
            refused.
    """
    issuer_context, span = wire(context.folder, issuer), (first_day, last_day)
    if send_list:
        with context.progress(issuer) as progress:
            done = backfills.send(issuer_context, *span, send_list, progress)
        sent = {"issuer": issuer, "list": send_list, "runs": [one.manifest.run for one in done]}
        shown = [part for one in done for part in submitted(issuer_context, one)]
        nothing = f"{issuer}: list {send_list} has nothing to send"
        return Result(sent, shown or [nothing], Step("outbox list", issuer), outbox=issuer)
    listed = backfills.backfill(issuer_context, *span)
    missed = [
        {**one.facts, "extract": one.extract.partition("/extracts/")[2]} for one, _ in listed.missed
    ]
    facts = {"issuer": issuer, "digest": listed.digest, "missed": missed}
    if not missed:
        return Result(
            facts, [f"{issuer}: every extract from {first_day} to {last_day} is submitted"]
        )
    fates = ("read", "submitted", "rejected", "suppressed")
    table = Table(
        ("extract", "business date", "run", *fates, "chunks", "refused"),
        [
            [
                one["extract"],
                one["as_of"],
                one["run"],
                *map(one["counts"].get, fates),
                one["chunks"],
                one["refused"],
            ]
            for one in missed
        ],
        f"{issuer}-backfill",
        f"{sum(not one['refused'] for one in missed)} of {len(missed)} extracts would be sent; list {listed.digest}",
    )
    next_step = Step("backfill", issuer, from_=first_day, to=last_day, send=listed.digest)
    sendable = not all(one["refused"] for one in missed)
    shown = [table, f"list {listed.digest}; nothing was written"]
    return Result(facts, shown, next_step if sendable else None)
