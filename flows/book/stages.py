"""How far a card with a link came: delivered, opened, authenticated, placed or failed.

Each is known where somebody says so, and null where nobody knows: a link of which nobody asked is
not "not opened". Extensions say it of cards (the hook `stages`). Frames in, frames out.

* **Delivered**: a delivery of links has the link of its row. Deliveries of earlier versions do not
  name rows: of two cards that look the same both are delivered, once one is.
* **Opened**: that is said of the link by which the card stands, since it was first known.
* **Authenticated**: its cardholder signed in to a merchant site.
* **Failed**: no job has placed the card and none is under way, by the kind of the last end. The
  link can be used again: this is nobody's work, and later progress replaces it.
* **Placed**: that is said of any link of this issue of the card, and stays so: with no attempt on
  its way it is nobody's work any more, whether its link has ended or not, and it is not renewed.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any, NamedTuple

import polars as pl

from flows.book.standing import (
    AUTHENTICATED,
    DELIVERED,
    FAILED,
    HAS_LINK,
    NAMES,
    OPENED,
    PLACED,
    SERVED,
    State,
)
from flows.extensions import hooks
from flows.runs.cards import CARD, is_single
from flows.runs.single_links import ARRIVED
from flows.runs.stored_runs import StoredRuns
from schemas.ledger import AWAITING

LOOK = ("cuid", "last_4", "expiration")  # of a card, as those have it who are handed its link
ROW = ("run", "row")  # that a link came of
DELIVERED_LINK = pl.Schema(  # that somebody was handed, and may use
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        **dict.fromkeys(LOOK, pl.String()),
        "until": pl.Date(),
        "delivered": ARRIVED,
    }
)
STAGES = ("opened", "authenticated", "placed")
KNOWN = pl.Schema(  # what may be known of a card with a link
    {
        **dict.fromkeys(STAGES, pl.Boolean()),
        **dict.fromkeys([f"{stage}_by" for stage in STAGES], pl.String()),  # who says so
        "failed": pl.String(),  # the kind of its end, where it has failed
        "opened_at": ARRIVED,
        "placed_at": ARRIVED,
        "moved_at": ARRIVED,  # when something new was last learned of it
    }
)


class Stages(NamedTuple):
    """What is known of links beyond that they came: deliveries (DELIVERED_LINK), and what says of
    cards as many rows with columns of KNOWN.
    """

    delivered: pl.DataFrame
    of_cards: Sequence[Callable[[pl.DataFrame], pl.DataFrame]] = ()


NO_STAGES = Stages(pl.DataFrame(schema=DELIVERED_LINK))


def stages_of(runs: StoredRuns) -> Stages:
    """Return what is known of an issuer's links beyond that they came."""
    with runs.adapters.database.snapshot() as connection:
        delivered = [links(connection, runs.issuer) for links in hooks("delivered_links")]
    return Stages(
        pl.concat([pl.DataFrame(schema=DELIVERED_LINK), *delivered]),
        [of_cards(runs) for of_cards in hooks("stages")],
    )


