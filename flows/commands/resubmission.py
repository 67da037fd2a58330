"""Send rows of a run again: as they are, or with corrections that somebody filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Choice, Form
from flows.commands.parameters import (
    Field,
    FileName,
    Number,
    Reason,
    ReasonCode,
    Rows,
    Target,
    shown,
)
from flows.commands.private_files import write_new
from flows.commands.result import Part, Result, Table, worst
from flows.commands.sent_runs import outcome, run_facts, submitted, upload_step
from flows.commands.submit import LONGEST
from flows.configuration import FileThereError
from flows.errors import CardlinkError
from flows.steps import WHY, Sentence, Step, counted
from flows.wiring import wire
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT

with on_first_use():
    from flows.resend import corrections as stored_corrections
    from flows.resend import (
        filled_template,
        resubmission,
        resubmission_run,
        selected_runs,
        selection,
    )
    from flows.resend import template as templates
    from flows.runs import context as contexts
    from flows.runs import frames as stored_frames
    from flows.runs import keys, shown_rows
    from flows.submissions import rehearsal
    from flows.submissions import submit as submissions
    from schemas import corrections as tables

if TYPE_CHECKING:
    import polars as pl

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
        "changed names and addresses": {"changed": True},
        "refused, the old link stands": {"replacing": True},
        "as codes or corrections say": {},
    },
)
RESEND = Form(
    "resubmit",
    "resubmit {run}",
    hours=LONGEST,
    needs=("reason",),
    without=("row", "extract"),
    choices=(WHICH,),
)
Templated = Annotated[str, Field(pattern=r"[a-z0-9][a-z0-9-]*(,[a-z0-9][a-z0-9-]*)*")]
Action = Annotated[str, Field(names=lambda: (RESUBMIT, FIX, ASK, NOTHING), checked=True)]


@entry("resubmit", form=RESEND, acts={"override": "override_reason", "resend": ""})
def resubmit(
    context: Context,
    run: Target,
    *,
    errors: bool = False,
    codes: Annotated[Sequence[ReasonCode], Field("--code")] = (),
    action: Sequence[Action] = (),
    missing: bool = False,
    rejects: bool = False,
    changed: bool = False,
    replacing: bool = False,
    row: Sequence[Number] = (),
    corrections: Annotated[FileName, Field(metavar="FILE")] = "",
    extract: FileName = "",
    rows: Rows = "",
    reason: Reason = "",
    override_reason: Annotated[Reason, Field("--override", "REASON")] = "",
    dry_run: bool = False,
) -> Result:
    """Send rows of RUN again as a new run, read from its extract or from a corrected file.

    Args:
        run: The run whose rows are sent again; rows with a link or awaiting their result stay. Or
            an issuer: all runs that decided last that a card has no link, selected by errors,
            codes, actions, rejects, changed or replacing, or those that a template names, each as a
            new run.
        errors: Rows refused by the partner.
        codes: Rows refused for these reasons, ours or the partner's, or a first part of one:
            address.postal_code.
        action: Rows by the action their reason asks for.
        missing: Rows without a result.
        rejects: Rows we refused.
        changed: Rows of cards that have a link and whose name or address has changed since; the new
            link replaces the one they have.
        replacing: Rows that were to replace a link and were refused, while that link still stands.
        row: A row of RUN, by its number.
        corrections: A filled-in correction template, by its name below the issuer's corrections; on
            the command line also a local file.
        extract: A corrected extract below the issuer's corrections, whose rows replace rows by
            number or cuid; not together with a template.
        reason: Why; kept with the new run. Required to send.
        override_reason: Why cards that are linked or awaiting are sent a second time; recorded.
            Without it they stay.
        dry_run: Show how many rows would be sent and why the others stay; write nothing.

    Example:
        cardlink resubmit first-bank-20261120-3f9c21aa --errors --reason 'portal was down' --dry-run
    """
    selected = selection.RowSelection(
        errors=errors,
        codes=frozenset(codes),
        actions=frozenset(action),
        missing=missing,
        rejects=rejects,
        rows=frozenset(row),
        changed=changed,
        replacing=replacing,
    )
    issuer = context.issuer_of(run)
    expected = shown(rows, is_named=selected.is_named, dry_run=dry_run)
    if issuer:
        if any((missing, row, extract, override_reason)):
            raise selected_runs.OneRunError(issuer=issuer)
        return _in_all_runs(
            context, issuer, selected, reason, corrections, expected, dry_run=dry_run
        )
    issuer_context = context.context_of(run)
    request = resubmission.Request(run, selected, reason, override_reason, corrections, extract)
    template = Path(corrections)
    content = None
    stored_request = request
    if corrections and context.local_files and template.is_file():
        content = template.read_bytes()
        stored_request = request._replace(corrections=template.name)
    if dry_run:
        resend_plan, checked = resubmission_run.rehearse_resubmit(
            issuer_context, stored_request, content
        )
        return _rehearsed(issuer_context.issuer.issuer, request, resend_plan, checked)
    with context.progress(run) as progress:
        done = resubmission_run.resubmit(
            issuer_context, stored_request, progress, content, expected
        )
    return _resubmitted(issuer_context, run, done)


def _in_all_runs(
    context: Context,
    issuer: str,
    rows: selection.RowSelection,
    reason: str,
    corrections: str,
    expected: str | None,
    *,
    dry_run: bool,
) -> Result:
    """Send the selected rows of all runs that decided last about their cards, newest run first.

    Or those that a template corrects. A run of which nothing can be sent, or whose extract is gone,
    does not stop the others.
    """
    issuer_context = wire(context.folder, issuer)
    if dry_run:
        issuer_context = contexts.overlaid(issuer_context)
    parts: list[Part] = []
    facts: list[dict[str, Any]] = []
    refused: dict[str, CardlinkError] = {}
    if reason.strip() or dry_run:  # once, before rows are selected
        parts += resubmission_run.take_in_results(issuer_context)
    templates = _templates(context, issuer_context, rows, corrections)
    requests = [
        (_request_of(run, rows, reason, corrections, templates[run]), templates[run])
        for run in selected_runs.newest_first(templates)
    ]
    total = 0 if rows.is_named else resubmission_run.rows_to_send(issuer_context, requests)
    if total:
        shown_rows.refuse_other_rows(issuer, issuer, total, expected)
    for request, content in requests:
        try:
            result = _of_one(context, issuer_context, request, content, dry_run=dry_run)
        except CardlinkError as error:
            refused[request.run] = error
            continue
        parts += [*result.shown, ""]
        facts.append(result.facts)
    parts += [Sentence("not sent: {error}", error=error.text) for error in refused.values()]
    everything = {"issuer": issuer, "dry_run": dry_run, "runs": facts, "refused": sorted(refused)}
    parts = parts or [f"{issuer}: no run decided last about such rows"]
    code = worst(error.exit_code for error in refused.values())
    if not dry_run:
        return Result(everything, parts, upload_step(issuer), code, outbox=issuer)
    would_send = any(known["rows"] or known["confirmed"] for known in facts)
    step = None
    if would_send:
        step = selected_runs.resubmit_step(issuer, rows, total, reason, corrections)
    return Result(everything, parts, step, code, rows=total or None)


def _request_of(
    run: str, rows: selection.RowSelection, reason: str, corrections: str, part: bytes | None
) -> resubmission.Request:
    """Return the request for one of all runs, with its part of a template, or all of it."""
    name = corrections if part is None else f"{Path(corrections).stem}-{run}.csv"
    return resubmission.Request(run, rows, reason, corrections=name)


def _of_one(
    context: Context,
    issuer_context: contexts.IssuerContext,
    request: resubmission.Request,
    content: bytes | None,
    *,
    dry_run: bool,
) -> Result:
    """Send the selected rows of one of these runs, or show what would be sent."""
    if dry_run:
        planned = resubmission_run.rehearse_resubmit(issuer_context, request, content)
        return _rehearsed(issuer_context.issuer.issuer, request, *planned)
    with context.progress(request.run) as progress:
        done = resubmission_run.send_again(issuer_context, request, progress, content)
    return _resubmitted(issuer_context, request.run, done)


def _templates(
    context: Context,
    issuer_context: contexts.IssuerContext,
    rows: selection.RowSelection,
    corrections: str,
) -> Mapping[str, bytes | None]:
    """Return the runs of the issuer that have the selected rows, with none; or those that a
    filled-in template names, each with its part of it, or none where the stored one is of one run.
    """
    if not corrections:
        return dict.fromkeys(selected_runs.runs_to_resend(issuer_context, rows))
    path = Path(corrections)
    is_local = context.local_files and path.is_file()
    if is_local:
        content = path.read_bytes()
    else:
        _, content = stored_corrections.read_corrections(issuer_context, corrections)
    parts = filled_template.by_run(content, path.name)
    issuer = issuer_context.issuer.issuer
    own = {run: part for run, part in parts.items() if keys.keys_of(run).run.issuer == issuer}
    is_of_one = not is_local and len(parts) == 1
    return dict.fromkeys(own) if is_of_one else own


def _resubmitted(context: contexts.IssuerContext, run: str, done: submissions.Submitted) -> Result:
    """Show the run that sends rows of another one again."""
    issuer = context.issuer.issuer
    counts = done.manifest.counts
    confirmed = counted(
        done.confirmed, "row is what its link was", "rows are what their links were"
    )
    line = f"{run}: {confirmed} made from, as the correction confirms; no link is replaced"
    if done.manifest.run == run:
        facts = {"issuer": issuer, "of": run, "rows": 0, "confirmed": done.confirmed}
        return Result(facts, [line], Step("worklist", issuer))
    if done.confirmed:
        done = done._replace(remarks=(line, *done.remarks))
    shown = submitted(context, done, f"{counted(counts.submitted, 'row')} of {run} are sent again")
    facts = {"issuer": issuer, "of": run, **run_facts(done)}
    headline = ""
    if not done.already:
        headline = f"rows of {run} again: {outcome([(counts, len(done.manifest.chunks))])}"
    return Result(facts, shown, upload_step(issuer), outbox=issuer, headline=headline)


_FILLED_IN = (
    "fill in the column correction; (empty) clears a field; "
    "add a line to correct another column of a row",
    "to use it in the Prefect form, put it in the corrections of its issuer",
)
_NOTHING_TO_FILL_IN = (
    "there is nothing to fill in: no refused row waits for a correction; rows that were sent since "
    "and those of cardholders who have a link by now, are not listed"
)


@entry("corrections", form="it writes a file on the machine of the person who fills it in")
def corrections(context: Context, run: Templated, *, to: Path | None = None) -> Result:
    """Write the refused rows of RUN, ours and the partner's, as a template to fill in.

    It holds no card numbers.

    Args:
        run: The run; or an issuer, or several with commas between: the rows of all their runs that
            wait for a correction.
        to: The file (default: RUN-corrections.csv).

    Example:
        cardlink corrections first-bank-20261120-3f9c21aa --to fix.csv
    """
    path = to or Path(f"{run}-corrections.csv")
    if path.exists():
        raise FileThereError(path=str(path))
    frames = list(chain.from_iterable(_template(context, target) for target in run.split(",")))
    pieces = stored_frames.csv_pieces(frames, tables.Template.dtypes())
    write_new(path, [BOM, *pieces])
    lines = sum(frame.height for frame in frames)
    shown = [f"{path}: {counted(lines, 'line')}, one per row and reason"]
    shown += _FILLED_IN if lines else [_NOTHING_TO_FILL_IN]
    facts = {"run": run, "file": str(path), "lines": lines}
    next_step = Step("resubmit", run, corrections=path, reason=WHY, dry_run=True)
    return Result(facts, shown, next_step if lines else None)


def _template(context: Context, target: str) -> Iterator[pl.DataFrame]:
    """Yield the template of a run, or of all runs of an issuer."""
    issuer = context.issuer_of(target)
    if issuer:
        return templates.template_of_all_runs(wire(context.folder, issuer))
    return templates.correction_template(context.context_of(target), target)


def _rehearsed(
    issuer: str,
    request: resubmission.Request,
    resend_plan: resubmission.ResendPlan,
    checked: rehearsal.Checked,
) -> Result:
    """Show which rows would be sent again, and why the others stay."""
    rows = checked.counts.submitted
    earlier = resend_plan.already.run if resend_plan.already else None
    each = resend_plan.rows.select("row", "origin", "state", "reason", "why", "where")
    facts = {
        "issuer": issuer,
        "of": request.run,
        "dry_run": True,
        "rows": rows,
        "refused": resend_plan.refused.height,
        "confirmed": len(resend_plan.confirmed),
        "chunks": checked.chunks,
        "overridden": _overridden(resend_plan),
        "left": resend_plan.left,
        "each": each.to_dicts(),
        "strangers": resend_plan.source.strangers.to_list(),
        "already": earlier,
    }
    outcome = f"{counted(rows, 'row')} of {request.run} would be sent again"
    line = f"dry run, nothing was written: {outcome}"
    if earlier is not None:
        line = f"dry run: run {earlier} has these rows and this reason; nothing would be sent"
    fates = resend_plan.fates.rows() if earlier is None else []
    title = f"Dry run: the rows selected of {request.run}"
    table = Table(("rows", "reason", "count"), fates, f"{request.run}-again", title)
    shown = [line, table, *_remarks(resend_plan, checked)]
    would_send = (rows or len(resend_plan.confirmed)) and not checked.refused
    next_step = resubmission_run.resubmit_step(request, resend_plan.sent) if would_send else None
    is_named = request.selection.is_named
    to_send = None if is_named or not resend_plan.sent else resend_plan.sent
    return Result(facts, shown, next_step, 3 if checked.refused else 0, rows=to_send)


def _remarks(resend_plan: resubmission.ResendPlan, checked: rehearsal.Checked) -> Iterator[Part]:
    """Yield what would stop a resubmission, and which rows stay."""
    if checked.refused:
        yield Sentence("refused: {error}", error=checked.refused)
    overridden = _overridden(resend_plan)
    if overridden:
        which = f"{overridden:,} of them are linked or awaiting"
        yield f"{which}: the override sends them a second time"
    staying = resend_plan.rows.drop_nulls("why")
    if staying.height:
        listed = staying.head(LISTED).select("origin", "state", "why", "where").fill_null("")
        yield ""
        yield Table(("row", "state", "why it stays", "in run"), listed.rows())
    if staying.height > LISTED:
        yield f"and {staying.height - LISTED:,} more"
    strangers = len(resend_plan.source.strangers)
    if strangers:
        yield f"{counted(strangers, 'row')} of the corrected extract replace no selected row"


def _overridden(resend_plan: resubmission.ResendPlan) -> int:
    """Return how many linked or awaiting rows would be sent a second time."""
    return resend_plan.outgoing.filter("over").height
