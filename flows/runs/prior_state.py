"""What other runs know of an issuer's cards.

Rows of an extract whose card has or awaits a link are not sent, nor those that were refused and
are unchanged. About 40 bytes a card, so that a portfolio of ten million cards fits in memory
during the pass.

Prior state is read at every submit and never kept, and the plan holds the digest of what was read:
a run whose plan is out of date is planned again, never continued.

A card is its cuid, last four digits and expiration, and where the source tells (`[resend]
reissue_column`), its issue. Name and address stand for a cuid that we generated. No card number and
no digest of one is kept, so a reissue that changes none of these cannot be told. A change of name
or address is a different CRC-32: the same in every version, and too little to identify a person.
Outside a portfolio such a change sends nothing, since the cardholder has a link. A portfolio row
without a cuid is rejected, since nobody could recognise it the next day.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import date, timedelta
from typing import NamedTuple
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas import portal
from schemas.issuer import Issuer
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.settings import Change

STANDING = "card.link.standing"  # has a link that does not expire soon
AWAITED = "card.link.awaiting"  # sent, and not answered yet
REFUSED = "card.link.refused"  # refused by the partner and unchanged since
SEEN = frozenset({STANDING, AWAITED})

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
    "reissue_check": pl.UInt32,
}
CHECKS = ("name_check", "address_check", "reissue_check")
CONTENT = CHECKS[:2]
ISSUE = ("card", "expiration", "reissue_check")
NAME = (portal.FIRST_NAME, portal.LAST_NAME, portal.NAME_ON_CARD)
ADDRESS = (
    portal.ADDRESS1,
    portal.ADDRESS2,
    portal.CITY,
    portal.SUBNATIONAL,
    portal.COUNTRY,
    portal.POSTAL_CODE,
)
# cards of one cuid with equal last digits that are distinguished by expiration and reissue
ISSUES = 8
MADE = "^cl-[0-9a-f]{12}-[0-9]+$"  # a cuid that we generated


def check_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` (the portal's columns) with name_check and address_check.

    They are CRC-32, the same in every version.
    """
    return rows.with_columns(
        crc(rows, *NAME).alias("name_check"), crc(rows, *ADDRESS).alias("address_check")
    )


def crc(rows: pl.DataFrame, *names: str) -> pl.Series:
    """Return the CRC-32 of these columns of each row."""
    texts = rows.select(
        pl.concat_str([pl.col(name).fill_null("") for name in names], separator="\x1f")
    ).to_series()
    return pl.Series(values=np.fromiter(map(crc32, texts.cast(pl.Binary)), np.uint32, rows.height))


def seen_rows(reasons: Mapping[str, int]) -> int:
    """Return how many rows are held back because their card has or awaits a link.

    `reasons`: rows by code.
    """
    return sum(reasons.get(code, 0) for code in SEEN)


class ResendPolicy(NamedTuple):
    """What decides whether a known card is sent again."""

    changes: Collection[Change]
    renew_until: date  # a link that ends on this day or before is replaced
    resend_errors: bool
    whole: bool  # every extract repeats all cardholders: a change can wait for an awaited result


def resend_policy(issuer: Issuer, as_of: date) -> ResendPolicy:
    """Return the policy of [portfolio].

    Outside a portfolio a card is held back while it has a link or awaits one.
    """
    if not issuer.full_portfolio:
        return ResendPolicy(
            ("expiration", "reissue"), as_of - timedelta(days=1), resend_errors=True, whole=False
        )
    portfolio = issuer.portfolio
    renew_until = as_of + timedelta(portfolio.renew_within_days)
    return ResendPolicy(portfolio.changes, renew_until, portfolio.resend_errors, whole=True)


class PriorState:
    """The last attempt of every card; `attempts`: frames of ATTEMPT, oldest first.

    `newest`: the business date of the latest extract; what differs in an older one is not a change.
    `today`: a link that ended before it is none, however old the extract is; `ended` counts those.
    """

    def __init__(
        self, attempts: Iterable[pl.DataFrame], newest: date = date.min, today: date = date.min
    ) -> None:
        self._newest = newest
        table = pl.concat([_compact(pl.DataFrame(schema=ATTEMPT)), *map(_compact, attempts)])
        cards = _last_of_each(table).sort("card", "expiration", "reissue_check")
        living = cards["until"] >= today
        self.ended = int((~living).sum())
        cards = cards.with_columns(pl.when(living).then("until"))
        self._cards: NDArray[np.uint64] = cards["card"].to_numpy()
        self._facts = cards.drop("card")

    def __len__(self) -> int:
        """Count the cards."""
        return len(self._cards)

    def suppressed(self, rows: pl.DataFrame, as_of: date, policy: ResendPolicy) -> pl.Series:
        """Return the code why each row is not sent, null where it is.

        `rows` has cuid, last_4, expiration and CHECKS.
        """
        if not len(self):
            return pl.Series(values=[None] * rows.height, dtype=pl.String)
        cards = rows.select(
            card_keys(rows, portal.CUID), pl.col("expiration").cast(pl.UInt16), *CHECKS
        )
        places = self._places(cards)
        known = pl.Series(self._cards[places] == cards["card"].to_numpy())
        joined = pl.concat(
            [cards.select(pl.all().name.prefix("row_")), self._facts[places]], how="horizontal"
        )
        changes = policy.changes
        if policy.whole and as_of < self._newest:
            changes = ()
        return joined.select(pl.when(known).then(_verdict(policy, changes))).to_series()

    def _places(self, rows: pl.DataFrame) -> NDArray[np.intp]:
        """Return each card's place in the table.

        The entry of its issue, else its first entry, else any place. The issue is expiration and
        reissue; an unknown reissue equals each.
        """
        cards = rows["card"].to_numpy()
        expirations = rows["expiration"].to_numpy()
        reissues = rows["reissue_check"].fill_null(0).to_numpy()
        known_expirations = self._facts["expiration"].to_numpy()
        known_reissues = self._facts["reissue_check"].fill_null(0).to_numpy()
        order = np.argsort(cards)
        first = np.empty(len(cards), np.intp)
        first[order] = np.searchsorted(self._cards, cards[order])  # sorted: takes half the time
        first = np.minimum(first, len(self) - 1)

        def is_same_issue(
            places: NDArray[np.intp], selected: NDArray[np.intp] | slice
        ) -> NDArray[np.bool_]:
            reissue = reissues[selected]
            known_reissue = known_reissues[places]
            is_same: NDArray[np.bool_] = known_expirations[places] == expirations[selected]
            is_same &= (reissue == known_reissue) | (reissue == 0) | (known_reissue == 0)
            return is_same

        places = first.copy()
        # few have two cards
        is_known = self._cards[first] == cards
        others = np.flatnonzero(is_known & ~is_same_issue(first, slice(None)))
        for step in range(1, ISSUES):
            after = np.minimum(first[others] + step, len(self) - 1)
            fits = (self._cards[after] == cards[others]) & is_same_issue(after, others)
            places[others[fits]] = after[fits]
        return places


