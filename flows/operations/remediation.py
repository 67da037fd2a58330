"""Put a run right: abandon it, take over its claim, close and reopen its breaks; each with a reason and a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from flows.errors import OperatorError
from flows.redaction import redact
from flows.reports.rebuild import RunReport, find_breaks, rebuild_lasting
from flows.results.decisions import Closed, closed_breaks, place_of, sort_breaks
from flows.runs.chains import add_record
from flows.runs.claim import ClaimedError, ClaimHolder, claimed, end, held
from flows.runs.context import Adapters, IssuerContext, record_event
from flows.runs.documents import NoReasonError, UnknownRunError, finished, keys_of, read_plan
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys
from schemas.breaks import Break
from schemas.records import Abandoned, Closing


def given(reason: str) -> str:
    """Return a reason as it is kept; NoReasonError where there is none."""
    reported = redact(reason.strip())
    if not reported:
        raise NoReasonError
    return reported


class CommittedError(OperatorError):
    """The run that is to be abandoned is committed."""

    message = "Run {run} is committed: it cannot be abandoned."
    next_step = "What is not uploaded yet can be cancelled: cardlink outbox cancel {run} --reason WHY."


def abandon(adapters: Adapters, run: str, reason: str, *, dry_run: bool = False) -> Abandoned:
    """Abandon a planned run that is not committed and that nobody works on; return the record.

    Raises UnknownRunError, CommittedError, AbandonedError, ClaimedError, NoReasonError.
    """
    keys, why = keys_of(run), given(reason)
    if read_plan(adapters.store, keys) is None:
        raise UnknownRunError(run=run)
    _refuse_ended(adapters, keys)
    record = Abandoned(run=run, at=adapters.now(), by=redact(adapters.actor), reason=why)
    if dry_run:
        _refuse_claimed(adapters, keys)
        return record
    with claimed(adapters, keys.claims):
        if not adapters.store.create(keys.manifest, canonical(record)):
            _refuse_ended(adapters, keys)
    return record


def _refuse_ended(adapters: Adapters, keys: RunKeys) -> None:
    if finished(adapters.store, keys) is not None:
        raise CommittedError(run=str(keys.run))


def _refuse_claimed(adapters: Adapters, keys: RunKeys) -> None:
    holder = held(adapters.store, keys.claims, adapters.now())
    if holder is not None:
        raise ClaimedError(holder=holder.holder, prefix=keys.claims, until=holder.until.isoformat(timespec="seconds"))


class NotClaimedError(OperatorError):
    """Nobody holds the claim that is to be ended."""

    message = "Nobody has claimed {run}: there is nothing to take over."
    next_step = "The interrupted command can continue at once: run it again."


def take_over(adapters: Adapters, run: str, reason: str, *, dry_run: bool = False) -> ClaimHolder:
    """End the claim on a run and return who had it; the next submit goes on from what is published.

    A process that still lives loses the claim at its next beat, and what it publishes until then is what the next one
    would. Raises UnknownRunError, NotClaimedError, NoReasonError.
    """
    keys, why = keys_of(run), given(reason)
    if read_plan(adapters.store, keys) is None:
        raise UnknownRunError(run=run)
    holder = held(adapters.store, keys.claims, adapters.now())
    if holder is None:
        raise NotClaimedError(run=run)
    if not dry_run:
        until = holder.until.isoformat(timespec="seconds")
        record_event(adapters, keys, "taken over", reason=why, holder=holder.holder, until=until)
        end(adapters.store, keys.claims, adapters.actor, adapters.now())
    return holder


class NoSuchBreakError(OperatorError):
    """A run has no break of that kind at that place that could be closed, or opened again."""

    message = "{run} has no {state} {name} at {place}."
    next_step = "`cardlink report {run}` shows its breaks with the names to use here."


class ClosedBreaks(NamedTuple):
    """The breaks that were closed or opened, and the report as it is now; None in a dry run."""

    breaks: tuple[Break | Closed, ...]
    report: RunReport | None


def close_break(
    context: IssuerContext, run: str, name: str, place: str, reason: str, *, dry_run: bool = False
) -> ClosedBreaks:
    """Close the open breaks of a kind in a run, all or those at a place (with or without its row numbers).

    Raises UnknownRunError, NoSuchBreakError (a notice is none), NoReasonError.
    """
    why, keys = given(reason), keys_of(run)
    found = sort_breaks(find_breaks(context, run), closed_breaks(context.adapters.store, keys))
    chosen = tuple(one for one in found.open if not one.notice and _matches(one, name, place))
    if not chosen:
        raise NoSuchBreakError(run=run, name=name, place=place or "any place", state="open break")
    return _record(context, keys, "closed", chosen, why, dry_run=dry_run)


def reopen_break(
    context: IssuerContext, run: str, name: str, place: str, reason: str, *, dry_run: bool = False
) -> ClosedBreaks:
    """Take back the closing of breaks of a kind in a run, all or those at a place; raises as `close_break` does."""
    why, keys = given(reason), keys_of(run)
    closed = sorted(closed_breaks(context.adapters.store, keys))
    chosen = tuple(one for one in closed if _matches(one, name, place))
    if not chosen:
        raise NoSuchBreakError(run=run, name=name, place=place or "any place", state="closed break")
    return _record(context, keys, "reopened", chosen, why, dry_run=dry_run)


def _matches(one: Break | Closed, name: str, place: str) -> bool:
    return one.name == name and place in ("", one.place, place_of(one.place))


def _record(
    context: IssuerContext,
    keys: RunKeys,
    what: Literal["closed", "reopened"],
    chosen: Sequence[Break | Closed],
    why: str,
    *,
    dry_run: bool,
) -> ClosedBreaks:
    if dry_run:
        return ClosedBreaks(tuple(chosen), None)
    for one in chosen:
        add_record(context.adapters.store, keys.closed, _closing(context.adapters, what, one, why))
    return ClosedBreaks(tuple(chosen), rebuild_lasting(context, str(keys.run)))


def _closing(adapters: Adapters, what: Literal["closed", "reopened"], one: Break | Closed, why: str) -> Closing:
    said = {"what": what, "name": one.name, "place": one.place, "rows": one.rows}
    return Closing(at=adapters.now(), by=redact(adapters.actor), reason=why, **said)
