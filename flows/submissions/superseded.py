"""Rows of a card that a later row of the same extract leaves out or deletes: the later row counts.

A delta adds a card and deletes it on the same day. Both rows are of one issue of a card: they have
its number, and where both have them, the same cuid and the same expiration.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final

import polars as pl

from flows.extracts.mapping import MappedRows, Mapping
from flows.extracts.reader import Block
from schemas import portal
from schemas.portal import CUID, MONTH, PAN, YEAR
from schemas.status import DELETE, LEAVE_OUT, SEND

_ISSUE: Final = (CUID, PAN, YEAR, MONTH)
_NONE: Final = pl.DataFrame(
    schema={
        "card": pl.UInt64,
        "row": pl.UInt32,
        "decision": pl.UInt8,
        "holder": pl.UInt64,
        "ends": pl.String,
    }
)


class EndedCards:
    """The rows of an extract that leave out or delete their card, of each 30 bytes."""

    def __init__(self, endings: pl.DataFrame = _NONE) -> None:
        self._endings = endings

    @classmethod
    def of(cls, blocks: Iterable[Block], mapping: Mapping) -> "EndedCards":
        """Read an extract for the rows that leave out or delete their card."""
        decision = mapping.decisions.decision
        if decision is None:
            return cls()
        columns = mapping.only(_ISSUE).columns
        ended = decision.is_in([LEAVE_OUT, DELETE])
        frames = chain.from_iterable((block.rows, block.alone) for block in blocks)
        endings = [
            _issues(rows.filter(ended).select("row", decision, *columns))
            for rows in frames
            if rows is not None and not rows.is_empty()
        ]
        return cls(pl.concat([_NONE, *endings]))

    def decide(self, mapped: MappedRows) -> MappedRows:
        """Return rows of which those that are superseded have what the later row decides."""
        if self._endings.is_empty() or mapped.sent.is_empty():
            return mapped
        rows = mapped.sent.select("row", pl.lit(SEND, pl.UInt8).alias("decision"), *_ISSUE)
        later = _issues(rows).join(self._endings, on="card", suffix="_later")
        superseding = later.filter(
            pl.col("row_later") > pl.col("row"),
            _agree("holder", "holder_later"),
            _agree("ends", "ends_later"),
        )
        if superseding.is_empty():
            return mapped
        last = superseding.sort("row_later").unique("row", keep="last")
        decided = mapped.sent.join(last.select("row", "decision_later"), on="row", how="left")
        is_left_out = pl.col("decision_later") == LEAVE_OUT
        is_deleted = pl.col("decision_later") == DELETE
        return mapped._replace(
            sent=mapped.sent.filter(decided["decision_later"].is_null()),
            left_out=pl.concat([mapped.left_out, _only_card(decided.filter(is_left_out))]),
            deleted=pl.concat([mapped.deleted, _only_card(decided.filter(is_deleted))]),
        )


def _issues(rows: pl.DataFrame) -> pl.DataFrame:
    """Return which issue of a card each row is of; rows without a card number are left out."""
    card = pl.col(PAN).str.replace_all("[^0-9]", "")
    holder = pl.col(CUID).str.strip_chars()
    year = pl.col(YEAR).str.strip_chars().str.tail(2)
    month = pl.col(MONTH).str.strip_chars().str.zfill(2)
    return rows.filter(card.str.len_chars() > 0).select(
        card.hash().alias("card"),
        "row",
        "decision",
        holder=pl.when(holder != "").then(holder.hash()),
        ends=year + month,
    )


def _agree(own: str, later: str) -> pl.Expr:
    """Return whether the values of two columns are equal, as far as both are there."""
    return (pl.col(own) == pl.col(later)).fill_null(value=True)


def _only_card(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as those are that are left out or deleted: only with cuid and card number."""
    nothing = pl.lit(None, pl.String)
    columns = (
        pl.col(name) if name in (CUID, PAN) else nothing.alias(name) for name in portal.columns()
    )
    return rows.select("row", "line", *columns)
