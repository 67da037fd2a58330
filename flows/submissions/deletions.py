"""Rows that an extract marks as deleted, or that `[status]` leaves out: which card
each of them closes or passes over.

They are not sent, and the book has the cards of the former as left, and those of the latter as left
out (`flows/book/departures.py`). Of such a row the cuid and the last four digits are kept, each as
far as it keeps the rules of its column.
"""

from datetime import date

import polars as pl

from flows.submissions.validate import keeps_rules
from schemas.issuer import RuleSettings
from schemas.portal import CUID, PAN
from schemas.reasons import DELETED, EXCLUDED, UNREADABLE_DELETION


def as_deletions(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return rows marked as deleted, with the cuid and last_4 that can be read, and `reasons`.

    `rows` with their identity; `verdicts` on them, of which those on cuid and card number count.
    One without either closes nothing, and its reason says so.
    """
    broken = verdicts.filter(severity="reject")
    has_cuid = ~_is_in(broken.filter(column=CUID))
    has_number = ~_is_in(broken.filter(column=PAN))
    readable = _readable(rows, has_cuid, has_number)
    is_card = pl.all_horizontal(pl.col(CUID, "last_4").is_not_null())
    code = pl.when(is_card).then(pl.lit(f"|{DELETED}")).otherwise(pl.lit(f"|{UNREADABLE_DELETION}"))
    return readable.with_columns(reasons=pl.concat_list(code))


def as_left_out(rows: pl.DataFrame, as_of: date, rules: RuleSettings) -> pl.DataFrame:
    """Return rows that `[status]` leaves out, as far as they can be read, and `reasons`.

    `rows` with their identity. They may be most of an extract: no other column is looked at.
    """
    has_cuid = keeps_rules(CUID, rows, as_of, rules)
    has_number = keeps_rules(PAN, rows, as_of, rules)
    readable = _readable(rows, pl.lit(has_cuid), pl.lit(has_number))
    return readable.with_columns(reasons=pl.concat_list(pl.lit(f"|{EXCLUDED}")))


def _readable(rows: pl.DataFrame, has_cuid: pl.Expr, has_number: pl.Expr) -> pl.DataFrame:
    """Return rows with the cuid, where it is the issuer's, and the last_4 that can be read."""
    return rows.with_columns(
        pl.when(~pl.col("cuid_made") & has_cuid).then(CUID).alias(CUID),
        pl.when(has_number).then("last_4").alias("last_4"),
        expiration=pl.lit(None, pl.String),
        cuid_made=pl.lit(value=False),
    )


def _is_in(verdicts: pl.DataFrame) -> pl.Expr:
    return pl.col("row").is_in(verdicts["row"].unique().implode())
