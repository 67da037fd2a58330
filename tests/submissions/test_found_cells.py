"""What is shown of a cell that was rejected: a shape that differs from what is expected."""

from __future__ import annotations

import polars as pl
import pytest

from flows.submissions.shapes import found_in
from schemas.portal import CVV, PAN, POSTAL_CODE


@pytest.mark.parametrize(
    ("column", "cell", "found"),
    [
        (PAN, "4242424242424242", "9(16)"),
        (PAN, "\uff14\uff12" * 8, "?(16)"),
        (PAN, "\u0664\u0662" * 8, "?(16)"),
        (PAN, "4242 \uff14\uff12", "9999 ??"),
        (POSTAL_CODE, "\uff10\uff12108", "??999"),
        (POSTAL_CODE, "K1A \u00b20B", "A9A ?9A"),
        (CVV, "123", "3 characters"),
        (CVV, "\uff11\uff12\uff13", "3 characters, not ASCII"),
    ],
)
def test_a_digit_of_another_script_is_not_shown_as_the_digit_that_is_expected(
    column: str, cell: str, found: str
) -> None:
    shown = pl.select(found_in(pl.lit(column), pl.lit(cell))).item()

    assert found == shown