def with_stages(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return cards (`flows.book.standing.standing`) with how far those with a link came.

    Adds `opened` and `placed` (null: not known), `failed`, the kind of its end, where it is in that
    state, and `placed_on`, the day, where it is known.
    """
    known = _known(cards, stages)
    stood = cards["standing"] == HAS_LINK.name
    is_answered = (cards["state"] != AWAITING).fill_null(value=True)
    table = [
        (is_answered & _is_true(known["placed"]), PLACED, known["placed_at"]),
        (stood & known["failed"].is_not_null(), FAILED, known["moved_at"]),
        (stood & _is_true(known["authenticated"]), AUTHENTICATED, known["moved_at"]),
        (stood & _is_true(known["opened"]), OPENED, known["opened_at"]),
        (stood & known["delivered"].is_not_null(), DELIVERED, known["delivered"]),
    ]
    staged = cards
    for applies, state, since in reversed(table):
        staged = _in_state(staged, applies, state, since)
    placed_on = known["placed_at"].dt.date().alias("placed_on")
    failed = pl.when(pl.col("standing") == FAILED.name).then(known["failed"]).alias("failed")
    return staged.with_columns(known["opened"], known["placed"], failed, placed_on)


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


def known_links(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return what is known of each card with a link: STAGES, each with by whom, and `failed`."""
    linked = _known(cards, stages).filter(pl.col("has_link"))
    return linked.select(*STAGES, *(f"{stage}_by" for stage in STAGES), "failed")


def coverage(links: Iterable[pl.DataFrame]) -> dict[str, Any]:
    """Return of how many cards with a link (`known_links`) it is known how far they came, by whom.

    `links`: how many have one; by each of STAGES: the `cards` that came so far, and `known_by`, of
    how many it is known by each source. `failed`: of those of whom it is known
    whether they are placed, how many ended otherwise, by kind, most first.
    """
    linked = pl.concat(links)
    facts: dict[str, Any] = {"links": linked.height}
    for stage in STAGES:
        sources = linked[f"{stage}_by"].drop_nulls()
        known_by = sources.value_counts().sort("count", f"{stage}_by", descending=[True, False])
        facts[stage] = {
            "cards": int(_is_true(linked[stage]).sum()),
            "known_by": dict(known_by.iter_rows()),
        }
    kinds = linked["failed"].drop_nulls().value_counts()
    most_first = kinds.sort("count", "failed", descending=[True, False])
    return {**facts, "failed": dict(most_first.iter_rows())}


def _in_state(
    cards: pl.DataFrame, applies: pl.Series, state: State, since: pl.Series
) -> pl.DataFrame:
    """Return cards, those to which it applies in a state in which nobody acts, and since when."""
    return cards.with_columns(
        standing=pl.when(applies).then(pl.lit(state.name, NAMES)).otherwise("standing"),
        since=pl.when(applies).then(since).otherwise("since"),
        who=pl.when(applies).then(pl.lit(state.who)).otherwise("who"),
        action=pl.when(~applies).then("action"),
    )


def _is_true(values: pl.Series) -> pl.Series:
    return values.fill_null(value=False)


def _known(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return what is known of each card (KNOWN), when its link was `delivered`, and whether it
    `has_link`.
    """
    nothing = (pl.lit(None, kind).alias(name) for name, kind in KNOWN.items())
    has_link = pl.col("until").is_not_null() & pl.col("current")
    known = cards.select(has_link.alias("has_link"), *nothing)
    for of_cards in stages.of_cards:
        known = known.with_columns(of_cards(cards).get_columns())
    return known.with_columns(delivered=_delivered(cards, stages.delivered))


def _delivered(cards: pl.DataFrame, links: pl.DataFrame) -> pl.Series:
    """Return when the link by which each card stands was delivered first.

    By its row; else by its look, where the link has no row, or the card alone looks so.
    """
    if links.is_empty():
        return pl.Series([None]).new_from_index(0, cards.height)
    numbered = cards.select(*ROW, *LOOK, "until").with_row_index("place")
    of_row = numbered.join(links.drop_nulls("row"), on=[*ROW, "until"]).select("place", "delivered")
    others = numbered.join(of_row, on="place", how="anti")
    has_row = links["row"].is_not_null()
    of_look = _by_look(others, links.filter(~has_row))
    with_row = _by_look(others, links.filter(has_row))
    if not with_row.is_empty():
        alone = is_single(numbered, LOOK)
        with_row = with_row.filter(alone.gather(with_row["place"]))
    known = pl.concat([of_row, of_look, with_row]).unique("place", keep="first")
    places = numbered.select("place")
    return places.join(known, on="place", how="left", maintain_order="left")["delivered"]


def _by_look(cards: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the `place` of each card that looks like one whose link was delivered, and when."""
    look = [*LOOK, "until"]
    first = links.sort("delivered").unique(look, keep="first").select(*look, "delivered")
    return cards.join(first, on=look, nulls_equal=True).select("place", "delivered")
