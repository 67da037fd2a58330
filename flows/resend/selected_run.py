"""A run of selected rows: its source, opened again, and its plan with the rows it sends."""

from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extracts.opening import stored_entry
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.frames import shaped
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.store import Entry, ObjectMissingError, write_once
from flows.runs.stored_runs import StoredRuns
from flows.steps import Option, Sentence, Step
from flows.submissions.build import Job
from flows.submissions.extract_lookup import identify
from flows.submissions.plan import plan_selection
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from schemas.manifest import Selection, SourceIdentity
from schemas.tables import parquet


class SourceGoneError(OperatorError):
    """The extract of a run is missing, or has other bytes now."""

    message = (
        "{extract}, the extract of run {run}, is gone or has changed: "
        "its rows cannot be read again."
    )
    next_step = Sentence(
        "Put the same file back; or put a newer extract where corrected ones are, "
        "and resubmit with {option}.",
        option=Option("--extract", of="resubmit"),
    )


class StoredSource(NamedTuple):
    """An extract as it is stored now, and the bytes it was found to have."""

    entry: Entry
    identity: SourceIdentity


def reopen_source(context: IssuerContext, run: str, source: SourceIdentity) -> StoredSource:
    """Return a run's source as it is stored now, checked by its digest; SourceGoneError."""
    store = context.adapters.store
    try:
        entry = stored_entry(store, source)
        identity = source if entry.version == source.version else identify(store, entry)
    except ObjectMissingError:
        raise SourceGoneError(extract=source.key, run=run) from None
    if identity.sha256 != source.sha256:
        raise SourceGoneError(extract=source.key, run=run)
    return StoredSource(entry, identity)


def rows_digest(rows: pl.DataFrame) -> str:
    """Return the SHA-256 of selected rows (row, origin), in any order."""
    return digest(shaped(rows, PICK).sort("row").write_csv().encode())


def selection_job(
    context: IssuerContext,
    source: StoredSource,
    rows: SelectedRows,
    selection: Selection,
    retry_command: Step,
    since: int,
) -> Job:
    """Plan a run of selected rows of a source, and store which they are.

    The same rows are the same bytes. `since` is the turn of the last run that was committed
    when they were chosen.
    """
    store = context.adapters.store
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    plan = plan_selection(context, source.identity, today, selection)
    write_once(store, keys_of(plan.run).selection, parquet(rows.rows.sort("row")))
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    return Job(plan, source.entry, RowScope(selected=rows), (), retry_command, since, runs)
