"""Tie a result row that no rule could place to the row that was sent, by hand; and take that back.

A link with the wrong last four digits goes, at worst, to a wrong cardholder: the one mistake that no later file shows.
So such a row needs the partner's word, and the record says that it was given.
"""

from __future__ import annotations

import polars as pl

from flows.core.errors import OperatorError
from flows.core.ports import Store
from flows.core.results.attribution import Attributed
from flows.core.results.results import ResultRows
from flows.steps.answers.ingest import examine
from flows.steps.answers.outcomes import Told
from flows.steps.edges import IssuerEdges
from flows.steps.mend.decide import Decided, decide, decision, find_result
from flows.steps.mend.reason import given
from flows.steps.runs import NoSuchRowError, UnknownRunError, keys_of, read_ledger, read_manifest
from schemas import breaks, ledger
from schemas.states import BROKEN

LOST = (breaks.UNATTRIBUTED_ERROR, breaks.UNKNOWN_CUID, breaks.FOREIGN_FILE, breaks.LAST4_MISMATCH)


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
    edges: IssuerEdges,
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
    why, found = given(reason), find_result(edges, result)
    rows, seen = examine(edges, found)
    told = _lost_row(rows, seen, position)
    last_4 = _waiting_row(edges.edges.store, *to)
    if not last_4_confirmed and told not in (None, last_4):
        raise LastFourError(result=rows.name, position=position, run=to[0], row=to[1])
    record = decision(edges, found, rows.digest, "attributed", why).model_copy(
        update={"position": position, "run": to[0], "row": to[1], "last_4_confirmed": last_4_confirmed}
    )
    return decide(edges, found, record, dry_run=dry_run)


def withdraw(edges: IssuerEdges, result: str, position: int, reason: str, *, dry_run: bool = False) -> Decided:
    """Take back what was said by hand of a row of a result file; the rules place it again, or it is a break again."""
    why, found = given(reason), find_result(edges, result)
    rows, _ = examine(edges, found)
    said = [one for one in found.decided if one.position == position and one.digest == rows.digest]
    if not said or said[-1].what != "attributed":
        raise NoSuchRowError(place=rows.name, rows=f"{position} attributed by hand")
    record = decision(edges, found, rows.digest, "withdrawn", why).model_copy(update={"position": position})
    return decide(edges, found, record, dry_run=dry_run)


def _lost_row(rows: ResultRows, seen: Attributed, position: int) -> str | None:
    """Return the last four digits a row of a result came with, where it has no place; else say why it needs none."""
    there = seen.outcomes.filter(position=position)
    if there.is_empty():
        raise NoSuchRowError(place=rows.name, rows=position)
    trouble = there["trouble"][0]
    if trouble not in LOST:
        raise RowSettledError(
            place=rows.name, row=position, state=f"is {there['state'][0]}, {trouble or 'with its place'}"
        )
    told: str | None = rows.rows.filter(position=position)["last_4"][0]
    return told


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
    answers = (one.outcomes.filter(row=row, run=run) for one in Told(store, keys).of([sent["chunk"][0]]))
    settled = next((one["state"][0] for one in answers if one.filter(pl.col("state") != BROKEN).height), None)
    if settled:
        raise RowSettledError(place=run, row=row, state=f"is {settled} already")
    return str(sent["last_4"][0])
