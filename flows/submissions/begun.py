"""Runs that were begun and whose process ended before their commit: which there are, how they end.

Nothing is decided before a run is committed (`flows/submissions/commit.py`), so whoever comes next
finishes such a run or ends it, and says so:

- a run of a whole extract is finished by the next submit of that extract, or planned anew by it;
- a run of selected rows, or a new run of an extract that has one, is finished by the same command;
  any other command that sends rows of the issuer ends it. Its rows were never sent, so whatever
  asked for them asks for them still.

Until then the worklist has a line about it (`flows.operations.undecided_work`). A run that a
process holds the claim of is being worked on, and is none of these.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Literal, NamedTuple

from flows.book.known_runs import KnownPlan
from flows.book.stored_book import known_plans
from flows.runs.adapters import Adapters
from flows.runs.claim import OLD, ClaimedError, refuse_claimed, work_on
from flows.runs.context import IssuerContext
from flows.runs.journal import Act, enter
from flows.runs.run_records import record_of
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.submissions.dismissals import dismissal, dismissals
from schemas.database import RUN
from schemas.records import Abandoned

# pending: a submit of its extract finishes it; superseded: another run has committed its extract;
# requested: a new run for a reason, after that one; selected: of selected rows
State = Literal["pending", "superseded", "requested", "selected"]
OVERTAKEN = "another run was committed first and sends the same cards"
LEFT = "its process ended before the commit; its rows were not sent"


class BegunRun(NamedTuple):
    """A run that was begun, has not ended, and that no process works on."""

    plan: KnownPlan
    state: State
    superseded_by: str = ""  # the run that has committed its extract

    @property
    def since(self) -> datetime:
        """When it was planned."""
        return self.plan.planned_at


def begun_runs(context: IssuerContext, plans: Sequence[KnownPlan]) -> list[BegunRun]:
    """Return the runs that were begun, have not ended, and that no process works on.

    `plans`: those of all runs.
    """
    unended = [plan for plan in plans if plan.state == "planned"]
    if not unended:
        return []
    dated = context.issuer.full_portfolio  # the same bytes on another day are another extract
    whole = [plan for plan in plans if plan.is_whole and plan.end == "committed"]
    committed = {_extract(plan, dated=dated): plan for plan in whole}
    return [
        _judged(plan, committed.get(_extract(plan, dated=dated)))
        for plan in unended
        if not _is_worked_on(context.adapters, plan)
    ]


def _judged(plan: KnownPlan, committed: KnownPlan | None) -> BegunRun:
    """Return in which state a run is that has not ended; `committed`: the run of its extract."""
    if not plan.is_whole:
        return BegunRun(plan, "selected")
    if committed is None:
        return BegunRun(plan, "pending")
    # a person asked for a run of the extract after another one of it
    is_requested = plan.number > committed.number and plan.reason != committed.reason
    return BegunRun(plan, "requested" if is_requested else "superseded", committed.run)


def open_begun_runs(context: IssuerContext, plans: Sequence[KnownPlan]) -> list[BegunRun]:
    """Return the begun runs about which nobody has decided.

    Neither whole extracts that were refused, which wait for another file, nor dismissed ones.
    """
    return [begun for begun in begun_runs(context, plans) if not _is_decided(context, begun)]


def _is_decided(context: IssuerContext, begun: BegunRun) -> bool:
    if begun.state != "pending":
        return False
    plan = begun.plan
    if StoredRun.by_id(context.adapters, plan.run).refusal is not None:
        return True
    chain = dismissals(context.adapters, context.issuer.issuer, plan.sha256)
    return dismissal(context, plan.key, chain) is not None


def _extract(plan: KnownPlan, *, dated: bool) -> tuple[str, str, date | None]:
    return plan.key, plan.sha256, plan.as_of if dated else None


def _is_worked_on(adapters: Adapters, plan: KnownPlan) -> bool:
    """Return whether a process works on a run: it holds the claim, or has planned it just now."""
    claim = work_on(adapters, plan.run).last()
    if claim is not None:
        return claim.holds(adapters.now())
    return adapters.now() - plan.planned_at < OLD


def end_begun(context: IssuerContext, runs: StoredRuns, own_run: str = "") -> tuple[str, ...]:
    """End what no command will finish, apart from `own_run`; return a remark about each.

    Runs of selected rows are abandoned; of others it is noted which run stands in their place.
    """
    return tuple(_ended(context, runs, own_run))


def _ended(context: IssuerContext, runs: StoredRuns, own_run: str) -> Iterator[str]:
    adapters = context.adapters
    for begun in begun_runs(context, known_plans(adapters, runs)):
        run = begun.plan.run
        if run == own_run:
            continue
        if begun.superseded_by:
            _replace(adapters, runs.issuer, begun)
        if begun.state == "superseded":
            yield f"run {run} had been begun; run {begun.superseded_by} has its rows"
        if begun.state == "requested":
            yield f"run {run} had been begun and is not finished: {LEFT}"
        if begun.state == "selected" and abandon_left(adapters, run, LEFT):
            yield f"run {run} had been begun and is abandoned: {LEFT}"


def _replace(adapters: Adapters, issuer: str, begun: BegunRun) -> None:
    """Note which run stands in the place of one that nobody will finish."""
    run = begun.plan.run

    def work(act: Act) -> None:
        record = record_of(act.connection, issuer, run)
        if record is not None and record.state == "planned":
            act.update(RUN, {"run": run}, state="replaced", replaced_by=begun.superseded_by)

    enter(adapters, issuer, "replaced", work, run=run)


def abandon_left(adapters: Adapters, run: str, reason: str) -> bool:
    """Abandon a run that another process has left; False where somebody else was first."""
    with suppress(ClaimedError):
        return abandon_run(adapters, run, reason) is not None
    return False


def abandon_run(adapters: Adapters, run: str, reason: str) -> Abandoned | None:
    """Abandon a planned run that nobody works on; return the record, None where it has ended.

    Raises ClaimedError and NoReasonError.
    """
    abandoned = Abandoned(run=run, **adapters.signed(reason))
    subject = work_on(adapters, run)

    def work(act: Act) -> Abandoned | None:
        refuse_claimed(act.connection, subject, adapters.now())
        record = record_of(act.connection, act.issuer, run)
        if record is None or record.is_ended:
            return None
        act.update(
            RUN,
            {"run": run},
            state="abandoned",
            replaced_by=None,
            abandoned_at=abandoned.at,
            abandoned_by=abandoned.by,
            abandoned_why=abandoned.reason,
        )
        return abandoned

    return enter(adapters, subject.issuer, "abandoned", work, run=run, reason=abandoned.reason)
