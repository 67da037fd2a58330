"""Plan a run before any work: digest the extract, find the run it already has, or write a plan.

What is committed stays so under other settings, keys and rules, and the answer names what changed.
What was never committed is planned anew where settings, keys, rules, date, name or what other runs
have sent changed. Of two such plans only one can be committed, because each says which run was
registered last when it was made.
"""

from datetime import date

from flows import __version__
from flows.book.stored_book import known_plans
from flows.errors import ExtractError, OperatorError
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.events import REPLACED, record_event
from flows.runs.identity import canonical, digest, row_settings
from flows.runs.store import write_once
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import FILE, REASON, WHY, Option, Sentence, Step, Values
from flows.submissions.dismissals import dismissal, dismissals
from flows.submissions.submission_chain import RunInputs, changes, pick, read_chain, submission_of
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
    context: IssuerContext, source: SourceIdentity, inputs: RunInputs, runs: StoredRuns
) -> tuple[Plan, tuple[str, ...]]:
    """Write the plan of an extract's run, or take over the one it has; with remarks.

    The run is found by the extract's digest, by key, since a listing may be late. Its plan keeps
    the business date, so that a rerun after midnight gives the same rows. The same reason for a new
    run is the same new run: repeating a command sends nothing twice. `runs` are listed after the
    plan is written, so that of two processes that plan runs of one name the later one sees both.
    DuplicateExtractError, DismissedError, AbandonedError.
    """
    expected_run(context, source, inputs)
    plan, stored = _planned(context, source, inputs)
    if stored is None:
        return plan, _replaced(context, plan, inputs, runs)
    planned = stored.model_copy(update={"source": source})
    if StoredRun.by_id(context.adapters, plan.run).finished() is None:
        return planned, ()
    changed = changes(context, stored, inputs)
    remarks = (f"changed since that run: {', '.join(changed)}",) if changed else ()
    return planned, remarks


def plan_selection(
    context: IssuerContext, source: SourceIdentity, today: date, selection: Selection
) -> Plan:
    """Write the plan of a run of these rows.

    Or take over one of the same rows that was never committed.
    """
    inputs = RunInputs(today, selection.reason, selection)
    plan, stored = _planned(context, source, inputs)
    return stored or plan


def _planned(
    context: IssuerContext, source: SourceIdentity, inputs: RunInputs
) -> tuple[Plan, Plan | None]:
    """Return the plan as it would be now, and the one that its run has.

    Where it has none, the first is written.
    """
    submission = submission_of(context, source, inputs)
    settings = row_settings(context.issuer, context.header)
    run = StoredRun.by_id(context.adapters, submission.run)
    plan = Plan(
        run=submission.run,
        source=source,
        as_of=run.keys.run.day,
        settings_sha256=digest(canonical(settings)),
        settings=settings,
        recipe=RECIPE,
        recipients=context.issuer.portal.fingerprints,
        reason=submission.reason,
        selection=inputs.selection,
        known=inputs.known,
        settings_in_force=context.settings_in_force,
        release=__version__,
    )
    stored = run.plan
    if stored is None:
        write_once(context.adapters.store, run.keys.plan, canonical(plan))
    return plan, stored


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
    store = context.adapters.store
    chain = read_chain(store, context.issuer.issuer, source.sha256)
    return StoredRun.by_id(context.adapters, pick(context, source, chain, inputs).run)


def runs_under_name(adapters: Adapters, runs: StoredRuns, key: str) -> list[StoredRun]:
    """Return the runs of whole extracts with that key that have a plan, by business date."""
    named = [plan.run for plan in known_plans(adapters, runs) if plan.key == key and plan.is_whole]
    return [StoredRun.by_id(runs.adapters, run) for run in named]


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


def _replaced(
    context: IssuerContext, plan: Plan, inputs: RunInputs, runs: StoredRuns
) -> tuple[str, ...]:
    """Record which runs a new plan replaces; return what an operator should know of earlier runs.

    Those are the runs of whole extracts with its name.
    """
    source = plan.source
    same_name = runs_under_name(context.adapters, runs, source.key)
    changed_from = [run.id for run in same_name if run.planned().source.sha256 != source.sha256]
    remarks: list[str] = []
    if changed_from:
        remarks.append(f"{source.key} had other content before, in run {changed_from[-1]}")
    for run in same_name:
        if run.id in (plan.run, *changed_from) or run.is_ended:
            continue
        changed = changes(context, run.planned(), inputs) or ["what other runs have sent"]
        record_event(context.adapters, run.keys, REPLACED, run=plan.run)
        problem = "was never committed: planned anew; changed since"
        remarks.append(f"run {run.id} {problem}: {', '.join(changed)}")
    return tuple(remarks)
