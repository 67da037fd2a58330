"""Rows that an extract marks as deleted (`[deleted]`): which card each of them closes.

They are not sent, and the book has their cards as left (`flows/book/departures.py`). Of such a row
the cuid and the last four digits are kept, each as far as it keeps the rules of its column.
"""

import polars as pl

from schemas.portal import CUID, PAN
from schemas.reasons import DELETED, UNREADABLE_DELETION


def as_deletions(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return rows marked as deleted, with the cuid and last_4 that can be read, and `reasons`.

    `rows` with their identity; `verdicts` on them, of which those on cuid and card number count.
    One without either closes nothing, and its reason says so.
    """
    broken = verdicts.filter(severity="reject")
    has_cuid = ~pl.col("cuid_made") & ~_is_in(broken.filter(column=CUID))
    has_number = ~_is_in(broken.filter(column=PAN))
    readable = rows.with_columns(
        pl.when(has_cuid).then(CUID).alias(CUID),
        pl.when(has_number).then("last_4").alias("last_4"),
        expiration=pl.lit(None, pl.String),
        cuid_made=pl.lit(value=False),
    )
    is_card = pl.all_horizontal(pl.col(CUID, "last_4").is_not_null())
    code = pl.when(is_card).then(pl.lit(f"|{DELETED}")).otherwise(pl.lit(f"|{UNREADABLE_DELETION}"))
    return readable.with_columns(reasons=pl.concat_list(code))


def _is_in(verdicts: pl.DataFrame) -> pl.Expr:
    return pl.col("row").is_in(verdicts["row"].unique().implode())
