"""Which of the issues of a card is the newest, by a few attempts in memory."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from flows.book.fold import Folded
from flows.book.issues import is_newest
from flows.runs.cards import CARD
from tests.night import DAY

ORDERS = [[0, 1], [1, 0]]


def newest(turns: list[int], expirations: list[str], checks: list[int], order: list[int]) -> str:
    """Return "first" or "second": which of two issues of the extract of commit 1 is the newest."""
    attempts = pl.DataFrame({"turn": turns}, {"turn": pl.Int32}).with_columns(
        content=pl.lit(1, pl.Int32),
        run=pl.lit("r"),
        as_of=pl.lit(DAY) + timedelta(days=1) * (pl.col("turn") - 1),
    )
    issues = pl.DataFrame({"expiration": expirations, "reissue_check": checks}).with_columns(
        pl.lit("x").alias(name) for name in CARD
    )
    folded = Folded(attempts, pl.DataFrame({"first": order, "last": order}))
    is_last = is_newest(folded, issues[order], {1: DAY}).to_list()
    return ["first", "second"][order[is_last.index(True)]]


@pytest.mark.parametrize("order", ORDERS)
def test_of_the_issues_of_an_extract_that_counts_which_a_correction_brought_later(
    order: list[int],
) -> None:
    assert "second" == newest([1, 2], ["3012", "2712"], [9, 1], order)


@pytest.mark.parametrize("order", ORDERS)
def test_of_the_issues_that_came_together_that_counts_which_expires_last(order: list[int]) -> None:
    assert "second" == newest([1, 1], ["2712", "3012"], [9, 1], order)
