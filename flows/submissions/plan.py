"""Plan a run before any work: digest the extract, find the run it already has, or write a plan.

What is committed stays so under other settings, keys and rules, and the answer names what changed.
What was never committed is planned anew where settings, keys, rules, date, name or what other runs
have sent changed. Of two such plans only one can be committed, because each knows which run was
committed last when it was made.
"""

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from flows import __version__
from flows.errors import ExtractError, OperatorError
from flows.runs.context import IssuerContext
from flows.runs.events import REPEATED
from flows.runs.identity import canonical, digest, row_settings
from flows.runs.journal import Act, enter
from flows.runs.keys import keys_of
from flows.runs.run_records import RunRecord, records_where
from flows.runs.stored_run import StoredRun
from flows.steps import FILE, REASON, WHY, Option, Sentence, Step, Values
from flows.submissions.dismissals import dismissal, dismissals
from flows.submissions.run_choice import Choice, RunInputs, changes, pick
from schemas.database import RUN
from schemas.manifest import Plan, Selection, SourceIdentity
from schemas.rules import RECIPE


class DuplicateExtractError(ExtractError):
    """The same bytes were already submitted under another name."""

    message = "{extract} has the same bytes as {other}, which is run {run}. Nothing was submitted."
    next_step = "Ask the issuer for the right extract, and dismiss this one: {dismiss}."


class DismissedError(OperatorError):
    """An operator decided that the extract shall not be sent."""

    message = "{extract} was dismissed by {actor} on {date}: {reason}. Nothing was submitted."
    next_step = "To take that back: {undo}."


class SettingsChangedError(OperatorError):
    """The chunks of a run were made with other settings."""

    message = "Run {run} was planned with other settings; changed since: {changed}."
    next_step = Sentence(
        "Restore them, or cancel its chunks that wait and make a new run of the extract: "
        "{new_run}.",
        new_run=Option("--new-run", REASON, of="submit"),
    )


def make_plan(
    context: IssuerContext, source: SourceIdentity, inputs: RunInputs
) -> tuple[Plan, tuple[str, ...]]:
    """Plan an extract's run, or take over the plan that it has; with remarks.

    The run is found by the extract's digest. Its plan keeps the business date, so that a rerun
    after midnight gives the same rows. The same reason for a new run is the same new run: repeating
    a command sends nothing twice. DuplicateExtractError, DismissedError, AbandonedError.
    """
    expected_run(context, source, inputs)
    planned = _planned(context, source, inputs)
    run = StoredRun.by_id(context.adapters, planned.plan.run)
    if planned.is_new or run.finished() is None:
        return planned.plan, planned.remarks
    changed = changes(context, planned.plan, inputs)
    remarks = (f"changed since that run: {', '.join(changed)}",) if changed else ()
    return planned.plan, remarks


def plan_selection(
    context: IssuerContext, source: SourceIdentity, today: date, selection: Selection
) -> Plan:
    """Plan a run of these rows, or take over one of the same rows that was never committed."""
    inputs = RunInputs(today, selection.reason, selection)
    return _planned(context, source, inputs).plan


class _Planned(NamedTuple):
    """The plan of a run, of the source as it is stored now; with remarks where it is new."""

    plan: Plan
    is_new: bool = False
    remarks: tuple[str, ...] = ()


def _planned(context: IssuerContext, source: SourceIdentity, inputs: RunInputs) -> _Planned:
    """Return the plan of the run that these inputs mean; it is stored where it is new."""

    def work(act: Act) -> _Planned:
        choice = pick(context, source, _runs_of(act.connection, act.issuer, source.sha256), inputs)
        act.run = choice.run
        if choice.record is None:
            plan = _new_plan(context, source, inputs, choice)
            _insert(context, act, plan)
            if plan.selection is not None and plan.selection.kind == "resubmit":
                act.note(REPEATED, plan.selection.of, run=plan.run, rows=plan.selection.rows)
            return _Planned(plan, True, tuple(_replace_others(context, act, plan, inputs)))
        if choice.record.state == "replaced":
            act.update(RUN, {"run": choice.run}, state="planned", replaced_by=None)
        return _Planned(choice.record.planned().model_copy(update={"source": source}))

    issuer = context.issuer.issuer
    return enter(context.adapters, issuer, "planned", work, reason=inputs.new_run)


def _new_plan(
    context: IssuerContext, source: SourceIdentity, inputs: RunInputs, choice: Choice
) -> Plan:
    settings = row_settings(context.issuer, context.header)
    return Plan(
        run=choice.run,
        source=source,
        as_of=keys_of(choice.run).run.day,
        settings_sha256=digest(canonical(settings)),
        settings=settings,
        recipe=RECIPE,
        recipients=context.issuer.portal.fingerprints,
        reason=choice.reason,
        selection=inputs.selection,
        known=inputs.known,
        release=__version__,
    )


