"""Published test cards, and the test range this project generates its own samples in; everything else is real."""

from __future__ import annotations

import polars as pl

PUBLISHED = (
    "4242424242424242",
    "4111111111111111",
    "5555555555554444",
    "2223003122003222",
    "6011111111111117",
    "3566002020360505",
    "6200000000000005",
)
GENERATED = "400000"  # the BIN of generated samples: never issued


def is_test_card(pan: pl.Expr) -> pl.Expr:
    """Return whether a PAN is a test card's."""
    return pan.str.starts_with(GENERATED) | pan.is_in(PUBLISHED)
