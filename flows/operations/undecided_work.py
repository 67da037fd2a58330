"""What waits beside the committed runs: extracts held back, runs begun, a purge that was stopped.

Put here what the worklist has of things that no committed run knows of; `flows.reports.worklist`
has the rest.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from typing import NamedTuple

from flows.book.known_runs import KnownPlan
from flows.operations.retention import objects_by_part
from flows.reports import work_kinds as kinds
from flows.reports.missed_days import missed_days
from flows.reports.survey import Beside
from flows.reports.work import Work
from flows.resend.ending_links import ending_links
from flows.resend.renewal import judged_ending
from flows.runs.arrival_hour import with_expected_hour
from flows.runs.business_date import date_in_name, due
from flows.runs.context import IssuerContext
from flows.runs.dropped_files import dropped_folders
from flows.runs.keys import RunId, RunKeys, extracts
from flows.runs.purges import last_purge
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.submissions.begun import BegunRun, open_begun_runs
from flows.submissions.extract_states import (
    UNSUBMITTED,
    ExtractState,
    State,
    extract_states,
    has_new_versions,
)
from flows.submissions.plan import submit_step
from schemas.issuer import Issuer

_EXTRACTS: dict[State, str] = {
    "held back": kinds.HELD_BACK,
    "repeated": kinds.REPEATED_EXTRACTS,
}


def beside_runs() -> Beside:
    """Return what the worklist takes from beside the committed runs."""
    return Beside(undecided, ending_links, judged_ending)


def undecided(context: IssuerContext, plans: Sequence[KnownPlan]) -> list[Work]:
    """Return what waits for a decision beside the committed runs of an issuer, by its settings.

    `plans`: those of all its runs.
    """
    committed = [plan for plan in plans if plan.end == "committed"]
    is_new = has_new_versions(context, committed)
    extracts_stored = extract_states(context, plans) if is_new else []
    return [
        *_extracts(context, extracts_stored),
        *_days_without_extract(context, committed, extracts_stored),
        *_unusable_names(context),
        *_begun(context, plans),
        *_purge(context),
    ]


def _extracts(context: IssuerContext, stored: Iterable[ExtractState]) -> Iterator[Work]:
    """Yield the extracts that nothing is planned for before somebody decides."""
    issuer = context.issuer.issuer
    for extract in stored:
        kind = _EXTRACTS.get(extract.state)
        if kind is None or extract.entry is None:
            continue
        since = extract.entry.modified
        named = (("name", extract.key.removeprefix(extracts(issuer))),)
        yield Work(due=since, kind=kind, issuer=issuer, since=since, fields=named)


def _days_without_extract(
    context: IssuerContext, committed: Collection[KnownPlan], stored: Sequence[ExtractState]
) -> Iterator[Work]:
    """Yield the business days on which an extract was due and none came.

    Of the last one it is enough that the next submit takes what is `stored`.
    """
    issuer = context.issuer
    now = context.adapters.now()
    runs = StoredRuns(context.adapters, issuer.issuer)
    missed = missed_days(issuer, runs, committed, now)
    expected = _expected_extract(runs, issuer, now) if missed and stored else None
    if expected and any(is_due(extract, *expected) for extract in stored):
        missed = [day for day in missed if day != expected[0]]
    for day in missed:
        since = datetime.combine(day, time(), UTC)
        yield Work(
            due=since,
            kind=kinds.NO_EXTRACT,
            issuer=issuer.issuer,
            since=since,
            fields=(("name", day.isoformat()), ("first", missed[0]), ("last", missed[-1])),
        )


def _expected_extract(
    runs: StoredRuns, issuer: Issuer, now: datetime
) -> tuple[date, datetime] | None:
    """Return the last business day whose hour has passed, and since when its extract was due."""
    return due(with_expected_hour(runs, issuer, now).schedule, now, issuer.time_zone)


def is_due(extract: ExtractState, day: date, since: datetime) -> bool:
    """Return whether an extract that a submit may take is the one of a day (`is_of_day`)."""
    may_be_taken = extract.state in UNSUBMITTED and extract.state != "unusable"
    return may_be_taken and is_of_day(extract, day, since)


def is_of_day(extract: ExtractState, day: date, since: datetime) -> bool:
    """Return whether a stored extract was dropped `since` the business day before a day, or is
    named by this day or a later one.
    """
    if extract.entry is None:
        return False
    named_day = date_in_name(extract.entry.key)
    return extract.entry.modified > since or (named_day is not None and named_day >= day)


def _unusable_names(context: IssuerContext) -> Iterator[Work]:
    """Yield the dropped files that nothing takes since their name cannot be used."""
    issuer = context.issuer.issuer
    for folder, dropped in dropped_folders(context.adapters.store, issuer):
        for file in dropped.unusable:
            since = file.entry.modified
            named = (("name", f"{folder}/{file.name}"),)
            note = f"Why: {file.reason}."
            kind = kinds.UNUSABLE_NAMES
            yield Work(due=since, kind=kind, issuer=issuer, since=since, fields=named, note=note)


def _begun(context: IssuerContext, plans: Sequence[KnownPlan]) -> Iterator[Work]:
    """Yield the runs that were begun, have not ended, and that no process works on.

    A run that was refused has its line with the refused extracts.
    """
    begun_runs = open_begun_runs(context, plans)
    if not begun_runs:
        return
    stored = {entry.key for entry in context.adapters.store.keys(extracts(context.issuer.issuer))}
    for begun in begun_runs:
        yield _begun_run(context, begun, is_stored=begun.plan.key in stored)


def _begun_run(context: IssuerContext, begun: BegunRun, *, is_stored: bool) -> Work:
    issuer = context.issuer.issuer
    run = StoredRun.by_id(context.adapters, begun.plan.run)
    plan = run.planned()
    step = None
    if begun.state in ("pending", "requested") and is_stored:
        step = submit_step(begun.plan.key, new_run=plan.reason)
    is_pending = begun.state == "pending" and is_stored
    is_finished = begun.state == "superseded" or is_pending
    refusal = run.refusal if begun.state != "superseded" else None
    return Work(
        due=begun.since,
        kind=kinds.TO_FINISH if is_finished else kinds.LEFT_BEHIND,
        issuer=issuer,
        since=begun.since,
        run=begun.plan.run,
        rows=plan.selection.rows if plan.selection else 0,
        step=step,
        note=f"It was refused: {refusal.sentence}." if refusal else "",
        alert=refusal is not None,
    )


def _purge(context: IssuerContext) -> Iterator[Work]:
    """Yield the purge that was stopped before it had deleted what it recorded."""
    unfinished = unfinished_purge(context)
    if unfinished is not None:
        yield Work(
            due=unfinished.since,
            kind=kinds.PURGING,
            issuer=context.issuer.issuer,
            since=unfinished.since,
            run=unfinished.run,
        )


class UnfinishedPurge(NamedTuple):
    """A run of which a purge left objects that it had recorded as deleted, and since when."""

    run: str
    since: datetime


def unfinished_purge(context: IssuerContext) -> UnfinishedPurge | None:
    """Return the purge that is under way or was stopped, None where nothing of one is left.

    Links of no run are not looked for: what is left of them is due again, under a new record.
    """
    record = last_purge(context.adapters, context.issuer.issuer)
    if record is not None and _has_objects(context, record.run, record.part):
        return UnfinishedPurge(record.run, record.at)
    return None


def _has_objects(context: IssuerContext, run: str, part: str) -> bool:
    """Return whether a part of a run has objects; nothing else has any."""
    run_id = RunId.parse(run)
    if run_id is None:
        return False
    keys = RunKeys(run_id)
    return bool(objects_by_part(keys, list(context.adapters.store.keys(keys.base)))[part])
