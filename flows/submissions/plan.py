"""Plan a run before any work: digest the extract, find the run it already has, or write a plan."""

import hashlib
import shlex
from collections.abc import Sequence
from contextlib import closing
from datetime import date

from flows.errors import ExtractError, OperatorError
from flows.extracts.delivery import ExtractWaitsError, companions, waits_for
from flows.extracts.errors import checked_name
from flows.redaction import redact
from flows.runs.chains import records
from flows.runs.context import IssuerContext
from flows.runs.events import REPLACED, record_event
from flows.runs.identity import canonical, digest, row_settings
from flows.runs.keys import dismissed, extracts
from flows.runs.store import Entry, Store, write_once
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import prefetch
from flows.submissions.submission_chain import RunInputs, changes, pick, read_chain, submission_of
from schemas.manifest import Plan, Selection, SourceIdentity
from schemas.records import Dismissal
from schemas.rules import RECIPE

PIECE = 1 << 22  # bytes read at a time


class ExtractNotFoundError(OperatorError):
    """There is no extract of that name."""

    message = "No extract {name} under {prefix}. Available: {available}."
    next_step = "Name one of those, or wait for the issuer's delivery."


class DuplicateExtractError(ExtractError):
    """The same bytes were already submitted under another name."""

    message = "{extract} has the same bytes as {other}, which is run {run}. Nothing was submitted."
    next_step = "Ask the issuer for the right extract, and dismiss this one: `{dismiss}`."


class DismissedError(OperatorError):
    """An operator decided that the extract shall not be sent."""

    message = "{extract} was dismissed by {actor} on {date}: {reason}. Nothing was submitted."
    next_step = "To take that back: `{undo}`."


class SettingsChangedError(OperatorError):
    """The chunks of a run were made with other settings."""

    message = "Run {run} was planned with other settings; changed since: {changed}."
    next_step = "Restore them, or cancel its chunks that wait and make a new run of the extract: --new-run REASON."


def find_extract(context: IssuerContext, name: str) -> Entry:
    """Return the extract of that name (or key below the extracts).

    Raises ExtractNotFoundError, ExtractWaitsError, VerdictRefusedError.
    """
    prefix = extracts(context.issuer.issuer)
    files = {entry.key: entry for entry in context.adapters.store.keys(prefix)}
    endings = companions(context.issuer.source)
    listed = [entry for key, entry in files.items() if not key.endswith(endings)]
    checked_name(name)
    for entry in listed:
        if entry.key in (name, prefix + name):
            waits = waits_for(context, entry, files)
            if waits:
                raise ExtractWaitsError(extract=entry.key, missing=waits)
            return entry
    newest = sorted(listed, key=lambda entry: entry.modified)[-3:]
    available = ", ".join(redact(entry.key.removeprefix(prefix)) for entry in newest) or "nothing"
    raise ExtractNotFoundError(name=name, prefix=prefix, available=available)


def identify(store: Store, entry: Entry) -> SourceIdentity:
    """Read the extract once, pinned, for its SHA-256 and its size in bytes and lines."""
    hasher = hashlib.sha256()
    size = 0
    newlines = 0
    with store.open(entry.key, entry) as source:
        pieces = prefetch(iter(lambda: source.read(PIECE), b""))
        with closing(pieces):
            for piece in pieces:
                hasher.update(piece)
                size += len(piece)
                newlines += piece.count(b"\n")
    return SourceIdentity(
        key=entry.key,
        version=entry.version,
        size=size,
        sha256=hasher.hexdigest(),
        newlines=newlines,
    )


