"""The changes that a delivery of links consists of, as frames: what is new, replaced or withdrawn.

Put here what compares links; `delivery.py` reads and writes them.
"""

from collections.abc import Iterable
from datetime import date

import polars as pl

from schemas.settings import CHANGES

ISSUE = ["cuid", "last_4", "expiration"]  # of a card (`flows.runs.cards`)
CARD = ["cuid", "last_4"]
LINK = ["cuid", "url"]
WITHDRAWN = "withdrawn"
CHANGED = pl.Schema(  # links.parquet: the rows of links.csv
    {
        **dict.fromkeys((*ISSUE, "url", *CHANGES), pl.String()),
        "expires_on": pl.Date(),
        "until": pl.Date(),
    }
)


def replayed(changes: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the last change of each link in these deliveries, which come in order."""
    ordered = pl.concat([pl.DataFrame(schema=CHANGED), *changes])
    return ordered.unique(LINK, keep="last", maintain_order=True)


def delta(
    alive: pl.DataFrame,
    delivered: pl.DataFrame,
    pending: pl.DataFrame,
    reported: pl.DataFrame,
    stopped: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return what turns `delivered`, with or without `pending`, into `alive` (CHANGED).

    Links withdrawn come first, then new ones. `reported`: every card that was sent (ISSUE).
    `stopped`: the cards that need no link any more (CARD), and their `standing`, which says why.
    """
    takes_back = pl.col("change") == WITHDRAWN
    perhaps_delivered = pl.concat([delivered, pending.filter(~takes_back)]).unique(
        LINK, keep="first"
    )
    gone = perhaps_delivered.join(alive, on=LINK, how="anti")
    surely_delivered = delivered.join(pending.filter(takes_back), on=LINK, how="anti")
    fresh = alive.join(surely_delivered, on=LINK, how="anti")
    both = [_withdrawn(gone, alive, reported, stopped, today), _added(fresh, gone)]
    return pl.concat([rows.select(*CHANGED).sort("cuid", "last_4", "url") for rows in both])


def _withdrawn(
    gone: pl.DataFrame,
    alive: pl.DataFrame,
    reported: pl.DataFrame,
    stopped: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return the links that may no longer be used, and why."""
    marked = _marked(_marked(gone, alive, "alive"), reported, "reported")
    of_card = stopped.select(*CARD, pl.col("standing").cast(pl.String)).unique(CARD)
    marked = marked.join(of_card, on=CARD, how="left", maintain_order="left")
    why = (
        pl.when("alive").then(pl.lit("replaced"))
        .when(pl.col("until") < today).then(pl.lit("expired"))
        .when(pl.col("standing").is_not_null()).then("standing")
        .when("reported").then(pl.lit("contradicted"))
        .otherwise(pl.lit("no longer reported"))
    )  # fmt: skip
    return marked.with_columns(change=pl.lit(WITHDRAWN), why=why)


def _added(fresh: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """Return the links that may be used from now on, and whether they replace another."""
    replaces = pl.when("replaces")
    return _marked(fresh, gone, "replaces").with_columns(
        change=replaces.then(pl.lit("replaced")).otherwise(pl.lit("new")),
        why=replaces.then(pl.lit("replaces a link withdrawn")).otherwise(pl.lit("no other link")),
    )


def _marked(rows: pl.DataFrame, others: pl.DataFrame, name: str) -> pl.DataFrame:
    """Add whether each row's issue of a card is among the others."""
    issues = others.select(ISSUE).unique().with_columns(pl.lit(value=True).alias(name))
    return rows.join(issues, on=ISSUE, how="left").with_columns(pl.col(name).fill_null(value=False))
