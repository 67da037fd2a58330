"""The changes that a delivery of links consists of, as frames: what is new, replaced or withdrawn.

Put here what compares links; `delivery.py` reads and writes them.
"""

from collections.abc import Sequence
from datetime import date

import polars as pl

from flows.book.deliveries import WITHDRAWN
from flows.book.standing import LEFT
from schemas.settings import CHANGES

ISSUE = ["cuid", "last_4", "expiration"]  # of a card (`flows.runs.cards`)
CARD = ["cuid", "last_4"]
LINK = ["cuid", "link"]  # `link`: the digest of its URL
CHANGED = pl.Schema(  # links.parquet: the rows of links.csv
    {
        **dict.fromkeys((*ISSUE, "url", *CHANGES), pl.String()),
        "expires_on": pl.Date(),
        "until": pl.Date(),
        "run": pl.String(),  # "" where its fields were typed in
        "row": pl.UInt32(),
    }
)
FORGOTTEN = "forgotten"  # why the links of erased cardholders are withdrawn
ENDED = "receiver retired"  # why all links of a receiver are withdrawn
# why links are withdrawn of which nobody decided that they are: few of them are usual
UNDECIDED = [LEFT.name, "contradicted", "no longer reported"]
# a withdrawn link is in `delivery`, any other has its url
DELTA = pl.Schema({**CHANGED, "link": pl.Int64(), "delivery": pl.UInt32()})


def replayed(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the last change of each link in these deliveries, which come in order."""
    return changes.unique(LINK, keep="last", maintain_order=True)


def perhaps_delivered(delivered: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """Return the links that the receiving side may have, each once."""
    is_added = pl.col("change") != WITHDRAWN
    return pl.concat([delivered, pending.filter(is_added)]).unique(LINK, keep="first")


def undecided_withdrawals(changes: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """Return the links that changes withdraw though nobody decided it, and no delivery has yet."""
    withdrawn = changes.filter(pl.col("why").is_in(UNDECIDED), change=WITHDRAWN)
    return withdrawn.join(pending.filter(change=WITHDRAWN), on=LINK, how="anti")


def surely_delivered(delivered: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """Return the delivered links that no unconfirmed change takes back."""
    return delivered.join(pending.filter(change=WITHDRAWN), on=LINK, how="anti")


def delta(
    alive: pl.DataFrame,
    delivered: pl.DataFrame,
    pending: pl.DataFrame,
    reported: pl.DataFrame,
    stopped: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return what turns `delivered`, with or without `pending`, into `alive` (DELTA).

    Links withdrawn come first, then new ones. `delivered`, `pending`: changes of deliveries
    (`flows.book.deliveries.CHANGE`). `reported`: every card that was sent (ISSUE). `stopped`: the
    cards that need no link any more (CARD), and their `standing`, which says why.
    """
    gone = perhaps_delivered(delivered, pending).join(alive, on=LINK, how="anti")
    fresh = alive.join(surely_delivered(delivered, pending), on=LINK, how="anti")
    both = [_withdrawn(gone, fresh, alive, reported, stopped, today), _added(fresh, gone)]
    return pl.concat([pl.DataFrame(schema=DELTA), *both], how="diagonal").select(*DELTA)


def _withdrawn(
    gone: pl.DataFrame,
    fresh: pl.DataFrame,
    alive: pl.DataFrame,
    reported: pl.DataFrame,
    stopped: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return the links that may no longer be used, and why.

    A card that was issued again keeps its last four digits, and may have another expiry.
    """
    marked = _marked(_marked(gone, alive, "alive"), reported, "reported")
    marked = _marked(marked, fresh, "reissued", CARD)
    of_card = stopped.select(*CARD, pl.col("standing").cast(pl.String)).unique(CARD)
    marked = marked.join(of_card, on=CARD, how="left", maintain_order="left")
    why = (
        pl.when(pl.any_horizontal("alive", "reissued")).then(pl.lit("replaced"))
        .when(pl.col("until") < today).then(pl.lit("expired"))
        .when(pl.col("standing").is_not_null()).then("standing")
        .when("reported").then(pl.lit("contradicted"))
        .otherwise(pl.lit("no longer reported"))
    )  # fmt: skip
    return marked.with_columns(change=pl.lit(WITHDRAWN), why=why)


def _added(fresh: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """Return the links that may be used from now on, and whether they replace another."""
    replaces = pl.when("replaces")
    return _marked(fresh, gone, "replaces", CARD).with_columns(
        change=replaces.then(pl.lit("replaced")).otherwise(pl.lit("new")),
        why=replaces.then(pl.lit("replaces a link withdrawn")).otherwise(pl.lit("no other link")),
    )


def _marked(
    rows: pl.DataFrame, others: pl.DataFrame, name: str, look: Sequence[str] = ISSUE
) -> pl.DataFrame:
    """Add whether each row's issue of a card, or its card, is among the others."""
    looked_for = others.select(look).join(rows, on=look, how="semi")  # few of a million
    known = looked_for.unique().with_columns(pl.lit(value=True).alias(name))
    return rows.join(known, on=look, how="left").with_columns(pl.col(name).fill_null(value=False))
