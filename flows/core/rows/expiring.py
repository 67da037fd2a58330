"""Whose link ends soon: which of those cards can get a new one from the latest extract, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.rows.known import ATTEMPT, AWAITED, REFUSED
from schemas import ledger

RENEWED = "card.link.renewed"  # has a newer link, which ends later
ABSENT = "card.extract.absent"  # does not stand in the latest extract any more
UNFIT = "card.extract.refused"  # stands there, in a row that we refused
DYING = "card.expiration.before_link"  # the card ends first: a new link would be of no use

HAD = ["cuid", "last_4", "state", "expires_on"]
CARD = ["cuid", "last_4"]


class Window(NamedTuple):
    """The days on which a link must end to be made anew; one that ended before `today` is made anew as well."""

    today: date
    until: date


def expiring(attempts: Iterable[pl.DataFrame], extract: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return cuid, last_4, ends, row, why of every card with a link that ends in the window; why is null where due.

    `attempts`: frames with the columns HAD, oldest first; `extract`: row, cuid, last_4, expiration, fate of every row.
    """
    cards = _concerned(attempts, window)
    beside = cards.join(_rows(extract), on=CARD, how="left", maintain_order="left", validate="1:1")
    return beside.select(*CARD, "ends", "row", _why(window).alias("why")).sort("row", *CARD, nulls_last=True)


def _concerned(attempts: Iterable[pl.DataFrame], window: Window) -> pl.DataFrame:
    """Return cuid, last_4, state of the last attempt, ends: the day the card's last link ends, of cards concerned."""
    ends = pl.when(pl.col("state") == "linked").then("expires_on")
    every = pl.concat([pl.DataFrame(schema={name: ATTEMPT[name] for name in HAD}), *attempts])
    cards = every.group_by(CARD).agg(
        pl.col("state").last(),
        ends.max().alias("ends"),
        ends.is_between(window.today, window.until).any().alias("alive"),  # a link replaced long ago is no news
    )
    return cards.filter((pl.col("ends") <= window.until) | pl.col("alive"))


def _rows(extract: pl.DataFrame) -> pl.DataFrame:
    """Return one row a card: the one that was fit to be sent, where there is one."""
    fit = pl.col("fate").is_in([ledger.SUBMITTED, ledger.SUPPRESSED])
    named = extract.drop_nulls(CARD).select(*CARD, "row", "expiration", fit.alias("fit"))
    return named.sort("fit", "row", descending=[True, False]).unique(CARD, keep="first")


def _why(window: Window) -> pl.Expr:
    year, month = 2000 + pl.col("expiration").str.slice(0, 2).cast(pl.Int32), pl.col("expiration").str.slice(2, 2)
    last_day = pl.date(year, month.cast(pl.Int32), 1).dt.month_end()
    return (
        pl.when(pl.col("state") == "awaiting").then(pl.lit(AWAITED))
        .when(pl.col("ends") > window.until).then(pl.lit(RENEWED))
        .when(pl.col("state") == "error").then(pl.lit(REFUSED))
        .when(pl.col("row").is_null()).then(pl.lit(ABSENT))
        .when(~pl.col("fit")).then(pl.lit(UNFIT))
        .when((last_day <= pl.col("ends")) | (last_day < window.today)).then(pl.lit(DYING))
    )  # fmt: skip
