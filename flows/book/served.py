"""The cards that have a link now, those that need none any more, and what no delivery has of them.

Deliveries are made of it, and the worklist says by it that one is due.
"""

from datetime import date
from typing import NamedTuple

import polars as pl

from flows.book.deliveries import LOOK
from flows.book.standing import GIVEN_UP, HAS_LINK, LEFT, SERVED
from flows.runs.cards import CARD

STOPPED = [LEFT.name, GIVEN_UP.name]  # states in which a card needs no link


class ToDeliver(NamedTuple):
    """How many links no delivery has, and how many delivered ones are to be withdrawn.

    `left`: those of them whose cards left, of so many `delivered`.
    """

    new: int = 0
    ended: int = 0
    left: int = 0
    delivered: int = 0


def served_cards(cards: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the cards with a link that can be opened, each once: LOOK, run, row, until, standing.

    Each in its newest issue where that has one, else in that whose link lasts longest.
    """
    is_served = pl.col("standing").cast(pl.String).is_in([state.name for state in SERVED])
    columns = dict.fromkeys((*CARD, *LOOK, "run", "row", "until", "current", "standing"))
    linked = cards.select(*columns).filter(is_served & (pl.col("until") >= today))
    best_first = linked.sort("current", "until", descending=True)
    of_card = best_first.unique(CARD, keep="first", maintain_order=True)
    return of_card.select(*LOOK, "run", "row", "until", "standing")


def to_deliver(cards: pl.DataFrame, delivered: pl.DataFrame, today: date) -> ToDeliver:
    """Count what the next delivery of these cards has; `delivered` as Stages has it."""
    served = served_cards(cards, today)
    stopped = cards.filter(pl.col("standing").cast(pl.String).is_in(STOPPED))
    gone = stopped.join(served, on=LOOK[:2], how="anti")
    ended = delivered.join(gone, on=LOOK[:2], how="semi")
    left = delivered.join(gone.filter(standing=LEFT.name), on=LOOK[:2], how="semi")
    theirs = delivered.join(cards, on=LOOK[:2], how="semi")
    new = served.filter(standing=HAS_LINK.name)
    return ToDeliver(new.height, ended.height, left.height, theirs.height)
