"""Decide about a result file: attribute one of its rows, withdraw that, ingest the file again; each adds a record."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.operations.remediation import checked_reason
from flows.redaction import redact
from flows.reports.rebuild import Ingested, ingest
from flows.results.attribution import chain_of, decisions
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

READERS = 8  # runs read at a time
Kind = Literal["attributed", "withdrawn", "again"]
EVENTS: dict[Kind, str] = {
    "attributed": "attributed by hand",
    "withdrawn": "attribution withdrawn",
    "again": "result taken up again",
}

LOST = (breaks.UNATTRIBUTED_ERROR, breaks.UNKNOWN_CUID, breaks.FOREIGN_FILE, breaks.LAST4_MISMATCH, breaks.UNNAMED_ROW)


class NoSuchResultError(OperatorError):
    """No result file has that name."""

    message = "No result file {name} under {prefix}."
    next_step = "Name a file that is stored there, or drop it there first."


class Decided(NamedTuple):
    """A record about a result file, the outcome of the row it is about, if any, and the ingest that followed."""

    record: Attribution
    row: dict[str, Any]
    ingested: Ingested | None


def _find_result(context: IssuerContext, result: str) -> ResultObject:
    """Return a result file by name or key, with the decisions about it; NoSuchResultError."""
    store, issuer = context.adapters.store, context.issuer.issuer
    prefix = results(issuer)
    for entry in store.keys(prefix):
        if entry.key in (result, prefix + result):
            return ResultObject(entry, decisions(store, issuer).get(chain_of(issuer, entry.key), ()))
    raise NoSuchResultError(name=redact(result), prefix=prefix)


def _decide(
    context: IssuerContext, found: ResultObject, digest: str, what: Kind, why: str, *, dry_run: bool, **row: Any
) -> Decided:
    """Record a decision about the result file of these bytes, or about its `row` (fields of Attribution); reingest it.

    A dry run only returns what the record would make of the row.
    """
    adapters, issuer, key = context.adapters, context.issuer.issuer, found.entry.key
    known = run_ids(adapters.store, issuer)
    with ThreadPoolExecutor(READERS) as readers:
        has = readers.map(lambda run: StoredOutcomes(adapters.store, RunKeys(run)).has_results_for(key), known)
        runs = tuple(sorted(str(run) for run, answered in zip(known, has, strict=True) if answered))
    who = {"at": adapters.now(), "by": redact(adapters.actor), "reason": why}
    record = Attribution(**who, what=what, result=redact(key), digest=digest, runs=runs, **row)
    _, after = examine(context, found._replace(decided=(*found.decided, record)))
    outcome = after.outcomes.filter(position=record.position).select("state", "trouble", "run", "chunk", "row", "how")
    built = outcome.row(0, named=True) if outcome.height else {}
    if dry_run:
        return Decided(record, built, None)
    add_record(adapters.store, chain_of(issuer, key), record)
    facts: dict[str, str | int] = {"result": record.result} | ({"row": record.position} if record.position else {})
    for run in sorted({*runs, *after.outcomes["run"].drop_nulls().unique(), record.run} - {""}):
        record_event(adapters, keys_of(run), EVENTS[what], reason=why, **facts)
    return Decided(record, built, ingest(context))


class RowSettledError(OperatorError):
    """The result row is attributed already, or the sent row has its answer."""

    message = "Row {row} of {place} {state}."
    next_step = "An unattributed result row fits a sent row without a result; `cardlink report RUN` shows both."


class LastFourError(OperatorError):
    """The result row and the sent row have different last four digits."""

    message = (
        "Row {position} of {result} and row {row} of {run} have different last four digits: "
        "the link may belong to another card."
    )
    next_step = "Ask the partner; only if they confirm the card, repeat the command with --last-4-confirmed."


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
    """Give data row `position` (from 1) of a result file to a sent row, `to` run and row, that has no answer.

    A link with other last four digits may go to the wrong cardholder, so it needs the partner's confirmation:
    `last_4_confirmed`. Raises NoSuchResultError, NoSuchRowError, RowSettledError, LastFourError, UnknownRunError,
    NoReasonError.
    """
    why, found = checked_reason(reason), _find_result(context, result)
    rows, seen = examine(context, found)
    reported = _unattributed_row(rows, seen, position)
    last_4 = _waiting_row(context.adapters.store, *to)
    if not last_4_confirmed and reported not in (None, last_4):
        raise LastFourError(result=rows.name, position=position, run=to[0], row=to[1])
    row = {"position": position, "run": to[0], "row": to[1], "last_4_confirmed": last_4_confirmed}
    return _decide(context, found, rows.digest, "attributed", why, dry_run=dry_run, **row)


def withdraw(context: IssuerContext, result: str, position: int, reason: str, *, dry_run: bool = False) -> Decided:
    """Withdraw the attribution of a result row by an operator; the rules place it again, or it is a break again."""
    why, found = checked_reason(reason), _find_result(context, result)
    rows, _ = examine(context, found)
    decided = [one for one in found.decided if one.position == position and one.digest == rows.digest]
    if not decided or decided[-1].what != "attributed":
        raise NoSuchRowError(place=rows.name, rows=f"{position} that an operator attributed")
    return _decide(context, found, rows.digest, "withdrawn", why, dry_run=dry_run, position=position)


def _unattributed_row(rows: ResultRows, seen: Attributed, position: int) -> str | None:
    """Return the last four digits of a result row that is not attributed; NoSuchRowError, RowSettledError."""
    row = seen.outcomes.filter(position=position)
    if row.is_empty():
        raise NoSuchRowError(place=rows.name, rows=position)
    problem = row["trouble"][0]
    if problem not in LOST:
        state = f"is {row['state'][0]}, {problem or 'attributed already'}"
        raise RowSettledError(place=rows.name, row=position, state=state)
    reported: str | None = rows.rows.filter(position=position)["last_4"][0]
    return reported


def _waiting_row(store: Store, run: str, row: int) -> str:
    """Return the last four digits of a sent row without an answer; NoSuchRowError, RowSettledError."""
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
    """Attribute a result file again and report the runs it answered before and answers now; NoSuchResultError."""
    why, found = checked_reason(reason), _find_result(context, result)
    rows, _ = examine(context, found)
    return _decide(context, found, rows.digest, "again", why, dry_run=dry_run)
