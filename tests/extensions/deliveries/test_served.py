"""Which links the next delivery has: new ones, and those of cards that need none any more."""

from __future__ import annotations

import polars as pl

from flows.book.standing import LEFT
from flows.extensions.deliveries.changes import ToDeliver, to_deliver
from tests.book.test_stages import delivered, staged
from tests.book.test_standing import TODAY, attempt


def test_the_next_delivery_withdraws_the_link_of_a_card_that_needs_none_any_more() -> None:
    links = delivered()
    stays = staged(attempt("linked"), **links)
    left = stays.with_columns(standing=pl.lit(LEFT.name, stays.schema["standing"]))

    to_come = [to_deliver(cards, links["delivered"], TODAY) for cards in (stays, left)]

    assert [ToDeliver(delivered=1), ToDeliver(ended=1, left=1, delivered=1)] == to_come
