"""Attempts make one history: what became of a row, or of a card, after all of them, each counted once.

A later attempt counts, but a refusal takes no link away and no waiting: only what is linked or awaiting follows those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from flows.core.life.wanted import CANCELLED
from schemas import ledger
from schemas.states import AWAITING, ERROR, LINKED

REFUSED = "refused"  # by us
STATES = (LINKED, AWAITING, ERROR, REFUSED)
SETTLED = (LINKED, AWAITING)
_CARDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "card": pl.UInt64,
    "holder": pl.UInt64,
    "readable": pl.Boolean,  # the card's last digits are known
    "state": pl.Enum(STATES),
}
_SEEN = (LINKED, AWAITING, ERROR, ledger.REJECTED)


def after_all(own: Mapping[str, int], rows: pl.DataFrame, attempts: Sequence[pl.DataFrame]) -> dict[str, int]:
    """Return how many rows of a run are in each of STATES after all attempts.

    `own`: how many were after the run itself. `rows`: row, state (as `wanted.RUN_ROW`) of those that were sent again.
    `attempts`: of each resubmission, oldest first, origin (the row of this run) and state.
    """
    waits = pl.col("state").replace(CANCELLED, AWAITING)  # so the run's own balance counts what was cancelled
    before = Counter(_named(rows.with_columns(waits))["state"])
    frames = [rows.select("row", "state"), *(one.select(row="origin", state="state") for one in attempts)]
    ends = _last(_named(pl.concat(frames)), "row")
    idle = rows.filter(state=CANCELLED).join(ends, on="row", how="anti")
    now = Counter(ends["state"]) + Counter({AWAITING: idle.height})
    return {state: own.get(state, 0) - before[state] + now[state] for state in STATES}


class Cardholders:
    """Cards (cuid and last_4) over runs in the order of their commits, each by its last state, in 18 bytes."""

    def __init__(self) -> None:
        self._cards = pl.DataFrame(schema=_CARDS)

    def add(self, rows: Iterable[pl.DataFrame]) -> None:
        """Take the rows (`wanted.RUN_ROW`) of one more run."""
        fresh = [_marks(_named(frame).drop_nulls("cuid")) for frame in rows]
        same = [pl.col("holder").last(), pl.col("readable").last()]
        self._cards = _last(pl.concat([self._cards, *fresh]), "card", same)

    def count(self) -> dict[str, int]:
        """Return how many cards are in each of STATES.

        One refused before its number could be read is not counted where its cardholder has a link or waits for one.
        """
        holders = self._cards.filter(pl.col("state").is_in(SETTLED))["holder"].implode()
        found = Counter(self._cards.filter(pl.col("readable") | ~pl.col("holder").is_in(holders))["state"])
        return {state: found[state] for state in STATES}


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is no attempt: repeats, rows that were suppressed, chunks that were cancelled."""
    attempted = rows.filter(pl.col("state").is_in(_SEEN))
    return attempted.with_columns(pl.col("state").replace(ledger.REJECTED, REFUSED).cast(pl.Enum(STATES)))


def _last(rows: pl.DataFrame, by: str, more: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return the state that counts of each `by`, rows being in the order of the attempts."""
    state = pl.col("state")
    counts = pl.coalesce(state.filter(state.is_in(SETTLED)).last(), state.last())
    return rows.group_by(by).agg(*more, counts.alias("state"))


def _marks(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        pl.struct("cuid", "last_4").hash().alias("card"),
        pl.col("cuid").hash().alias("holder"),
        pl.col("last_4").is_not_null().alias("readable"),
        "state",
    )
