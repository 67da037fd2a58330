"""Put a run right: abandon it, take over its claim, close and reopen its breaks; each with a reason and a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from flows.errors import OperatorError
from flows.redaction import redact
from flows.reports.rebuild import RunReport, find_breaks, rebuild_lasting
from flows.results.decisions import Closed, closed_breaks, home, sort_out
from flows.runs.chains import add_record
from flows.runs.claim import ClaimedError, Held, claimed, end, held
from flows.runs.context import Edges, IssuerEdges, note
from flows.runs.documents import NoReasonError, UnknownRunError, finished, keys_of, read_plan
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys
from schemas.breaks import Break
from schemas.records import Abandoned, Closing


def given(reason: str) -> str:
    """Return a reason as it is kept; NoReasonError where there is none."""
    told = redact(reason.strip())
    if not told:
        raise NoReasonError
    return told


class CommittedError(OperatorError):
    """The run that is to be abandoned is committed."""

    message = "Run {run} is committed: it cannot be abandoned."
    next_step = "What is not uploaded yet can be cancelled: cardlink outbox cancel {run} --reason WHY."


def abandon(edges: Edges, run: str, reason: str, *, dry_run: bool = False) -> Abandoned:
    """Abandon a planned run that is not committed and that nobody works on; return the record.

    Raises UnknownRunError, CommittedError, AbandonedError, ClaimedError, NoReasonError.
    """
    keys, why = keys_of(run), given(reason)
    if read_plan(edges.store, keys) is None:
        raise UnknownRunError(run=run)
    _refuse_ended(edges, keys)
    record = Abandoned(run=run, at=edges.now(), by=redact(edges.actor), reason=why)
    if dry_run:
        _refuse_claimed(edges, keys)
        return record
    with claimed(edges, keys.claims):
        if not edges.store.create(keys.manifest, canonical(record)):
            _refuse_ended(edges, keys)
    return record


def _refuse_ended(edges: Edges, keys: RunKeys) -> None:
    if finished(edges.store, keys) is not None:
        raise CommittedError(run=str(keys.run))


def _refuse_claimed(edges: Edges, keys: RunKeys) -> None:
    holder = held(edges.store, keys.claims, edges.now())
    if holder is not None:
        raise ClaimedError(holder=holder.holder, prefix=keys.claims, until=holder.until.isoformat(timespec="seconds"))


class NotClaimedError(OperatorError):
    """Nobody holds the claim that is to be ended."""

    message = "Nobody has claimed {run}: there is nothing to take over."
    next_step = "The interrupted command can continue at once: run it again."


def take_over(edges: Edges, run: str, reason: str, *, dry_run: bool = False) -> Held:
    """End the claim on a run and return who had it; the next submit goes on from what is published.

    A process that still lives loses the claim at its next beat, and what it publishes until then is what the next one
    would. Raises UnknownRunError, NotClaimedError, NoReasonError.
    """
    keys, why = keys_of(run), given(reason)
    if read_plan(edges.store, keys) is None:
        raise UnknownRunError(run=run)
    holder = held(edges.store, keys.claims, edges.now())
    if holder is None:
        raise NotClaimedError(run=run)
    if not dry_run:
        until = holder.until.isoformat(timespec="seconds")
        note(edges, keys, "taken over", reason=why, holder=holder.holder, until=until)
        end(edges.store, keys.claims, edges.actor, edges.now())
    return holder


class NoSuchBreakError(OperatorError):
    """A run has no break of that kind at that place that could be closed, or opened again."""

    message = "{run} has no {state} {name} at {place}."
    next_step = "`cardlink report {run}` shows its breaks with the names to use here."


class Mended(NamedTuple):
    """The breaks that were closed or opened, and the report as it is now; None in a dry run."""

    breaks: tuple[Break | Closed, ...]
    report: RunReport | None


def close_break(edges: IssuerEdges, run: str, name: str, place: str, reason: str, *, dry_run: bool = False) -> Mended:
    """Close the open breaks of a kind in a run, all or those at a place (with or without its row numbers).

    Raises UnknownRunError, NoSuchBreakError (a notice is none), NoReasonError.
    """
    why, keys = given(reason), keys_of(run)
    found = sort_out(find_breaks(edges, run), closed_breaks(edges.edges.store, keys))
    chosen = tuple(one for one in found.open if not one.notice and _meant(one, name, place))
    if not chosen:
        raise NoSuchBreakError(run=run, name=name, place=place or "any place", state="open break")
    return _record(edges, keys, "closed", chosen, why, dry_run=dry_run)


def reopen_break(edges: IssuerEdges, run: str, name: str, place: str, reason: str, *, dry_run: bool = False) -> Mended:
    """Take back the closing of breaks of a kind in a run, all or those at a place; raises as `close_break` does."""
    why, keys = given(reason), keys_of(run)
    closed = sorted(closed_breaks(edges.edges.store, keys))
    chosen = tuple(one for one in closed if _meant(one, name, place))
    if not chosen:
        raise NoSuchBreakError(run=run, name=name, place=place or "any place", state="closed break")
    return _record(edges, keys, "reopened", chosen, why, dry_run=dry_run)


def _meant(one: Break | Closed, name: str, place: str) -> bool:
    return one.name == name and place in ("", one.place, home(one.place))


def _record(
    edges: IssuerEdges,
    keys: RunKeys,
    what: Literal["closed", "reopened"],
    chosen: Sequence[Break | Closed],
    why: str,
    *,
    dry_run: bool,
) -> Mended:
    if dry_run:
        return Mended(tuple(chosen), None)
    for one in chosen:
        add_record(edges.edges.store, keys.closed, _closing(edges.edges, what, one, why))
    return Mended(tuple(chosen), rebuild_lasting(edges, str(keys.run)))


def _closing(outside: Edges, what: Literal["closed", "reopened"], one: Break | Closed, why: str) -> Closing:
    said = {"what": what, "name": one.name, "place": one.place, "rows": one.rows}
    return Closing(at=outside.now(), by=redact(outside.actor), reason=why, **said)
