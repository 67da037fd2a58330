"""The cardholders without a link: unlinked.csv, as the book has them."""

import polars as pl

from flows.book.people import is_counted
from flows.book.standing import CANCELLED_CHUNK, EXPIRED, LOST, NOT_SENT, REFUSED
from flows.reports.lists import with_actions
from schemas import reasons
from schemas.actions import NOTHING

CARD = ["cuid", "last_4"]
# where a card got no link, by where it stands
STAGES = {
    NOT_SENT.name: "submit",  # refused by us
    REFUSED.name: "partner",  # sent, but in error
    LOST.name: "partner",
    CANCELLED_CHUNK.name: "outbox",  # its chunk was cancelled
    EXPIRED.name: "link",  # it had one, which ended
}
LINK = ["holder", "last_4", "twin"]
# links that end within a week or have ended: their card, where it stands, why a renewal leaves it
# out, null where it is renewed, and its newest row
ENDING = pl.Schema(
    {
        "holder": pl.String(),
        "last_4": pl.String(),
        "twin": pl.UInt8(),
        "cuid": pl.String(),
        "ends": pl.Date(),
        "standing": pl.String(),
        "why": pl.String(),
        "run": pl.String(),
        "extract": pl.String(),  # of that row, where it is not stored any more
    }
)
NONE_ENDING = pl.DataFrame(schema=ENDING)
# refused or never sent: of no use any more once the card itself has expired
_UNSENT = (REFUSED.name, LOST.name, CANCELLED_CHUNK.name)
_REASONS = {CANCELLED_CHUNK.name: reasons.CANCELLED_CHUNK, EXPIRED.name: reasons.LINK_ENDED}


def unlinked(cards: pl.DataFrame, ending: pl.DataFrame = NONE_ENDING) -> pl.DataFrame:
    """Return the cards that have no link and await none: one line each, most attempts first.

    Columns: cuid, last_4, attempts, sent, run, stage, reason, since, action. `cards`: as
    `flows.book.standing.standing` returns them; run, stage, reason and `since` are those of the
    attempt that decides. `ending`: links that end or have ended (ENDING), for the reason of those
    that ended.
    """
    lines = without_link(cards, ending).select(
        *CARD,
        pl.col("tries").alias("attempts"),
        pl.col("sendings").alias("sent"),
        "run",
        "stage",
        "reason",
        "since",
    )
    return with_actions(lines).sort("attempts", "cuid", "last_4", descending=[True, False, False])


def lacking_cards(cards: pl.DataFrame) -> pl.DataFrame:
    """Return the cards of `unlinked` as they are, each in its newest issue."""
    is_lacking = cards.select(pl.col("standing").cast(pl.String).is_in(list(STAGES))).to_series()
    return cards.filter(is_counted(cards) & is_lacking)


def without_link(cards: pl.DataFrame, ending: pl.DataFrame = NONE_ENDING) -> pl.DataFrame:
    """Return the cards of `unlinked` with all of their columns, their `stage` and their `reason`.

    Each once, in its newest issue.
    """
    standing = pl.col("standing").cast(pl.String)
    lacking = lacking_cards(cards)
    own_reason = standing.replace_strict(_REASONS, default=None, return_dtype=pl.String)
    is_ended = standing == EXPIRED.name
    could_act = (pl.col("action") != NOTHING).fill_null(value=True)
    is_over = standing.is_in(_UNSENT) & (pl.col("who") == "") & could_act
    why = ending.select(*LINK, left_out="why").unique(LINK)
    judged = lacking.join(why, on=LINK, how="left", nulls_equal=True, maintain_order="left")
    left_out = pl.when(is_ended).then("left_out").when(is_over).then(pl.lit(reasons.DYING))
    return judged.with_columns(
        standing.replace_strict(STAGES).alias("stage"),
        pl.coalesce(left_out, own_reason, "reason").alias("reason"),
    ).drop("left_out")
