"""Remediate a run or an extract, each with a reason and a record.

Abandon a run, take over its claim, dismiss its extract. Breaks are closed in `break_decisions.py`,
result rows attributed by hand in `manual_attribution.py`.
"""

from datetime import date
from typing import Literal

from flows.book.stored_book import known_plans
from flows.errors import OperatorError
from flows.reports.missed_days import missed_days
from flows.runs.adapters import Adapters
from flows.runs.claim import ClaimHolder, end, holder_of, work_on
from flows.runs.context import IssuerContext
from flows.runs.decisions import DAY, EXTRACT, decide, decisions, lift
from flows.runs.dismissed_days import day_named
from flows.runs.errors import NotFoundError
from flows.runs.events import record_event
from flows.runs.journal import Act, enter
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import WHY, Sentence, Slot, Step
from flows.submissions.begun import abandon_run
from flows.submissions.dismissals import dismissal, dismissals
from flows.submissions.extract_lookup import find_extract, identify
from flows.submissions.extract_states import extract_states
from flows.submissions.plan import submit_step
from schemas.records import Abandoned, Dismissal


class CommittedError(OperatorError):
    """The run to be abandoned, or of the extract to be dismissed, is committed."""

    message = "Run {run} is committed: it can be neither abandoned nor its extract dismissed."
    next_step = Sentence(
        "Chunks not uploaded yet can be cancelled: {cancel}.",
        cancel=Step("outbox cancel", Slot("run"), reason=WHY, dry_run=True),
    )


def abandon(adapters: Adapters, run: str, reason: str) -> Abandoned:
    """Abandon a planned run that is neither committed nor claimed; return the record.

    Raises UnknownRunError, CommittedError, AbandonedError, ClaimedError, NoReasonError.
    """
    stored_run = StoredRun.by_id(adapters, run)
    adapters.signed(reason)
    stored_run.planned()
    if stored_run.finished() is None:
        record = abandon_run(adapters, run, reason)
        if record is not None:
            return record
    stored_run.fresh().finished()  # abandoned: says so
    raise CommittedError(run=run)


def next_after_abandoning(adapters: Adapters, run: str) -> Step:
    """Return the next step after an abandoned run: a new run of its extract, or of its rows."""
    stored_run = StoredRun.by_id(adapters, run)
    plan = stored_run.planned()
    if plan.selection is not None:
        return Step("worklist", stored_run.keys.run.issuer)
    return submit_step(plan.source.key, new_run=WHY)


def take_over(adapters: Adapters, run: str, reason: str) -> ClaimHolder:
    """End the claim on a run and return who held it; the next submit resumes from what is there.

    A process that is still alive commits nothing any more.
    Raises UnknownRunError, NotFoundError, NoReasonError.
    """
    stored_run = StoredRun.by_id(adapters, run)
    signed_reason = adapters.signed(reason)["reason"]
    stored_run.planned()
    subject = work_on(adapters, run)
    holder = holder_of(subject, adapters.now())
    if holder is None:
        raise NotFoundError(
            place=run, what="claim to take over", command=Step("report", run, history=True)
        )
    record_event(
        adapters,
        stored_run.keys,
        "taken over",
        signed_reason,
        holder=holder.holder,
        until=holder.until.isoformat(timespec="seconds"),
    )
    end(subject, adapters.actor, adapters.now())
    return holder


def dismiss(context: IssuerContext, extract: str, reason: str, *, undo: bool = False) -> Dismissal:
    """Decide that an extract shall not be sent, or take that back; return the record.

    Or that none comes on a business day, where that is what is named. Raises ExtractNotFoundError,
    CommittedError, NotFoundError, NoReasonError.
    """
    day = day_named(extract)
    if day is not None:
        return _dismiss_day(context, day, reason, undo)
    adapters = context.adapters
    issuer = context.issuer.issuer
    signed = adapters.signed(reason)
    entry = find_extract(context, extract)
    sha256 = identify(adapters.store, entry).sha256
    committed_run = _committed_run(context, entry.key, sha256)
    record = Dismissal(
        **signed, what="taken back" if undo else "dismissed", key=entry.key, size=entry.size
    )

    def work(act: Act) -> Dismissal:
        decided = dismissals(adapters.within(act.connection), issuer, sha256)
        standing = dismissal(context, entry.key, decided)
        if undo and standing is None:
            raise NotFoundError(
                place=entry.key,
                what="dismissal to take back",
                command=Step("worklist", issuer, all=True),
            )
        if committed_run and not undo:
            raise CommittedError(run=committed_run)
        return _dismissed(act, EXTRACT, sha256, record, standing)

    return enter(adapters, issuer, f"extract {record.what}", work, reason=record.reason)


def _dismissed(
    act: Act, kind: str, subject: str, record: Dismissal, standing: Dismissal | None
) -> Dismissal:
    """Decide what a record says unless that stands; return the record that stands."""
    if standing is None:
        decide(act, kind, subject, record, stands=record.key)
    elif record.what == "dismissed":
        return standing
    else:
        lift(act, kind, subject, standing.key)
        decide(act, kind, subject, record)
    return record


def _dismiss_day(context: IssuerContext, day: date, reason: str, undo: bool) -> Dismissal:
    """Decide that no extract comes on a business day that has none, or take that back."""
    adapters = context.adapters
    issuer = context.issuer.issuer
    decision: Literal["dismissed", "taken back"] = "taken back" if undo else "dismissed"
    record = Dismissal(**adapters.signed(reason), what=decision, key=day.isoformat(), size=0)
    runs = StoredRuns(adapters, issuer)
    committed = [plan for plan in known_plans(adapters, runs) if plan.end == "committed"]
    missed = missed_days(context.issuer, runs, committed, adapters.now())

    def work(act: Act) -> Dismissal:
        within = adapters.within(act.connection)
        decided = decisions(within, issuer, DAY, Dismissal, record.key, standing=True)
        if not decided and (undo or day not in missed):
            lacking = f"business day {day} without an extract"
            if undo:
                lacking = f"dismissal of {day} to take back"
            command = Step("worklist", issuer, all=True)
            raise NotFoundError(place=issuer, what=lacking, command=command)
        standing = decided[0] if decided else None
        return _dismissed(act, DAY, record.key, record, standing)

    return enter(adapters, issuer, f"day {record.what}", work, reason=record.reason)


def _committed_run(context: IssuerContext, key: str, sha256: str) -> str:
    """Return the run that committed an extract of this name and content, "" where none did."""
    for extract in extract_states(context):
        if (extract.key, extract.sha256, extract.state) == (key, sha256, "committed"):
            return extract.run
    return ""