def _insert(context: IssuerContext, act: Act, plan: Plan) -> None:
    """Store a new plan."""
    last = select(func.max(RUN.c.number)).where(RUN.c.issuer == act.issuer)
    act.insert(
        RUN,
        run=plan.run,
        number=(act.connection.scalar(last) or 0) + 1,
        source_key=plan.source.key,
        source_version=plan.source.version,
        source_size=plan.source.size,
        source_sha256=plan.source.sha256,
        as_of=plan.as_of,
        selection=plan.selection.sha256 if plan.selection else "",
        repeats=plan.selection.of if plan.selection else None,
        reason=plan.reason,
        plan=plan.model_dump(mode="json"),
        planned_at=context.adapters.now(),
        state="planned",
        report_due=False,
    )


def _runs_of(connection: Connection, issuer: str, sha256: str) -> list[RunRecord]:
    """Return the runs of an extract's content."""
    return records_where(connection, issuer, RUN.c.source_sha256 == sha256)


def expected_run(context: IssuerContext, source: SourceIdentity, inputs: RunInputs) -> str:
    """Return the run that a submit of an extract would make, finish or find committed.

    Nothing is written. Raises DismissedError, and DuplicateExtractError where it is the run of
    another extract.
    """
    issuer = context.issuer.issuer
    run = requested_run(context, source, inputs)
    ended_plan = run.plan if run.is_ended else None
    if ended_plan is not None and ended_plan.source.key == source.key:
        return run.id
    decided = dismissals(context.adapters, issuer, source.sha256)
    dismissed = dismissal(context, source.key, decided)
    if dismissed is not None:
        raise DismissedError(
            extract=source.key,
            actor=dismissed.by,
            date=f"{dismissed.at:%Y-%m-%d}",
            reason=dismissed.reason,
            undo=dismiss_step(source.key, undo=True),
        )
    if ended_plan is not None:
        raise DuplicateExtractError(
            extract=source.key,
            other=ended_plan.source.key,
            run=run.id,
            dismiss=dismiss_step(source.key),
        )
    return run.id


def requested_run(context: IssuerContext, source: SourceIdentity, inputs: RunInputs) -> StoredRun:
    """Return the run that these inputs mean: one that an extract has, or a new one."""
    with context.adapters.database.snapshot() as connection:
        runs = _runs_of(connection, context.issuer.issuer, source.sha256)
    return StoredRun.by_id(context.adapters, pick(context, source, runs, inputs).run)


def runs_under_name(connection: Connection, issuer: str, key: str) -> list[RunRecord]:
    """Return the runs of whole extracts with that key, by business date."""
    is_whole = RUN.c.selection == ""
    runs = records_where(connection, issuer, RUN.c.source_key == key, is_whole)
    return sorted(runs, key=lambda run: keys_of(run.run).run.age)


def submit_step(key: str, **options: Values) -> Step:
    """Return the step that submits an extract."""
    issuer, _, name = key.partition("/extracts/")
    return Step("submit", issuer, extract=name, **options)


def check_step(key: str) -> Step:
    """Return the step that shows the rows of an extract that cannot be sent."""
    issuer, _, name = key.partition("/extracts/")
    return Step("check", issuer, name, rejects=FILE)


def dismiss_step(key: str, *, undo: bool = False) -> Step:
    """Return the step that dismisses an extract, or takes its dismissal back."""
    issuer, _, name = key.partition("/extracts/")
    return Step("dismiss", issuer, name, undo=undo, reason=WHY)


def _replace_others(
    context: IssuerContext, act: Act, plan: Plan, inputs: RunInputs
) -> Iterator[str]:
    """Note which runs a new plan replaces; yield what an operator should know of earlier runs.

    Those are the runs of whole extracts with its name.
    """
    if plan.selection is not None:
        return
    source = plan.source
    same_name = runs_under_name(act.connection, act.issuer, source.key)
    plans = {run.run: run.planned() for run in same_name}
    changed_from = [run for run, other in plans.items() if other.source.sha256 != source.sha256]
    if changed_from:
        yield f"{source.key} had other content before, in run {changed_from[-1]}"
    for run in same_name:
        if run.state != "planned" or run.run in (plan.run, *changed_from):
            continue
        changed = changes(context, plans[run.run], inputs) or ["what other runs have sent"]
        act.update(RUN, {"run": run.run}, state="replaced", replaced_by=plan.run)
        act.note("replaced", run.run, replaced_by=plan.run)
        problem = "was never committed: planned anew; changed since"
        yield f"run {run.run} {problem}: {', '.join(changed)}"
