"""Operators' decisions about the results of a run, read from their records.

A decision attributes rows of a result file to sent rows, or closes a break with its rows.

A decision names its rows: reconciling applies it to exactly the rows that the break had when it was
closed, so a later row of the same kind is an open break of its own. Reopening takes the effect
back.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from flows.runs.adapters import Adapters
from flows.runs.closings import ROWS, place_of
from flows.runs.decisions import RESULT_ROW, decisions_by_subject
from schemas.breaks import DECISIONS, PLACELESS, Break
from schemas.records import Attribution, Closing

Attributions = dict[str, tuple[Attribution, ...]]  # by file (`file_id`)
SHOWN = 5  # row numbers in the place of a break; with no more rows than that, it has them all

DECIDED = {
    "kind": pl.String,
    "row": pl.UInt32,
    "decision": pl.String,
    "note": pl.String,
    "closing": pl.UInt32,
}


class DecidedRow(NamedTuple):
    """One row that a closing covers (DECIDED); `closing` is the number of the closing."""

    kind: str
    row: int
    decision: str
    note: str
    closing: int


def sort_breaks(
    breaks: Iterable[Break], closings: Sequence[Closing]
) -> tuple[tuple[Break, ...], tuple[tuple[Break, Closing], ...]]:
    """Return the open breaks and the notices; and the closed breaks, each with its closing.

    A notice is never closed.
    """
    still_open = list[Break]()
    closed = list[tuple[Break, Closing]]()
    for break_ in dict.fromkeys(breaks):
        closing = closing_of(break_, closings)
        if closing is None or break_.notice:
            still_open.append(break_)
        else:
            closed.append((break_, closing))
    return tuple(still_open), tuple(closed)


def closing_of(break_: Break, closings: Iterable[Closing]) -> Closing | None:
    """Return the closing that covers a break; None where none does."""
    return next((closing for closing in closings if covers(closing, break_)), None)


def covers(closing: Closing, break_: Break) -> bool:
    """Return whether a break is of the closed kind and place, with no row added since.

    A closing that names its rows covers just these (`decided_rows`), not what is found besides
    them.
    """
    same_kind = break_.name == closing.name
    same_place = place_of(break_.place) == place_of(closing.place)
    if not same_kind or not same_place or break_.rows > closing.rows:
        return False
    if closing.covers and break_.name not in PLACELESS:
        return False
    return closing.rows > SHOWN or _rows_in(break_.place) <= _rows_in(closing.place)


def _rows_in(place: str) -> frozenset[str]:
    """Return the row numbers that the place of a break shows."""
    return frozenset(place.partition(ROWS)[2].split(", ")) - {""}


def decided_rows(closings: Sequence[Closing]) -> pl.DataFrame:
    """Return the rows that closings cover (DECIDED).

    The later one's where two of a kind have a row in common.
    """
    rows = list[DecidedRow]()
    for number, closing in enumerate(closings):
        if closing.covers:
            meaning = DECISIONS[closing.decision].meaning
            note = f"{meaning} ({closing.by}: {closing.reason})"
            rows += [
                DecidedRow(closing.name, row, closing.decision, note, number)
                for row in closing.covers
            ]
    return pl.DataFrame(rows, DECIDED, orient="row").unique(
        ["kind", "row"], keep="last", maintain_order=True
    )


def attributions(adapters: Adapters, issuer: str) -> Attributions:
    """Return what was decided about each result file (`file_id`), the oldest first."""
    return decisions_by_subject(adapters, issuer, RESULT_ROW, Attribution)
