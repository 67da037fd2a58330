"""Remediate, each with a reason and a record: abandon a run, take over its claim, close its breaks,
dismiss an extract.

And decide about a result file: attribute one of its rows, withdraw that, ingest the file again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import polars as pl

from flows.errors import OperatorError
from flows.redaction import redact
from flows.reports.rebuild import (
    Findings,
    Ingested,
    RunReport,
    find_breaks,
    ingest,
    rebuild_lasting,
)
from flows.results.attribution import chain_of, decisions
from flows.results.intake import ResultObject, examine
from flows.results.read import ResultRows
from flows.runs import documents
from flows.runs.adapters import Adapters
from flows.runs.chains import add_record
from flows.runs.claim import ClaimHolder, claimed, end, held
from flows.runs.closings import chunk_of, closed_breaks, place_of
from flows.runs.context import IssuerContext
from flows.runs.errors import NoSuchRowError, NotFoundError
from flows.runs.events import record_event
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, dismissed, keys_of, results
from flows.runs.outbox import outbox, select_chunks
from flows.runs.outcomes import Attributed, StoredOutcomes
from flows.runs.store import ObjectMissingError, Store
from flows.runs.threads import concurrently
from flows.submissions.extract_states import extract_states
from flows.submissions.plan import dismissal, dismissals, find_extract, identify
from schemas import breaks, ledger
from schemas.breaks import EXPLAINED, KINDS, LOST, PLACELESS, RESULT_SHORT, Break
from schemas.ledger import BROKEN
from schemas.records import Abandoned, Attribution, Closing, Dismissal

T = TypeVar("T", Break, Closing)


class CommittedError(OperatorError):
    """The run to be abandoned, or of the extract to be dismissed, is committed."""

    message = "Run {run} is committed: it can be neither abandoned nor its extract dismissed."
    next_step = (
        "Chunks not uploaded yet can be cancelled: cardlink outbox cancel {run} --reason WHY."
    )


def abandon(adapters: Adapters, run: str, reason: str) -> Abandoned:
    """Abandon a planned run that is neither committed nor claimed; return the record.

    Raises UnknownRunError, CommittedError, AbandonedError, ClaimedError, NoReasonError.
    """
    keys, record = keys_of(run), Abandoned(run=run, **adapters.signed(reason))
    documents.planned(adapters.store, run)
    _refuse_ended(adapters, keys)
    with claimed(adapters, keys.claims):
        if not adapters.store.create(keys.manifest, canonical(record)):
            _refuse_ended(adapters, keys)
    return record


def _refuse_ended(adapters: Adapters, keys: RunKeys) -> None:
    if documents.finished(adapters.store, keys) is not None:
        raise CommittedError(run=str(keys.run))


def take_over(adapters: Adapters, run: str, reason: str) -> ClaimHolder:
    """End the claim on a run and return who held it; the next submit resumes from what is
    published.

    A process that is still alive loses the claim at its next renewal; what it publishes until then
    is what the next one would publish. Raises UnknownRunError, NotFoundError, NoReasonError.
    """
    keys, why = keys_of(run), adapters.signed(reason)["reason"]
    documents.planned(adapters.store, run)
    holder = held(adapters.store, keys.claims, adapters.now())
    if holder is None:
        raise NotFoundError(place=run, what="claim to take over", command=f"cardlink history {run}")
    until = holder.until.isoformat(timespec="seconds")
    record_event(adapters, keys, "taken over", reason=why, holder=holder.holder, until=until)
    end(adapters.store, keys.claims, adapters.actor, adapters.now())
    return holder


def dismiss(context: IssuerContext, extract: str, reason: str, *, undo: bool = False) -> Dismissal:
    """Decide that an extract shall not be sent, or take that back; return the record.

    Raises ExtractNotFoundError, CommittedError, NotFoundError, NoReasonError.
    """
    adapters, issuer, signed = (
        context.adapters,
        context.issuer.issuer,
        context.adapters.signed(reason),
    )
    entry = find_extract(context, extract)
    sha256 = identify(adapters.store, entry).sha256
    standing = dismissal(context, entry.key, dismissals(adapters.store, issuer, sha256))
    if undo and standing is None:
        raise NotFoundError(
            place=entry.key, what="dismissal to take back", command=f"cardlink extracts {issuer}"
        )
    for one in extract_states(context):
        if (one.key, one.sha256, one.state, undo) == (entry.key, sha256, "committed", False):
            raise CommittedError(run=one.run)
    if standing is not None and not undo:
        return standing
    record = Dismissal(
        **signed, what="taken back" if undo else "dismissed", key=entry.key, size=entry.size
    )
    add_record(adapters.store, f"{dismissed(issuer)}{sha256}/", record)
    return record


# the breaks closed or reopened, and the report after that
Settled = tuple[tuple[Break | Closing, ...], RunReport]


def close_break(
    context: IssuerContext, run: str, name: str, place: str, reason: str, decision: str = EXPLAINED
) -> Settled:
    """Close the open breaks of a kind in a run by a decision, all or those at a place (with or
    without row numbers).

    A chunk that was uploaded and has no result at all can be given up as RESULT_SHORT. Raises
    UnknownRunError, NotFoundError (also for a notice, or a decision that is not offered),
    ChunkStateError, NoReasonError.
    """
    signed, found = context.adapters.signed(reason), find_breaks(context, run)
    offered = KINDS[name].decisions if name in KINDS else ()
    if offered and decision not in offered:
        what = f"decision {decision}, only {', '.join(offered)}"
        raise NotFoundError(place=f"Break {name}", what=what, command=f"cardlink report {run}")
    chunk = chunk_of(place)
    lacking = found.unanswered.filter(chunk=chunk).height
    short = any((one.name, one.place) == (name, place) for one in found.breaks)
    if (name, decision) == (RESULT_SHORT, LOST) and lacking and not short:
        select_chunks(outbox(context.adapters, run), run, {"uploaded"}, "given up", [chunk])
        found = found._replace(breaks=(Break(name, lacking, place, "", run),))
    chosen = {
        one: _covered(found, one, decision)
        for one in _chosen(run, "open", found.breaks, name, place)
    }
    return _record(context, run, "closed", chosen, signed, decision)


def _covered(found: Findings, one: Break, decision: str) -> tuple[int, ...]:
    """Return the rows of a break; of one without rows of its own those that the decision has its
    effect on.
    """
    rows = found.broken.filter(kind=one.name, chunk=chunk_of(one.place))["row"].drop_nulls()
    if one.name in PLACELESS or rows.is_empty():
        rows = found.unanswered.filter(chunk=chunk_of(one.place))["row"]
        rows = rows if decision == LOST else rows.clear()
    return tuple(sorted(set(rows)))


def reopen_break(context: IssuerContext, run: str, name: str, place: str, reason: str) -> Settled:
    """Reopen closed breaks of a kind in a run, all or those at a place; raises as `close_break`
    does.
    """
    signed, closed = (
        context.adapters.signed(reason),
        closed_breaks(context.adapters.store, keys_of(run)),
    )
    chosen = _chosen(run, "closed", closed, name, place)
    return _record(context, run, "reopened", dict.fromkeys(chosen, ()), signed)


def _chosen(run: str, state: str, found: Sequence[T], name: str, place: str) -> tuple[T, ...]:
    """Return the breaks of that name and place; NotFoundError where there is none."""
    chosen = tuple(
        one for one in found if one.name == name and place in ("", one.place, place_of(one.place))
    )
    if not chosen:
        what = f"{state} break {name} at {place or 'any place'}"
        raise NotFoundError(place=run, what=what, command=f"cardlink report {run}")
    return chosen


def _record(
    context: IssuerContext,
    run: str,
    what: Literal["closed", "reopened"],
    chosen: Mapping[T, tuple[int, ...]],
    signed: Mapping[str, Any],
    decision: str = "",
) -> Settled:
    """Record that breaks, each with the rows it covers, are closed, or open again, and rebuild the
    report.
    """
    for one, covers in chosen.items():
        by = decision or getattr(one, "decision", "")
        record = Closing(
            **signed,
            what=what,
            name=one.name,
            place=one.place,
            rows=one.rows,
            decision=by,
            covers=covers,
        )
        add_record(context.adapters.store, keys_of(run).closed, record)
    return tuple(chosen), rebuild_lasting(context, run)


Kind = Literal["attributed", "withdrawn", "again"]
EVENTS: dict[Kind, str] = {
    "attributed": "attributed by hand",
    "withdrawn": "attribution withdrawn",
    "again": "result taken up again",
}

UNPLACED = (
    *(breaks.UNATTRIBUTED_ERROR, breaks.UNKNOWN_CUID, breaks.FOREIGN_FILE),
    *(breaks.LAST4_MISMATCH, breaks.UNNAMED_ROW),
)


class Decided(NamedTuple):
    """A record about a result file, the outcome of the row it is about, if any, and the ingest that
    followed.
    """

    record: Attribution
    row: dict[str, Any]
    ingested: Ingested


def _find_result(context: IssuerContext, result: str) -> ResultObject:
    """Return a result file by name or key, with the decisions about it; ObjectMissingError."""
    store, issuer = context.adapters.store, context.issuer.issuer
    prefix = results(issuer)
    for entry in store.keys(prefix):
        if entry.key in (result, prefix + result):
            return ResultObject(
                entry, decisions(store, issuer).get(chain_of(issuer, entry.key), ())
            )
    raise ObjectMissingError(key=prefix + redact(result))


def _decide(
    context: IssuerContext,
    found: ResultObject,
    digest: str,
    what: Kind,
    signed: Mapping[str, Any],
    **row: Any,
) -> Decided:
    """Record a decision about the result file of these bytes, or about its `row` (fields of
    Attribution); reingest.
    """
    adapters, issuer, key = context.adapters, context.issuer.issuer, found.entry.key
    known = documents.run_ids(adapters.store, issuer)
    has = concurrently(
        lambda run: StoredOutcomes(adapters.store, RunKeys(run)).has_results_for(key), known, 8
    )
    runs = tuple(sorted(str(run) for run, answered in zip(known, has, strict=True) if answered))
    record = Attribution(**signed, what=what, result=redact(key), digest=digest, runs=runs, **row)
    _, after = examine(context, found._replace(decided=(*found.decided, record)))
    outcome = after.outcomes.filter(position=record.position).select(
        "state", "trouble", "run", "chunk", "row", "how"
    )
    built = outcome.row(0, named=True) if outcome.height else {}
    add_record(adapters.store, chain_of(issuer, key), record)
    facts: dict[str, str | int] = {"result": record.result} | (
        {"row": record.position} if record.position else {}
    )
    for run in sorted({*runs, *after.outcomes["run"].drop_nulls().unique(), record.run} - {""}):
        record_event(adapters, keys_of(run), EVENTS[what], reason=record.reason, **facts)
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
    last_4_confirmed: bool = False,
) -> Decided:
    """Give data row `position` (from 1) of a result file to a sent row, `to` run and row, that has
    no answer.

    A link with other last four digits may go to the wrong cardholder, so it needs the partner's
    confirmation:
    `last_4_confirmed`. Raises ObjectMissingError, NoSuchRowError, RowSettledError, LastFourError, UnknownRunError,
    NoReasonError.
    """
    signed, found = context.adapters.signed(reason), _find_result(context, result)
    rows, seen = examine(context, found)
    reported = _unattributed_row(rows, seen, position)
    last_4 = _waiting_row(context.adapters.store, *to)
    if not last_4_confirmed and reported not in (None, last_4):
        raise LastFourError(result=rows.name, position=position, run=to[0], row=to[1])
    row = {"position": position, "run": to[0], "row": to[1], "last_4_confirmed": last_4_confirmed}
    return _decide(context, found, rows.digest, "attributed", signed, **row)


def withdraw(context: IssuerContext, result: str, position: int, reason: str) -> Decided:
    """Withdraw the attribution of a result row by an operator; the rules place it again, or it is a
    break again.
    """
    signed, found = context.adapters.signed(reason), _find_result(context, result)
    rows, _ = examine(context, found)
    decided = [
        one for one in found.decided if one.position == position and one.digest == rows.digest
    ]
    if not decided or decided[-1].what != "attributed":
        raise NoSuchRowError(place=rows.name, rows=f"{position} that an operator attributed")
    return _decide(context, found, rows.digest, "withdrawn", signed, position=position)


def _unattributed_row(rows: ResultRows, seen: Attributed, position: int) -> str | None:
    """Return the last four digits of a result row that is not attributed; NoSuchRowError,
    RowSettledError.
    """
    row = seen.outcomes.filter(position=position)
    if row.is_empty():
        raise NoSuchRowError(place=rows.name, rows=position)
    problem = row["trouble"][0]
    if problem not in UNPLACED:
        state = f"is {row['state'][0]}, {problem or 'attributed already'}"
        raise RowSettledError(place=rows.name, row=position, state=state)
    reported: str | None = rows.rows.filter(position=position)["last_4"][0]
    return reported


def _waiting_row(store: Store, run: str, row: int) -> str:
    """Return the last four digits of a sent row without an answer; NoSuchRowError,
    RowSettledError.
    """
    keys, manifest = keys_of(run), documents.committed(store, run)
    columns = ["row", "fate", "chunk", "last_4"]
    only = (pl.col("row") == row) & (pl.col("fate") == ledger.SUBMITTED)
    sent = pl.concat(documents.read_ledger(store, keys, manifest.ledger, columns, only))
    if sent.is_empty():
        raise NoSuchRowError(place=run, rows=f"{row} that was sent")
    answers = (
        one.outcomes.filter(row=row, run=run)
        for one in StoredOutcomes(store, keys).of([sent["chunk"][0]])
    )
    settled = next(
        (one["state"][0] for one in answers if one.filter(pl.col("state") != BROKEN).height), None
    )
    if settled:
        raise RowSettledError(place=run, row=row, state=f"is {settled} already")
    return str(sent["last_4"][0])


def reingest(context: IssuerContext, result: str, reason: str) -> Decided:
    """Attribute a result file again and report the runs it answered before and answers now;
    ObjectMissingError.
    """
    signed, found = context.adapters.signed(reason), _find_result(context, result)
    rows, _ = examine(context, found)
    return _decide(context, found, rows.digest, "again", signed)
