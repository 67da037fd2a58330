"""Cardholders without a link after all attempts: sent or refused in some run, linked in none, waiting in none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from flows.core.report.tables import action_of
from flows.core.results.masking import spreadsheet_safe
from schemas.states import ERROR

CARD = ["cuid", "last_4"]
TRIED = {
    "cuid": pl.String(),
    "last_4": pl.String(),
    "run": pl.String(),
    "stage": pl.String(),  # submit: refused by us; partner: sent, and in error
    "reason": pl.String(),
}


def settled(rows: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return 64-bit marks of the cards (`card`) and cardholders (`holder`) that have a link or wait for one.

    `rows`: frames of cuid, last_4, state. Marks, since a year of nights has more cards than memory for their texts.
    """
    marks = [_marks(frame.filter(pl.col("state") != ERROR)) for frame in rows]
    return pl.concat([pl.DataFrame(schema={"card": pl.UInt64, "holder": pl.UInt64}), *marks]).unique()


def unlinked(tried: Iterable[pl.DataFrame], done: pl.DataFrame) -> pl.DataFrame:
    """Return cuid, last_4, attempts, sent, run, stage, reason, action of cards that `settled` does not know.

    `tried`: frames of TRIED, runs in order; the last attempt gives run, stage and reason. A row refused before its
    card number could be read counts as linked where its cardholder is.
    """
    frames = [_without(frame, done) for frame in tried]
    every = pl.concat([pl.DataFrame(schema=TRIED), *frames])
    last = [pl.col(name).last() for name in ("run", "stage", "reason")]
    counted = every.group_by(CARD, maintain_order=True).agg(
        pl.len().alias("attempts"), (pl.col("stage") == "partner").sum().alias("sent"), *last
    )
    named = counted.join(action_of(counted["reason"]), on="reason", how="left", maintain_order="left")
    return named.sort("attempts", "cuid", "last_4", descending=[True, False, False])


def listed(found: pl.DataFrame) -> pl.DataFrame:
    """Return unlinked.csv (`schemas.reports.Unlinked`), safe in a spreadsheet."""
    return found.with_columns(spreadsheet_safe("cuid"))


def _without(tried: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    known = tried.drop_nulls("cuid")
    marks = _marks(known)
    card = marks["card"].is_in(done["card"].implode())
    holder = marks["holder"].is_in(done["holder"].implode()) & known["last_4"].is_null()
    return known.filter(~(card | holder)).select(*TRIED)


def _marks(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.struct(CARD).hash().alias("card"), pl.col("cuid").hash().alias("holder"))


def attempts_of(run: str, rows: Iterable[pl.DataFrame], records: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the attempts of a run that gave no link: errors among its reconciled rows, refusals among its ledger."""
    for frame in rows:
        failed = frame.filter(state=ERROR)
        yield failed.select(*CARD, *_of(run, "partner"), pl.col("reasons").list.first().alias("reason"))
    for frame in records:
        refused = frame.filter(fate="rejected")
        code = pl.col("reasons").list.first().str.split("|").list.last().alias("reason")
        yield refused.select(*CARD, *_of(run, "submit"), code)


def _of(run: str, stage: str) -> list[pl.Expr]:
    return [pl.lit(run, pl.String).alias("run"), pl.lit(stage, pl.String).alias("stage")]
