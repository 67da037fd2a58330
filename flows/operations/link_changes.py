"""The changes that a delivery of links consists of, as frames: what is new, replaced or withdrawn.

Put here what compares links; `delivery.py` reads and writes them.
"""

from collections.abc import Iterable
from datetime import date

import polars as pl

from schemas.ledger import LINKED
from schemas.settings import CHANGES

CARD = ["cuid", "last_4", "expiration"]
LINK = ["cuid", "url"]
WITHDRAWN = "withdrawn"
CHANGED = pl.Schema(  # links.parquet: the rows of links.csv
    {
        **dict.fromkeys((*CARD, "url", *CHANGES), pl.String()),
        "expires_on": pl.Date(),
        "until": pl.Date(),
    }
)


def replayed(changes: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the last change of each link in these deliveries, which come in order."""
    ordered = pl.concat([pl.DataFrame(schema=CHANGED), *changes])
    return ordered.unique(LINK, keep="last", maintain_order=True)


def living(reported: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the links that can be opened, one a card.

    It is the one that lasts longest, of equal ones the latest run's.
    """
    usable = reported.filter((pl.col("state") == LINKED) & (pl.col("until") >= today))
    ordered = usable.sort("until", "turn", "url", descending=True)
    one_a_card = ordered.unique(CARD, keep="first", maintain_order=True)
    return one_a_card.unique(LINK, keep="first", maintain_order=True)


def delta(
    alive: pl.DataFrame,
    held: pl.DataFrame,
    pending: pl.DataFrame,
    reported: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return what turns `held`, with or without `pending`, into `alive` (CHANGED).

    Links withdrawn come first, then new ones. `reported`: the rows of all reports that still
    matter.
    """
    takes_back = pl.col("change") == WITHDRAWN
    perhaps_held = pl.concat([held, pending.filter(~takes_back)]).unique(LINK, keep="first")
    gone = perhaps_held.join(alive, on=LINK, how="anti")
    surely_held = held.join(pending.filter(takes_back), on=LINK, how="anti")
    fresh = alive.join(surely_held, on=LINK, how="anti")
    both = [_withdrawn(gone, alive, reported, today), _added(fresh, gone)]
    return pl.concat([rows.select(*CHANGED).sort("cuid", "last_4", "url") for rows in both])


def _withdrawn(
    gone: pl.DataFrame, alive: pl.DataFrame, reported: pl.DataFrame, today: date
) -> pl.DataFrame:
    """Return the links that may no longer be used, and why."""
    marked = _marked(_marked(gone, alive, "alive"), reported, "reported")
    why = (
        pl.when("alive").then(pl.lit("replaced"))
        .when(pl.col("until") < today).then(pl.lit("expired"))
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
    """Add whether the card of each row is among the others."""
    cards = others.select(CARD).unique().with_columns(pl.lit(value=True).alias(name))
    return rows.join(cards, on=CARD, how="left").with_columns(pl.col(name).fill_null(value=False))
