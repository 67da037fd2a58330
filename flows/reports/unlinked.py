"""The cardholders without a link: unlinked.csv, from the attempts of all runs that gave none."""

from collections.abc import Iterable

import polars as pl

from flows.reports.lists import with_actions
from flows.results.row_states import CANCELLED, CARD_HASHES
from schemas.ledger import ERROR, REJECTED
from schemas.reasons import CANCELLED_CHUNK

CARD = ["cuid", "last_4"]
PARTNER = "partner"
OUTBOX = "outbox"
TRIED = {
    "cuid": pl.String(),
    "last_4": pl.String(),
    "run": pl.String(),
    # submit: refused by us; partner: sent, but in error; OUTBOX: its chunk was cancelled
    "stage": pl.String(),
    "reason": pl.String(),
}
_STAGES = {ERROR: PARTNER, REJECTED: "submit", CANCELLED: OUTBOX}


def failed_attempts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what gave no link (TRIED) of rows of a run: cuid, last_4, state, reasons, run."""
    code = pl.col("reasons").list.first().str.split("|").list.last()
    cancelled = pl.col("state") == CANCELLED
    stage = pl.col("state").replace_strict(_STAGES, default=None, return_dtype=pl.String)
    return rows.select(
        *CARD,
        "run",
        stage.alias("stage"),
        pl.when(cancelled).then(pl.lit(CANCELLED_CHUNK)).otherwise(code).alias("reason"),
    ).drop_nulls("stage")


def unlinked(tried: Iterable[pl.DataFrame], settled: pl.DataFrame) -> pl.DataFrame:
    """Return the cards that no attempt linked: one line each, most attempts first.

    Columns: cuid, last_4, attempts, sent, run, stage, reason, action.
    `tried`: frames of TRIED, runs in order; the last attempt gives run, stage and reason, a
    cancelled chunk only where there is no other.
    `settled`: the cards that have a link or wait for one (`Cardholders.settled`). A row refused
    before its card number could be read counts as linked where its cardholder is.
    """
    frames = [_without(frame, settled) for frame in tried]
    attempts = pl.concat([pl.DataFrame(schema=TRIED), *frames])
    was_tried = pl.col("stage") != OUTBOX
    counted = (
        attempts.sort(was_tried, maintain_order=True)
        .group_by(CARD, maintain_order=True)
        .agg(
            was_tried.sum().alias("attempts"),
            (pl.col("stage") == PARTNER).sum().alias("sent"),
            pl.col("run", "stage", "reason").last(),
        )
    )
    return with_actions(counted).sort("attempts", "cuid", "last_4", descending=[True, False, False])


def _without(tried: pl.DataFrame, settled: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts for cards that are not settled."""
    known = tried.drop_nulls("cuid")
    hashes = known.select(**CARD_HASHES)
    card_settled = hashes["card"].is_in(settled["card"].implode())
    unread = known["last_4"].is_null()
    holder_settled = hashes["holder"].is_in(settled["holder"].implode()) & unread
    return known.filter(~(card_settled | holder_settled)).select(*TRIED)
