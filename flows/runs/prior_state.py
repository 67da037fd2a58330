"""What earlier runs know of an issuer's cards: which rows of a full-portfolio extract need not be sent.

About 35 bytes a card, so that a portfolio of ten million cards fits in memory during the pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date, timedelta
from typing import NamedTuple
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas import portal
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.settings import Change, Portfolio

STANDING = "card.link.standing"  # has a link that does not expire soon
AWAITED = "card.link.awaiting"  # sent, and not answered yet
REFUSED = "card.link.refused"  # refused by the partner and unchanged since

STATES = (LINKED, ERROR, AWAITING)
ATTEMPT: dict[str, pl.DataType | type[pl.DataType]] = {
    "cuid": pl.String,
    "last_4": pl.String,
    "expiration": pl.String,  # YYMM
    "state": pl.Enum(STATES),
    "expires_on": pl.Date,  # of the link, where there is one
    "origin": pl.UInt32,  # the row that the attempt repeats, perhaps with corrections
    "name_check": pl.UInt32,
    "address_check": pl.UInt32,
}
NAME = (portal.FIRST_NAME, portal.LAST_NAME, portal.NAME_ON_CARD)
ADDRESS = (portal.ADDRESS1, portal.ADDRESS2, portal.CITY, portal.SUBNATIONAL, portal.COUNTRY, portal.POSTAL_CODE)
EXPIRATIONS = 4  # cards of one cuid with equal last digits that are distinguished by their expiration


def check_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` (the 20 columns) with name_check and address_check: CRC-32, the same in every version."""
    return rows.with_columns(_crc(rows, NAME).alias("name_check"), _crc(rows, ADDRESS).alias("address_check"))


def _crc(rows: pl.DataFrame, names: tuple[str, ...]) -> pl.Series:
    texts = rows.select(pl.concat_str([pl.col(name).fill_null("") for name in names], separator="\x1f")).to_series()
    return pl.Series(values=np.fromiter(map(crc32, texts.cast(pl.Binary)), np.uint32, rows.height))


class ResendPolicy(NamedTuple):
    """What decides whether a known card is sent again: the settings, and the business date."""

    portfolio: Portfolio
    as_of: date


class PriorState:
    """The last attempt of every card; `attempts`: frames of ATTEMPT, oldest first.

    `newest`: the business date of the latest extract; what differs in an older one is not a change.
    """

    def __init__(self, attempts: Iterable[pl.DataFrame], newest: date = date.min) -> None:
        self._newest = newest
        table = pl.concat([_compact(pl.DataFrame(schema=ATTEMPT)), *map(_compact, attempts)])
        cards = _last_of_each(table).sort("card", "expiration")
        self._cards: NDArray[np.uint64] = cards["card"].to_numpy()
        self._facts = cards.drop("card")

    def __len__(self) -> int:
        """Count the cards."""
        return len(self._cards)

    @property
    def bytes(self) -> int:
        """The memory that the cards take."""
        return int(self._cards.nbytes + self._facts.estimated_size())

    def suppressed(self, rows: pl.DataFrame, terms: ResendPolicy) -> pl.Series:
        """Return the code why each row (cuid, last_4, expiration, checks) is not sent, null where it is."""
        if not len(self):
            return pl.Series(values=[None] * rows.height, dtype=pl.String)
        cards, expirations = rows.select(_card(portal.CUID), pl.col("expiration").cast(pl.UInt16)).get_columns()
        places = self._places(cards.to_numpy(), expirations.to_numpy())
        known = pl.Series(self._cards[places] == cards.to_numpy())
        joined = pl.concat(
            [
                expirations.to_frame("expiration_asked"),
                self._facts[places],
                rows.select(asked_name="name_check", asked_address="address_check"),
            ],
            how="horizontal",
        )
        changes = terms.portfolio.changes if terms.as_of >= self._newest else ()
        return joined.select(pl.when(known).then(_verdict(terms, changes))).to_series()

    def _places(self, cards: NDArray[np.uint64], expirations: NDArray[np.uint16]) -> NDArray[np.intp]:
        """Return each card's place in the table: the entry of its expiration, else its first entry, else any place."""
        order, first = np.argsort(cards), np.empty(len(cards), np.intp)
        first[order] = np.searchsorted(self._cards, cards[order])  # sorted: takes half the time
        first = np.minimum(first, len(self) - 1)
        known, places = self._facts["expiration"].to_numpy(), first.copy()
        odd = np.flatnonzero((self._cards[first] == cards) & (known[first] != expirations))  # few have two cards
        for step in range(1, EXPIRATIONS):
            after = np.minimum(first[odd] + step, len(self) - 1)
            hit = (self._cards[after] == cards[odd]) & (known[after] == expirations[odd])
            places[odd[hit]] = after[hit]
        return places


