"""Rows that name no cardholder: refused, and of nobody's card, so that no card says that they wait.

They wait for the issuer. In a portfolio only those of the newest extract do, which names everybody;
else those of the last two weeks, since no later extract can tell whether it has them right. An
operator can give them up, as cards are given up.
"""

from collections.abc import Iterable
from datetime import timedelta

import polars as pl

from flows.book.attempts import SENT
from flows.book.departures import WholeExtract
from schemas.ledger import REJECTED
from schemas.reasons import NOT_ELIGIBLES

WAIT = timedelta(days=14)


def is_nameless() -> pl.Expr:
    """Return which attempts are rows that name no cardholder and should."""
    is_not_eligible = pl.col("reason").is_in(NOT_ELIGIBLES).fill_null(value=False)
    return pl.col("holder").is_null() & (pl.col("state") == REJECTED) & ~is_not_eligible


def name_of_row() -> pl.Expr:
    """Return what a decision names such a row by, in place of a cardholder."""
    return pl.format("row {} of {}", "row", "run")


def waiting_turns(extracts: Iterable[WholeExtract]) -> frozenset[int]:
    """Return the turns of the extracts whose rows without a name wait for the issuer."""
    newest_first = sorted(extracts, key=lambda extract: (extract.day, extract.turn), reverse=True)
    turns = set[int]()
    for extract in newest_first:
        if extract.day <= newest_first[0].day - WAIT:
            break
        turns.add(extract.turn)
        if extract.full:
            break
    return frozenset(turns)


def waiting_rows(attempts: pl.DataFrame, turns: frozenset[int]) -> pl.DataFrame:
    """Return the rows (ATTEMPT) of these turns that name no cardholder, without those of which a
    row of a corrected extract was sent since.
    """
    rows = attempts.filter(is_nameless() & pl.col("turn").is_in(list(turns)))
    if rows.is_empty():
        return rows
    is_sent = pl.col("state").is_in(SENT) & pl.col("origin").is_not_null()
    later = attempts.filter(is_sent).select(turn="content", row="origin")
    return rows.join(later, on=["turn", "row"], how="anti")