def make_plan(
    context: IssuerContext, source: SourceIdentity, inputs: RunInputs
) -> tuple[Plan, tuple[str, ...]]:
    """Write the plan of an extract's run, or take over the one it has; with remarks.

    The run is found by the extract's digest, by key, since a listing may be late. Its plan keeps
    the business date, so that a rerun after midnight gives the same rows. The same reason for a new
    run is the same new run: repeating a command sends nothing twice. DuplicateExtractError,
    DismissedError, AbandonedError.
    """
    expected_run(context, source, inputs)
    plan, stored = _planned(context, source, inputs)
    if stored is None:
        return plan, _replaced(context, plan, inputs)
    planned = stored.model_copy(update={"source": source})
    if StoredRun.by_id(context.adapters.store, plan.run).finished() is None:
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
    run = StoredRun.by_id(context.adapters.store, submission.run)
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
    store = context.adapters.store
    issuer = context.issuer.issuer
    chain = read_chain(store, issuer, source.sha256)
    run = StoredRun.by_id(store, pick(context, source, chain, inputs).run)
    ended_plan = run.plan if chain and run.is_ended else None
    if ended_plan is not None and ended_plan.source.key == source.key:
        return run.id
    chain_of_dismissals = dismissals(store, issuer, source.sha256)
    found = dismissal(context, source.key, chain_of_dismissals)
    if found is not None:
        undo, day = dismiss_line(source.key, "--undo"), f"{found.at:%Y-%m-%d}"
        raise DismissedError(
            extract=source.key, actor=found.by, date=day, reason=found.reason, undo=undo
        )
    if ended_plan is not None:
        other, line = ended_plan.source.key, dismiss_line(source.key)
        raise DuplicateExtractError(extract=source.key, other=other, run=run.id, dismiss=line)
    return run.id


def dismissals(store: Store, issuer: str, sha256: str) -> tuple[Dismissal, ...]:
    """Return the chain of dismissals of an extract's content."""
    return tuple(records(store, f"{dismissed(issuer)}{sha256}/", Dismissal))


def dismissal(context: IssuerContext, key: str, chain: Sequence[Dismissal]) -> Dismissal | None:
    """Return the dismissal that counts for an extract, None where it is not dismissed.

    A portfolio may repeat its bytes, so there only one of that name counts.
    """
    any_name = not context.issuer.full_portfolio
    records_of_extract = [record for record in chain if any_name or record.key == key]
    if not records_of_extract or records_of_extract[-1].what != "dismissed":
        return None
    return records_of_extract[-1]


def plans_under_name(store: Store, issuer: str, key: str) -> list[Plan]:
    """Return the plans of the runs of whole extracts with that key, by business date."""
    plans = StoredRuns(store, issuer).plans()
    return [plan for plan in plans if plan.source.key == key and plan.selection is None]


def submit_line(key: str, *options: str) -> str:
    """Return the command that submits an extract, ready to paste into a shell."""
    issuer, _, name = key.partition("/extracts/")
    return shlex.join(["cardlink", "submit", issuer, "--extract", name, *options])


def dismiss_line(key: str, *options: str) -> str:
    """Return the command that dismisses an extract, ready to paste into a shell."""
    issuer, _, name = key.partition("/extracts/")
    return shlex.join(["cardlink", "dismiss", issuer, name, *options, "--reason", "WHY"])


def _replaced(context: IssuerContext, plan: Plan, inputs: RunInputs) -> tuple[str, ...]:
    """Record which runs a new plan replaces; return what an operator should know of earlier runs.

    Those are the runs of whole extracts with its name.
    """
    store = context.adapters.store
    source = plan.source
    same_name = plans_under_name(store, context.issuer.issuer, source.key)
    changed_from = [stored.run for stored in same_name if stored.source.sha256 != source.sha256]
    remarks: list[str] = []
    if changed_from:
        remarks.append(f"{source.key} had other content before, in run {changed_from[-1]}")
    for stored in same_name:
        run = StoredRun.by_id(store, stored.run)
        if stored.run in (plan.run, *changed_from) or run.is_ended:
            continue
        changed = changes(context, stored, inputs) or ["what other runs have sent"]
        record_event(context.adapters, run.keys, REPLACED, run=plan.run)
        problem = "was never committed: planned anew; changed since"
        remarks.append(f"run {stored.run} {problem}: {', '.join(changed)}")
    return tuple(remarks)