CHECKS = ("name_check", "address_check")


def _compact(attempts: pl.DataFrame) -> pl.DataFrame:
    linked = pl.when(pl.col("state") == LINKED).then("expires_on").alias("until")
    again = pl.col("origin").is_not_null().alias("again")
    return attempts.select(_card("cuid"), pl.col("expiration").cast(pl.UInt16), "state", linked, again, *CHECKS)


def _last_of_each(attempts: pl.DataFrame) -> pl.DataFrame:
    """Return one row a card: its last state, the latest expiry of a link, and the check values of its row.

    `name_check` and `address_check` are from the last extract that sent the card, `…_again` from the last attempt where
    that repeated the row. A row that was corrected for a resend is unchanged in the extract, so neither is a change.
    """
    fresh, again = ~pl.col("again"), pl.col("again")
    # By hash, which is faster; where two cards have one hash, they are only grouped needlessly.
    once = attempts.select(pl.struct("card", "expiration").hash().is_unique()).to_series()
    single = attempts.filter(once).select(
        "card",
        "expiration",
        "state",
        "until",
        *(pl.when(fresh).then(name).alias(name) for name in CHECKS),
        *(pl.when(again).then(name).alias(f"{name}_again") for name in CHECKS),
    )
    several = attempts.filter(~once).group_by("card", "expiration")
    last = several.agg(
        pl.col("state").last(),
        pl.col("until").max(),
        *(pl.col(name).filter(fresh).drop_nulls().last() for name in CHECKS),
        *(pl.when(again.last()).then(pl.col(name).last()).alias(f"{name}_again") for name in CHECKS),
    )
    return pl.concat([single, last])


def _card(cuid: str) -> pl.Expr:
    """Return a card's key, valid in this process only, since hashes differ between versions."""
    return pl.struct(pl.col(cuid).alias("cuid"), "last_4").hash().alias("card")


def _verdict(terms: ResendPolicy, changes: Collection[Change]) -> pl.Expr:
    differs = {
        "name": _differs("asked_name", "name_check", "name_check_again"),
        "address": _differs("asked_address", "address_check", "address_check_again"),
        "expiration": _differs("expiration_asked", "expiration"),
    }
    changed = pl.any_horizontal([pl.lit(value=False), *(differs[name] for name in changes)])
    renew_until = terms.as_of + timedelta(days=terms.portfolio.renew_within_days)
    standing = (pl.col("until") > renew_until).fill_null(value=False)
    refused = (pl.col("state") == "error") & pl.lit(not terms.portfolio.resend_errors)
    return (
        pl.when(pl.col("state") == "awaiting").then(pl.lit(AWAITED))
        .when(changed).then(None)
        .when(standing).then(pl.lit(STANDING))
        .when(refused).then(pl.lit(REFUSED))
    )  # fmt: skip


def _differs(new: str, *old: str) -> pl.Expr:
    """Return whether a value differs from all that are known; where none is known, it does not."""
    unlike = [(pl.col(new) != pl.col(name)).fill_null(value=True) for name in old]
    return pl.all_horizontal(unlike) & pl.any_horizontal(pl.col(name).is_not_null() for name in old)
