"""Runs that were begun and whose process ended before their commit: which there are, how they end.

Nothing is decided before a run is registered (`flows/submissions/commit.py`), so whoever comes next
finishes such a run or ends it, and says so:

- a registered run is committed by the next command that sends rows of the issuer;
- a run of a whole extract is finished by the next submit of that extract, or planned anew by it;
- a run of selected rows, or a new run of an extract that has one, is finished by the same command;
  any other command that sends rows of the issuer ends it. Its rows were never sent, so whatever
  asked for them asks for them still.

Until then the worklist has a line about it (`flows.operations.undecided_work`). A run that a
process holds the claim of is being worked on, and is none of these.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Literal, NamedTuple

from flows.book.known_runs import KnownPlan
from flows.book.stored_book import known_plans
from flows.runs.adapters import Adapters
from flows.runs.claim import OLD, ClaimedError, claimed, holder_of, was_claimed
from flows.runs.commits import recently_registered
from flows.runs.context import IssuerContext
from flows.runs.events import REPLACED, record_event
from flows.runs.identity import canonical
from flows.runs.keys import keys_of
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.submissions.dismissals import dismissal, dismissals
from schemas.records import Abandoned

# registered: the next command commits it; pending: a submit of its extract finishes it; superseded:
# another run has committed its extract; requested: a new run for a reason, after that one;
# selected: of selected rows
State = Literal["registered", "pending", "superseded", "requested", "selected"]
OVERTAKEN = "another run was registered for commit first and sends the same cards"
LEFT = "its process ended before the commit; its rows were not sent"


class BegunRun(NamedTuple):
    """A run that was begun, has not ended, and that no process works on; since when."""

    plan: KnownPlan
    state: State
    since: datetime
    superseded_by: str = ""  # the run that has committed its extract


def begun_runs(context: IssuerContext, plans: Sequence[KnownPlan]) -> list[BegunRun]:
    """Return the runs that were begun, have not ended, and that no process works on.

    `plans`: those of all runs.
    """
    unended = [plan for plan in plans if not plan.end]
    if not unended:
        return []
    judge = _judge(context, plans)
    judged = (judge(plan, _planned(context, plan)) for plan in unended)
    return [
        begun
        for begun in judged
        if not _is_worked_on(context.adapters, begun) and not _run(context, begun).is_replaced
    ]


def _run(context: IssuerContext, begun: BegunRun) -> StoredRun:
    return StoredRun.by_id(context.adapters, begun.plan.run)


def _planned(context: IssuerContext, plan: KnownPlan) -> datetime:
    """Return when a run was planned."""
    with context.adapters.store.open(keys_of(plan.run).plan) as source:
        return source.entry.modified


def _judge(
    context: IssuerContext, plans: Sequence[KnownPlan]
) -> Callable[[KnownPlan, datetime], BegunRun]:
    """Return the function that says in which state a run is that has not ended."""
    manifests = recently_registered(context.adapters.store, context.issuer.issuer)
    registered = {manifest.run for manifest in manifests}
    dated = context.issuer.full_portfolio  # the same bytes on another day are another extract
    whole = [plan for plan in plans if plan.is_whole and plan.end == "committed"]
    committed = {_extract(plan, dated=dated): plan.run for plan in whole}

    def judged(plan: KnownPlan, planned: datetime) -> BegunRun:
        if plan.run in registered:
            return BegunRun(plan, "registered", planned)
        if not plan.is_whole:
            return BegunRun(plan, "selected", planned)
        other = committed.get(_extract(plan, dated=dated))
        if other is None:
            return BegunRun(plan, "pending", planned)
        is_requested = _is_new_run(context, plan.run, other)
        return BegunRun(plan, "requested" if is_requested else "superseded", planned, other)

    return judged


def _is_new_run(context: IssuerContext, run: str, committed: str) -> bool:
    """Return whether a person asked for a run of an extract after another one of it."""
    if keys_of(run).run < keys_of(committed).run:
        return False
    reasons = {StoredRun.by_id(context.adapters, of).planned().reason for of in (run, committed)}
    return len(reasons) > 1


def open_begun_runs(context: IssuerContext, plans: Sequence[KnownPlan]) -> list[BegunRun]:
    """Return the begun runs about which nobody has decided.

    Neither whole extracts that were refused, which wait for another file, nor dismissed ones.
    """
    return [begun for begun in begun_runs(context, plans) if not _is_decided(context, begun)]


def _is_decided(context: IssuerContext, begun: BegunRun) -> bool:
    if begun.state != "pending":
        return False
    plan = begun.plan
    if _run(context, begun).refusal is not None:
        return True
    chain = dismissals(context.adapters, context.issuer.issuer, plan.sha256)
    return dismissal(context, plan.key, chain) is not None


def _extract(plan: KnownPlan, *, dated: bool) -> tuple[str, str, date | None]:
    return plan.key, plan.sha256, plan.as_of if dated else None


def _is_worked_on(adapters: Adapters, begun: BegunRun) -> bool:
    """Return whether a process works on a run: it holds the claim, or has planned it just now."""
    claims = keys_of(begun.plan.run).claims
    if holder_of(adapters.store, claims, adapters.now()) is not None:
        return True
    is_young = adapters.now() - begun.since < OLD
    return is_young and not was_claimed(adapters.store, claims)


def end_begun(context: IssuerContext, runs: StoredRuns, own_run: str = "") -> tuple[str, ...]:
    """End what no command will finish, apart from `own_run`; return a remark about each.

    Runs of selected rows are abandoned; of others it is recorded which run stands in their place.
    `runs` may have been listed before: one that was begun since is not left yet.
    """
    return tuple(_ended(context, runs, own_run))


def _ended(context: IssuerContext, runs: StoredRuns, own_run: str) -> Iterator[str]:
    for begun in begun_runs(context, known_plans(context.adapters, runs)):
        run = _run(context, begun)
        if run.id == own_run:
            continue
        if begun.superseded_by:
            record_event(context.adapters, run.keys, REPLACED, run=begun.superseded_by)
        if begun.state == "superseded":
            yield f"run {run.id} had been begun; run {begun.superseded_by} has its rows"
        if begun.state == "requested":
            yield f"run {run.id} had been begun and is not finished: {LEFT}"
        if begun.state == "selected" and abandon_left(context.adapters, run, LEFT):
            yield f"run {run.id} had been begun and is abandoned: {LEFT}"


def abandon_left(adapters: Adapters, run: StoredRun, reason: str) -> bool:
    """Abandon a run that another process has left; False where somebody else was first."""
    with suppress(ClaimedError):
        return create_abandoned(adapters, run, reason) is not None
    return False


def create_abandoned(adapters: Adapters, run: StoredRun, reason: str) -> Abandoned | None:
    """Abandon a planned run under its claim; return the record, None where it has ended.

    Raises ClaimedError and NoReasonError.
    """
    record = Abandoned(run=run.id, **adapters.signed(reason))
    with claimed(adapters, run.keys.claims):
        is_first = adapters.store.create(run.keys.manifest, canonical(record))
    return record if is_first else None