def _compact(attempts: pl.DataFrame) -> pl.DataFrame:
    return attempts.select(
        card_keys(attempts),
        pl.col("expiration").cast(pl.UInt16),
        "state",
        pl.when(pl.col("state") == LINKED).then("expires_on").alias("until"),
        pl.col("origin").is_not_null().alias("is_repeat"),
        *CHECKS,
    )


def _last_of_each(attempts: pl.DataFrame) -> pl.DataFrame:
    """Return one row an issue of a card.

    Its last state, the latest expiry of a link, the check values of its row. `name_check` and
    `address_check` are from the last extract that sent the card, `…_repeated` from the last attempt
    where that repeated the row. A row that was corrected for a resend is unchanged in the extract,
    so neither is a change.
    """
    is_repeat = pl.col("is_repeat")
    # By hash, which is faster; where two cards have one hash, they are only grouped needlessly.
    once = attempts.select(pl.struct(ISSUE).hash().is_unique()).to_series()
    single = attempts.filter(once).select(
        *ISSUE,
        "state",
        "until",
        *(pl.when(~is_repeat).then(name).alias(name) for name in CONTENT),
        *(pl.when(is_repeat).then(name).alias(f"{name}_repeated") for name in CONTENT),
    )
    several = attempts.filter(~once).group_by(ISSUE)
    last = several.agg(
        pl.col("state").last(),
        pl.col("until").max(),
        *(pl.col(name).filter(~is_repeat).drop_nulls().last() for name in CONTENT),
        *(
            pl.when(is_repeat.last()).then(pl.col(name).last()).alias(f"{name}_repeated")
            for name in CONTENT
        ),
    )
    return pl.concat([single, last])


def card_keys(rows: pl.DataFrame, cuid: str = "cuid") -> pl.Series:
    """Return each card's key, valid in this process only.

    `rows` has last_4, expiration and CHECKS of ATTEMPT. A cuid that we generated differs in every
    extract: there, name and address stand for it.
    """
    who = pl.col(cuid)
    if rows[cuid].str.starts_with("cl-").any():
        content = pl.concat_str("name_check", "address_check", "expiration", separator=" ")
        who = pl.when(who.str.contains(MADE)).then(pl.coalesce(content, who)).otherwise(who)
    return rows.select(pl.struct(who.alias("cuid"), "last_4").hash().alias("card")).to_series()


def _verdict(policy: ResendPolicy, changes: Collection[Change]) -> pl.Expr:
    differs = {
        "name": _differs("row_name_check", "name_check", "name_check_repeated"),
        "address": _differs("row_address_check", "address_check", "address_check_repeated"),
        "expiration": _differs("row_expiration", "expiration"),
        "reissue": (pl.col("row_reissue_check") != pl.col("reissue_check")).fill_null(value=False),
    }
    changed = pl.any_horizontal([pl.lit(value=False), *(differs[name] for name in changes)])
    awaited = pl.col("state") == "awaiting"
    standing = (pl.col("until") > policy.renew_until).fill_null(value=False)
    refused = (pl.col("state") == "error") & pl.lit(not policy.resend_errors)
    return (
        pl.when(awaited & (pl.lit(policy.whole) | ~changed)).then(pl.lit(AWAITED))
        .when(changed).then(None)
        .when(standing).then(pl.lit(STANDING))
        .when(refused).then(pl.lit(REFUSED))
    )  # fmt: skip


def _differs(new: str, *old: str) -> pl.Expr:
    """Return whether a value differs from all that are known; where none is known, it does not."""
    unlike = [(pl.col(new) != pl.col(name)).fill_null(value=True) for name in old]
    return pl.all_horizontal(unlike) & pl.any_horizontal(pl.col(name).is_not_null() for name in old)


SENT: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "chunk": pl.UInt32, **ATTEMPT}
