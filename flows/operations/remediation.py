"""Remediate: abandon a run, take over its claim, close its breaks, dismiss an extract; each with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from flows.errors import OperatorError
from flows.operations.outbox import select_chunks
from flows.reports.rebuild import Findings, RunReport, find_breaks, rebuild_lasting
from flows.runs.chains import add_record
from flows.runs.chunks import chunk_of, closed_breaks, outbox, place_of
from flows.runs.claim import ClaimHolder, claimed, end, held
from flows.runs.context import Adapters, IssuerContext, record_event
from flows.runs.documents import NotFoundError, UnknownRunError, finished, keys_of, read_plan
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, dismissed
from flows.submissions.pending import extract_states
from flows.submissions.plan import dismissal_of, dismissals, find_extract, identify
from schemas.breaks import EXPLAINED, KINDS, LOST, PLACELESS, RESULT_SHORT, Break
from schemas.records import Abandoned, Closing, Dismissal

T = TypeVar("T", Break, Closing)


class CommittedError(OperatorError):
    """The run to be abandoned, or of the extract to be dismissed, is committed."""

    message = "Run {run} is committed: it can be neither abandoned nor its extract dismissed."
    next_step = "Chunks not uploaded yet can be cancelled: cardlink outbox cancel {run} --reason WHY."


def abandon(adapters: Adapters, run: str, reason: str) -> Abandoned:
    """Abandon a planned run that is neither committed nor claimed; return the record.

    Raises UnknownRunError, CommittedError, AbandonedError, ClaimedError, NoReasonError.
    """
    keys, record = keys_of(run), Abandoned(run=run, **adapters.signed(reason))
    _refuse_unplanned(adapters, keys)
    _refuse_ended(adapters, keys)
    with claimed(adapters, keys.claims):
        if not adapters.store.create(keys.manifest, canonical(record)):
            _refuse_ended(adapters, keys)
    return record


def _refuse_ended(adapters: Adapters, keys: RunKeys) -> None:
    if finished(adapters.store, keys) is not None:
        raise CommittedError(run=str(keys.run))


def _refuse_unplanned(adapters: Adapters, keys: RunKeys) -> None:
    if read_plan(adapters.store, keys) is None:
        raise UnknownRunError(run=str(keys.run))


def take_over(adapters: Adapters, run: str, reason: str) -> ClaimHolder:
    """End the claim on a run and return who held it; the next submit resumes from what is published.

    A process that is still alive loses the claim at its next renewal; what it publishes until then is what the next
    one would publish. Raises UnknownRunError, NotFoundError, NoReasonError.
    """
    keys, why = keys_of(run), adapters.signed(reason)["reason"]
    _refuse_unplanned(adapters, keys)
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
    adapters, issuer, signed = context.adapters, context.issuer.issuer, context.adapters.signed(reason)
    entry = find_extract(context, extract)
    sha256 = identify(adapters.store, entry).sha256
    standing = dismissal_of(context, entry.key, dismissals(adapters.store, issuer, sha256))
    if undo and standing is None:
        raise NotFoundError(place=entry.key, what="dismissal to take back", command=f"cardlink extracts {issuer}")
    for one in extract_states(context):
        if (one.key, one.sha256, one.state, undo) == (entry.key, sha256, "committed", False):
            raise CommittedError(run=one.run)
    if standing is not None and not undo:
        return standing
    record = Dismissal(**signed, what="taken back" if undo else "dismissed", key=entry.key, size=entry.size)
    add_record(adapters.store, f"{dismissed(issuer)}{sha256}/", record)
    return record


class NotOfferedError(OperatorError):
    """A break cannot be closed by that decision."""

    message = "{name} cannot be closed with the decision {decision}."
    next_step = "Its decisions are: {offered}; `cardlink report {run}` shows the effect of each."


Settled = tuple[tuple[Break | Closing, ...], RunReport]  # the breaks closed or reopened, and the report after that


def close_break(
    context: IssuerContext, run: str, name: str, place: str, reason: str, decision: str = EXPLAINED
) -> Settled:
    """Close the open breaks of a kind in a run by a decision, all or those at a place (with or without row numbers).

    A chunk that was uploaded and has no result at all can be given up as RESULT_SHORT. Raises UnknownRunError,
    NotFoundError (notices cannot be closed), NotOfferedError, ChunkStateError, NoReasonError.
    """
    signed, found = context.adapters.signed(reason), find_breaks(context, run)
    offered = KINDS[name].decisions if name in KINDS else ()
    if offered and decision not in offered:
        raise NotOfferedError(run=run, name=name, decision=decision, offered=", ".join(offered))
    chunk = chunk_of(place)
    lacking = found.unanswered.filter(chunk=chunk).height
    short = any((one.name, one.place) == (name, place) for one in found.breaks)
    if (name, decision) == (RESULT_SHORT, LOST) and lacking and not short:
        select_chunks(outbox(context.adapters, run), run, {"uploaded"}, "given up", [chunk])
        found = found._replace(breaks=(Break(name, lacking, place, "", run),))
    chosen = {one: _covered(found, one, decision) for one in _chosen(run, "open", found.breaks, name, place)}
    return _record(context, run, "closed", chosen, signed, decision)


def _covered(found: Findings, one: Break, decision: str) -> tuple[int, ...]:
    """Return the rows of a break; of one without rows of its own those that the decision has its effect on."""
    rows = found.broken.filter(kind=one.name, chunk=chunk_of(one.place))["row"].drop_nulls()
    if one.name in PLACELESS or rows.is_empty():
        rows = found.unanswered.filter(chunk=chunk_of(one.place))["row"]
        rows = rows if decision == LOST else rows.clear()
    return tuple(sorted(set(rows)))


def reopen_break(context: IssuerContext, run: str, name: str, place: str, reason: str) -> Settled:
    """Reopen closed breaks of a kind in a run, all or those at a place; raises as `close_break` does."""
    signed, closed = context.adapters.signed(reason), closed_breaks(context.adapters.store, keys_of(run))
    chosen = _chosen(run, "closed", closed, name, place)
    return _record(context, run, "reopened", dict.fromkeys(chosen, ()), signed)


def _chosen(run: str, state: str, found: Sequence[T], name: str, place: str) -> tuple[T, ...]:
    """Return the breaks of that name and place; NotFoundError where there is none."""
    chosen = tuple(one for one in found if one.name == name and place in ("", one.place, place_of(one.place)))
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
    """Record that breaks, each with the rows it covers, are closed, or open again, and rebuild the report."""
    for one, covers in chosen.items():
        by = decision or getattr(one, "decision", "")
        record = Closing(**signed, what=what, name=one.name, place=one.place, rows=one.rows, decision=by, covers=covers)
        add_record(context.adapters.store, keys_of(run).closed, record)
    return tuple(chosen), rebuild_lasting(context, run)
