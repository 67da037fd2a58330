"""Resubmit rows of a run: plan which, and commit a run of them."""

from collections.abc import Iterable
from contextlib import suppress

from flows.errors import CardlinkError, OperatorError
from flows.extracts.errors import checked_name
from flows.redaction import redact
from flows.reports.ingestion import ingest
from flows.reports.rebuild import rebuild
from flows.resend.corrections import read_corrections
from flows.resend.keeping_links import Which, keep_links
from flows.resend.resubmission import Request, ResendPlan, plan_resubmit
from flows.resend.selected_run import rows_digest, selection_job
from flows.results.lineage import repeated_runs
from flows.runs.adapters import NoReasonError
from flows.runs.context import IssuerContext, overlaid
from flows.runs.events import record_event
from flows.runs.identity import canonical, digest
from flows.runs.keys import corrections, keys_of
from flows.runs.shown_rows import refuse_other_rows
from flows.runs.store import write_once
from flows.runs.stored_run import StoredRun
from flows.steps import WHY, Option, Sentence, Step
from flows.submissions.build import Job, OnProgress
from flows.submissions.commit import finish_commits
from flows.submissions.rehearsal import NO_ROWS, Checked, check_selection
from flows.submissions.row_scope import SelectedRows
from flows.submissions.submit import Submitted, execute
from schemas.manifest import Selection


class NothingToSendError(OperatorError):
    """None of the selected rows would go out."""

    message = "{run}: nothing to send: {reason}."
    next_step = Sentence(
        "To list every row and why it is left out: {same_command} with {dry_run}.",
        dry_run=Option("--dry-run", of="resubmit"),
    )


def rehearse_resubmit(
    context: IssuerContext, request: Request, content: bytes | None = None
) -> tuple[ResendPlan, Checked]:
    """Return what a resubmission would do, and what its run would come to; nothing is written."""
    dry = _with_template(context, request, content)
    take_in_results(dry)
    plan = plan_resubmit(dry, request)
    if plan.already is not None or plan.nothing:
        return plan, NO_ROWS
    return plan, check_selection(dry, _job(dry, request, plan))


def _with_template(
    context: IssuerContext, request: Request, content: bytes | None
) -> IssuerContext:
    """Return a context whose writes stay in memory, with the filled-in template.

    `content` is that of the template, if it is not in the store yet.
    """
    dry = overlaid(context)
    if content is not None:
        key = corrections(context.issuer.issuer) + checked_name(request.corrections)
        write_once(dry.adapters.store, key, content)
    return dry


def resubmit(
    context: IssuerContext,
    request: Request,
    on_progress: OnProgress = lambda _: None,
    content: bytes | None = None,
    expected: str | None = None,
) -> Submitted:
    """Send what `plan_resubmit` selects as a run of its own; the results that came are taken in
    first.

    Otherwise as `send_again`.
    """
    if not request.reason.strip():
        raise NoReasonError()
    finished = take_in_results(context)
    done = send_again(context, request, on_progress, content, expected)
    return done._replace(remarks=(*finished, *done.remarks))


def take_in_results(context: IssuerContext) -> tuple[str, ...]:
    """Finish what died half-way and ingest the results that came; before rows are selected.

    Returns a remark about each commit that was finished.
    """
    finished = finish_commits(context)
    ingest(context)
    return finished


