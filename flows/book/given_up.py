"""Who is given up: the cards of which an operator decided that they need no link.

The account is closed, or the cardholder does not want one. A decision stands until it is taken
back, whatever an extract or the partner says later. One about a row whose card number could not be
read is about all cards of its cardholder.
"""

from collections.abc import Mapping

import polars as pl

from flows.runs.adapters import Adapters
from flows.runs.cards import CARD_WITHOUT_TWIN
from flows.runs.decisions import CARDS, decisions
from flows.runs.persons import by_holder, holders_of
from schemas.records import GivingUp

GIVEN_UP = pl.Schema(
    {"holder": pl.String(), "last_4": pl.String(), "since": pl.Datetime("us", "UTC")}
    | dict.fromkeys(("by", "reason"), pl.String())
)
NOBODY = pl.DataFrame(schema=GIVEN_UP)


def given_up_cards(adapters: Adapters, issuer: str) -> pl.DataFrame:
    """Return the cards that are given up and not taken up again (GIVEN_UP), each once."""
    decided = decisions(adapters, issuer, CARDS, GivingUp)
    if not decided:
        return NOBODY
    holders = holders_of(adapters, issuer)
    in_order = pl.concat([_cards_of(decision, holders) for decision in decided])
    last = in_order.unique(CARD_WITHOUT_TWIN, keep="last", maintain_order=True)
    return last.filter(pl.col("what") == "given up").select(*GIVEN_UP)


def _cards_of(decision: GivingUp, holders: Mapping[str, str]) -> pl.DataFrame:
    schema = {name: GIVEN_UP[name] for name in CARD_WITHOUT_TWIN}
    cards = pl.DataFrame(by_holder(decision.cards, holders), schema, orient="row")
    return cards.with_columns(
        since=pl.lit(decision.at),
        by=pl.lit(decision.by),
        reason=pl.lit(decision.reason),
        what=pl.lit(decision.what),
    )


def is_given_up(given_up_cards: pl.DataFrame, holder: str = "holder") -> pl.Expr:
    """Return whether a card (columns `holder` and last_4) is given up, or its whole cardholder."""
    whole = given_up_cards.filter(pl.col("last_4").is_null())["holder"]
    of_card = given_up_cards.drop_nulls("last_4").select(
        pl.concat_str(CARD_WITHOUT_TWIN, separator="\x1f")
    )
    card = pl.concat_str(holder, "last_4", separator="\x1f")
    is_card = card.is_in(of_card.to_series().implode()).fill_null(value=False)
    return pl.col(holder).is_in(whole.implode()).fill_null(value=False) | is_card
