"""The links that end soon or have ended: which of them are renewed, and why the others are not.

Frames in, frames out. The cards, and what became of them, come from the book; the row of a card is
that of its newest attempt, or, in a full portfolio, that of the latest extract.
"""

from datetime import date

import polars as pl

from flows.book.book import Book
from flows.book.fold import Folded
from flows.book.standing import AWAITED as IS_AWAITED
from flows.book.standing import (
    EXPIRED,
    LEFT,
    NOT_SENT,
    ON_HOLD,
    TO_UPLOAD,
    UNKNOWN,
    UNSETTLED,
    USABLE,
)
from flows.book.standing import REFUSED as IS_REFUSED
from flows.runs.cards import (
    CARD,
    CARD_WITHOUT_TWIN,
    FINGERPRINTS,
    holder,
    is_among,
    last_day,
    numbered_twins,
)
from schemas import ledger
from schemas.ledger import AWAITING, ERROR, REJECTED
from schemas.reasons import (
    ABSENT,
    AWAITED,
    DELETED,
    DYING,
    EXCLUDED_SINCE,
    INELIGIBLE,
    NOT_ELIGIBLES,
    REFUSED,
    UNFIT,
)

# where a card with an ended link can stand, for a renewal to concern it; a placed one needs none
_CONCERNED = (
    *USABLE,
    EXPIRED,
    IS_AWAITED,
    ON_HOLD,
    TO_UPLOAD,
    UNKNOWN,
    UNSETTLED,
    IS_REFUSED,
    NOT_SENT,
)
# of an extract's ledger, to find the rows of cards in it
RECORD = ["row", "cuid", "last_4", "expiration", *FINGERPRINTS, "fate"]


def ending_links(book: Book, cards: pl.DataFrame, today: date, until: date) -> pl.DataFrame:
    """Return the cards whose last link has ended or ends by `until`, each in its newest issue.

    `cards`: all of the book's, as they stand `today`.
    Columns: those of CARD, cuid, expiration, `ends`, `why` it is left out, as far as the book says
    so (DELETED, ABSENT, AWAITED, EXCLUDED_SINCE, REFUSED), where it stands (`standing`), and its
    newest row in a run: `run`, `row`, `fit`, whether we sent it, and `eligible`, whether it is
    eligible. A card that has left is no news once its link has ended.
    """
    has_left = pl.col("standing") == LEFT.name
    is_concerned = pl.col("standing").cast(pl.String).is_in([state.name for state in _CONCERNED])
    is_concerned |= has_left & (pl.col("until") >= today)
    is_ending = (pl.col("until") <= until) & pl.col("current") & is_concerned
    chosen = cards.select(is_ending.fill_null(value=False)).to_series()
    cards = cards.filter(chosen)
    folded = Folded(book.attempts, book.folded.places.filter(chosen))
    newest = folded.attempt("row")
    is_not_eligible = (newest["state"] == REJECTED) & newest["reason"].is_in(NOT_ELIGIBLES)
    sent_as = folded.attempt("sent")["state"]
    closed = book.departed.filter("closed")
    columns = [*CARD, "cuid", "expiration", "run", "row", "fit", "eligible", "why", "standing"]
    return cards.with_columns(
        run=newest["run"],
        row=newest["row"],
        fit=(newest["state"] != REJECTED),
        eligible=~is_not_eligible.fill_null(value=False),
        why=pl.when(has_left & is_among(cards, closed, CARD_WITHOUT_TWIN))
        .then(pl.lit(DELETED))
        .when(has_left)
        .then(pl.lit(ABSENT))
        .when(sent_as == AWAITING)
        .then(pl.lit(AWAITED))
        .when(is_among(cards, book.excluded, CARD_WITHOUT_TWIN))
        .then(pl.lit(EXCLUDED_SINCE))
        .when(sent_as == ERROR)
        .then(pl.lit(REFUSED)),
    ).select(*columns, ends="until")


def in_extract(links: pl.DataFrame, records: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return the links with the rows that their cards have in an extract, null where it has none.

    `records`: RECORD of every row of the ledger of its `run`.
    """
    fit = pl.col("fate").is_in([ledger.SUBMITTED, ledger.SUPPRESSED])
    eligible = pl.col("fate") != ledger.INELIGIBLE
    named = records.with_columns(holder(records), fit=fit, eligible=eligible)
    named = named.join(links, on=CARD_WITHOUT_TWIN, how="semi", maintain_order="left")
    numbered = pl.concat(
        [
            numbered_twins(named.filter("fit")),
            named.filter(~pl.col("fit")).with_columns(twin=pl.lit(0, pl.UInt8)),
        ]
    )
    rows = numbered.select(*CARD, "row", "fit", "eligible", in_row="expiration")
    others = links.drop("run", "row", "fit", "eligible")
    joined = others.join(rows, on=CARD, how="left", maintain_order="left")
    # one row a card: one that was fit to be sent, and of the same issue, where there is one
    is_same_issue = pl.col("in_row") == pl.col("expiration")
    first = joined.sort("fit", is_same_issue, "row", descending=[True, True, False])
    once = first.unique(CARD, keep="first")
    expiration = pl.coalesce("in_row", "expiration").alias("expiration")
    run_of_row = pl.when(pl.col("row").is_not_null()).then(pl.lit(run)).alias("run")
    return once.with_columns(expiration, run_of_row).select(*links.columns)


def judged(links: pl.DataFrame, today: date, lacking: str) -> pl.DataFrame:
    """Return the links with `why` each is left out, null where it is renewed.

    `lacking`: why one is left out that has no row (`schemas.reasons`: ABSENT, TYPED_IN).
    """
    why = (
        pl.when(pl.col("why").is_not_null())
        .then("why")
        .when(pl.col("row").is_null())
        .then(pl.lit(lacking))
        .when((last_day() <= pl.col("ends")) | (last_day() < today))
        .then(pl.lit(DYING))  # whatever its row has
        .when(~pl.col("eligible"))
        .then(pl.lit(INELIGIBLE))
        .when(~pl.col("fit"))
        .then(pl.lit(UNFIT))
    )
    listed = links.with_columns(why=why)
    return listed.sort("run", "row", *CARD, nulls_last=True)