def send_again(
    context: IssuerContext,
    request: Request,
    on_progress: OnProgress = lambda _: None,
    content: bytes | None = None,
    expected: str | None = None,
) -> Submitted:
    """Send what `plan_resubmit` selects as a run of its own, after `take_in_results`.

    `content`: the filled-in template of that name, if it is to be stored first. The same command
    again finishes the same run, and does nothing once it is committed. Where a corrected file makes
    all rows what their links were made from, there is none: these links are kept. Raises
    NoReasonError, NothingToSendError, OtherRowsError, OvertakenError and what a submit raises.
    """
    if not request.reason.strip():
        raise NoReasonError()
    planning = context if content is None else _with_template(context, request, content)
    plan = plan_resubmit(planning, request)
    confirmed = _keep_confirmed(context, request, plan)
    if plan.already is not None:
        return Submitted(plan.already, already=True, confirmed=confirmed)
    if plan.nothing and confirmed:
        return Submitted(plan.of, already=True, confirmed=confirmed)
    if plan.nothing:
        raise NothingToSendError(run=request.run, reason=_why_nothing(plan))
    refuse_other_rows(context.issuer.issuer, request.run, plan.sent, expected)
    if content is not None and plan.given is not None:
        write_once(context.adapters.store, plan.given.key, content)
        template, _ = read_corrections(context, request.corrections)
        plan = plan._replace(given=template)
    with context.sealer() as sealer:
        done = execute(context, _job(context, request, plan), sealer, on_progress)
    for repeated in repeated_runs(StoredRun.of(context.adapters, done.manifest)):
        rebuild(context, repeated)
    return done._replace(confirmed=confirmed)


def _keep_confirmed(context: IssuerContext, request: Request, plan: ResendPlan) -> int:
    """Keep the links of the rows that a corrected file makes what their link was made from; return
    how many. The issuer decided so, which takes them off the worklist.
    """
    rows = frozenset(plan.confirmed)
    if rows:
        which = Which(request.run, rows=rows, refused=True)
        keep_links(context, which, request.reason, file=(plan.file.key, plan.file.size))
    return len(rows)


def _why_nothing(plan: ResendPlan) -> str:
    left = [f"{rows:,} {why}" for why, rows in plan.left.items()]
    if plan.refused.height:
        left.append(f"{plan.refused.height:,} corrected but still refused")
    return ", ".join(left) or "no row matches the selection"


def rows_to_send(context: IssuerContext, requests: Iterable[tuple[Request, bytes | None]]) -> int:
    """Return how many rows the requests would send together, without those that are refused."""
    total = 0
    for request, content in requests:
        with suppress(CardlinkError):  # it is refused by its own error when it is to be sent
            total += plan_resubmit(_with_template(context, request, content), request).sent
    return total


def resubmit_step(request: Request, sent: int) -> Step:
    """Return the step that sends what a request asks for, so many rows; without a reason, it is to
    be named.
    """
    selection = request.selection
    return Step(
        "resubmit",
        request.run,
        errors=selection.errors,
        missing=selection.missing,
        rejects=selection.rejects,
        changed=selection.changed,
        replacing=selection.replacing,
        code=sorted(selection.codes),
        action=sorted(selection.actions),
        row=sorted(selection.rows),
        corrections=redact(request.corrections),
        extract=redact(request.extract),
        rows=None if selection.is_named else sent,
        reason=redact(request.reason) or WHY,
        override=redact(request.override),
    )


def _job(context: IssuerContext, request: Request, plan: ResendPlan) -> Job:
    """Plan the run, store its selection, and record what it repeats and overrides."""
    rows = plan.outgoing.select("row", "origin")
    job = selection_job(
        context,
        plan.source.stored,
        SelectedRows(rows, plan.corrected),
        _selection(request, plan),
        resubmit_step(request, plan.sent),
        plan.last_turn,
    )
    run = job.plan.run
    overridden = plan.outgoing.filter("over")
    if overridden.height:  # before the commit: a crash right after it would lose the record
        record_event(
            context.adapters,
            keys_of(run),
            "overridden",
            request.override,
            rows=overridden.height,
            runs=sorted(overridden["where"].unique()),
        )
    return job


def _selection(request: Request, plan: ResendPlan) -> Selection:
    rows = plan.outgoing.select("row", "origin")
    inputs = {
        "of": request.run,
        "rows": rows_digest(rows),
        "override": request.override,
        "corrections": plan.given.sha256 if plan.given else "",
    }
    return Selection(
        kind="resubmit",
        of=request.run,
        rows=rows.height,
        sha256=digest(canonical(inputs)),
        reason=redact(request.reason),
        override=redact(request.override),
        corrections=plan.given,
    )
