"""Close breaks of a run that nothing more can be done about, with a reason; and open them again.

What is closed stays in the report. A break that grows beyond what was closed is open again by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from flows.core.errors import OperatorError
from flows.core.names import RunKeys
from flows.core.redaction import redact
from flows.core.results.closed import Closed, home, sort_out
from flows.steps.answers.report import RunReport, find_breaks, rebuild_lasting
from flows.steps.edges import Edges, IssuerEdges
from flows.steps.mend.close import closed_breaks
from flows.steps.mend.reason import given
from flows.steps.records import add_record
from flows.steps.runs import keys_of
from schemas.breaks import Break
from schemas.mended import Closing


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
