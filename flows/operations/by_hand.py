"""Decide about a result file by hand: attribute a row, withdraw that, ingest the file again; each adds a record."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.operations.remediation import given
from flows.redaction import redact
from flows.reports.ingest import Ingested, ingest
from flows.results.decisions import chain_of, decisions
from flows.results.intake import ResultObject, examine
from flows.results.read import ResultRows
from flows.runs.chains import add_record
from flows.runs.context import IssuerContext, record_event
from flows.runs.documents import NoSuchRowError, UnknownRunError, keys_of, read_ledger, read_manifest, run_ids
from flows.runs.keys import RunKeys, results
from flows.runs.outcomes import Attributed, StoredOutcomes
from flows.runs.store import Store
from schemas import breaks, ledger
from schemas.ledger import BROKEN
from schemas.records import Attribution

READERS = 8  # runs looked at at a time
Kind = Literal["attributed", "withdrawn", "again"]
EVENTS: dict[Kind, str] = {
    "attributed": "attributed by hand",
    "withdrawn": "attribution withdrawn",
    "again": "result taken up again",
}

LOST = (breaks.UNATTRIBUTED_ERROR, breaks.UNKNOWN_CUID, breaks.FOREIGN_FILE, breaks.LAST4_MISMATCH)


class NoSuchResultError(OperatorError):
    """There is no result file of that name."""

    message = "No result file {name} under {prefix}."
    next_step = "Name one that is stored there, or drop it there."


class Decided(NamedTuple):
    """A record about a result file, what it makes of the row it is about, if any, and the ingest that followed."""

    record: Attribution
    row: dict[str, Any]
    ingested: Ingested | None


def find_result(context: IssuerContext, result: str) -> ResultObject:
    """Return a result file by name or key, with what was decided about it; NoSuchResultError."""
    store, issuer = context.adapters.store, context.issuer.issuer
    prefix = results(issuer)
    for entry in store.keys(prefix):
        if entry.key in (result, prefix + result):
            return ResultObject(entry, decisions(store, issuer).get(chain_of(issuer, entry.key), ()))
    raise NoSuchResultError(name=redact(result), prefix=prefix)


def decision(context: IssuerContext, found: ResultObject, digest: str, what: Kind, why: str) -> Attribution:
    """Return the record of a decision about the file of these bytes; the caller adds row and place."""
    adapters, key = context.adapters, found.entry.key
    runs = tuple(sorted(_runs_of_result(adapters.store, context.issuer.issuer, key)))
    return Attribution(
        at=adapters.now(),
        by=redact(adapters.actor),
        reason=why,
        what=what,
        result=redact(key),
        digest=digest,
        runs=runs,
    )


def decide(context: IssuerContext, found: ResultObject, record: Attribution, *, dry_run: bool) -> Decided:
    """Add a record and take the file up again; a dry run only tells what the record would make of the row."""
    _, after = examine(context, found._replace(decided=(*found.decided, record)))
    row = after.outcomes.filter(position=record.position).select("state", "trouble", "run", "chunk", "row", "how")
    built = row.row(0, named=True) if row.height else {}
    if dry_run:
        return Decided(record, built, None)
    add_record(context.adapters.store, chain_of(context.issuer.issuer, found.entry.key), record)
    for run in _affected_runs(record, after):
        reported = {"result": record.result, "row": record.position} if record.position else {"result": record.result}
        record_event(context.adapters, keys_of(run), EVENTS[record.what], reason=record.reason, **reported)
    return Decided(record, built, ingest(context))


def _affected_runs(record: Attribution, after: Attributed) -> Sequence[str]:
    return sorted({*record.runs, *after.outcomes["run"].drop_nulls().unique(), record.run} - {""})


def _runs_of_result(store: Store, issuer: str, result: str) -> frozenset[str]:
    """Return the runs with which rows of a result file are kept now."""
    with ThreadPoolExecutor(READERS) as readers:
        reported = readers.map(
            lambda run: (str(run), StoredOutcomes(store, RunKeys(run)).has_results_for(result)), run_ids(store, issuer)
        )
        return frozenset(run for run, speaks in reported if speaks)


class RowSettledError(OperatorError):
    """A result row that has its place, or a sent row that has its answer, is not to be tied by hand."""

    message = "Row {row} of {place} {state}."
    next_step = "Only an unattributed result row can go to a row without a result; `cardlink report RUN` shows both."


class LastFourError(OperatorError):
    """A result row is to be tied to a card with other last four digits."""

    message = (
        "Row {position} of {result} and row {row} of {run} differ in the last four digits: the link may open another "
        "card."
    )
    next_step = "Ask the partner. Only where they confirm it: --last-4-confirmed."


def attribute_row(
    context: IssuerContext,
    result: str,
    position: int,
    to: tuple[str, int],
    reason: str,
    *,
    last_4_confirmed: bool = False,
    dry_run: bool = False,
) -> Decided:
    """Give data row `position` (from 1) of a result file to a sent row, `to` run and row, that waits for an answer.

    A link whose last four digits are not the card's goes to a wrong cardholder at worst, so it needs the partner's
    word: `last_4_confirmed`. Raises NoSuchResultError, NoSuchRowError, RowSettledError, LastFourError,
    UnknownRunError, NoReasonError.
    """
    why, found = given(reason), find_result(context, result)
    rows, seen = examine(context, found)
    reported = _unattributed_row(rows, seen, position)
    last_4 = _waiting_row(context.adapters.store, *to)
    if not last_4_confirmed and reported not in (None, last_4):
        raise LastFourError(result=rows.name, position=position, run=to[0], row=to[1])
    record = decision(context, found, rows.digest, "attributed", why).model_copy(
        update={"position": position, "run": to[0], "row": to[1], "last_4_confirmed": last_4_confirmed}
    )
    return decide(context, found, record, dry_run=dry_run)


def withdraw(context: IssuerContext, result: str, position: int, reason: str, *, dry_run: bool = False) -> Decided:
    """Take back what was said by hand of a row of a result file; the rules place it again, or it is a break again."""
    why, found = given(reason), find_result(context, result)
    rows, _ = examine(context, found)
    said = [one for one in found.decided if one.position == position and one.digest == rows.digest]
    if not said or said[-1].what != "attributed":
        raise NoSuchRowError(place=rows.name, rows=f"{position} attributed by hand")
    record = decision(context, found, rows.digest, "withdrawn", why).model_copy(update={"position": position})
    return decide(context, found, record, dry_run=dry_run)


def _unattributed_row(rows: ResultRows, seen: Attributed, position: int) -> str | None:
    """Return the last four digits a row of a result came with, where it has no place; else say why it needs none."""
    there = seen.outcomes.filter(position=position)
    if there.is_empty():
        raise NoSuchRowError(place=rows.name, rows=position)
    problem = there["trouble"][0]
    if problem not in LOST:
        raise RowSettledError(
            place=rows.name, row=position, state=f"is {there['state'][0]}, {problem or 'with its place'}"
        )
    reported: str | None = rows.rows.filter(position=position)["last_4"][0]
    return reported


def _waiting_row(store: Store, run: str, row: int) -> str:
    """Return the last four digits of a row that was sent and has no answer."""
    keys = keys_of(run)
    manifest = read_manifest(store, keys)
    if manifest is None:
        raise UnknownRunError(run=run)
    columns = ["row", "fate", "chunk", "last_4"]
    only = (pl.col("row") == row) & (pl.col("fate") == ledger.SUBMITTED)
    sent = pl.concat(read_ledger(store, keys, manifest.ledger, columns, only))
    if sent.is_empty():
        raise NoSuchRowError(place=run, rows=f"{row} that was sent")
    answers = (one.outcomes.filter(row=row, run=run) for one in StoredOutcomes(store, keys).of([sent["chunk"][0]]))
    settled = next((one["state"][0] for one in answers if one.filter(pl.col("state") != BROKEN).height), None)
    if settled:
        raise RowSettledError(place=run, row=row, state=f"is {settled} already")
    return str(sent["last_4"][0])


def reingest(context: IssuerContext, result: str, reason: str, *, dry_run: bool = False) -> Decided:
    """Attribute a result file anew and report the runs it spoke of and speaks of; NoSuchResultError, NoReasonError."""
    why, found = given(reason), find_result(context, result)
    rows, _ = examine(context, found)
    return decide(context, found, decision(context, found, rows.digest, "again", why), dry_run=dry_run)
