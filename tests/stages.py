"""What is known of links, as tests say it: of deliveries, by the service, by transaction reports."""

from __future__ import annotations

import polars as pl

from flows.book.stages import NO_STAGES, Stages
from flows.extensions.partner_api.link_stages import FOLLOWED, REPORTED, known_of_cards


def stages_with(
    delivered: pl.DataFrame = NO_STAGES.delivered,
    followed: pl.DataFrame | None = None,
    reported: pl.DataFrame | None = None,
) -> Stages:
    """Return stages of links (DELIVERED_LINK, FOLLOWED, REPORTED); without one nobody says it."""
    links = pl.DataFrame(schema=FOLLOWED) if followed is None else followed
    ends = pl.DataFrame(schema=REPORTED) if reported is None else reported
    return Stages(delivered, [lambda cards: known_of_cards(cards, links, ends)])
