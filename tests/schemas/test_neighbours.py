"""Limits of rules and of settings: what lies at the limit, and its neighbours."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

from flows.extensions.deliveries.settings import Receiver
from flows.extracts.decode import looks_ebcdic
from schemas.cell_formats import day_number
from schemas.conditions import not_far
from schemas.eligible import Condition
from schemas.expressions import holds_card
from schemas.issuer import RuleSettings
from schemas.portal import MONTH, YEAR

TODAY = date(2026, 11, 28)
LETTER, BLANK, CONTROL = b"\xc1", b"\x40", b"\x21"  # in EBCDIC; the last is "!" in ASCII
UNUSUAL = b"\xff"


def test_a_number_at_its_limit_fulfils_a_condition() -> None:
    condition = Condition(at_least=18, at_most=70)

    held = pl.select(condition.holds(pl.lit(pl.Series(["17.9", "18", "70", "70.1", ""]))))

    assert [False, True, True, False, False] == held.to_series().to_list()


def test_a_card_may_end_twenty_years_from_now_in_the_same_month() -> None:
    ends = pl.DataFrame({YEAR: ["46", "46", "46"], MONTH: ["10", "11", "12"]})

    near = ends.select(not_far(TODAY, RuleSettings())).to_series()

    assert [True, True, False] == near.to_list()


def test_two_digits_of_a_year_are_from_1970_to_2069() -> None:
    days = pl.lit(pl.Series(["31.12.69", "01.01.70"]))

    assert [20691231, 19700101] == pl.select(day_number(days, "DD.MM.YY")).to_series().to_list()


@pytest.mark.parametrize(
    ("head", "is_ebcdic"),
    [
        (39 * LETTER + BLANK, True),
        (38 * LETTER + BLANK, False),  # too short to say
        (20 * LETTER + BLANK + 19 * UNUSUAL, True),
        (19 * LETTER + BLANK + 20 * UNUSUAL, False),
        (38 * LETTER + 2 * BLANK + b" ", True),
        (39 * LETTER + BLANK + b" ", False),  # no more blanks than spaces
        (27 * LETTER + BLANK + 13 * CONTROL, True),
        (27 * LETTER + BLANK + 14 * CONTROL, False),  # half as much that is ASCII
        (13 * LETTER + 15 * BLANK + 14 * b" ", False),  # a space is ASCII
        (21 * LETTER + BLANK + 20 * b"\x7f", True),  # the last of ASCII is no text
    ],
)
def test_what_looks_like_ebcdic_begins_at_its_limits(head: bytes, *, is_ebcdic: bool) -> None:
    assert is_ebcdic == looks_ebcdic(head)


def test_a_card_number_of_the_fewest_digits_is_seen_where_it_is_all_of_a_text() -> None:
    cells = pl.DataFrame({"text": ["30569309025904", "3056930902590"], "pan": [None, None]})

    held = cells.select(holds_card(pl.col("text"), pl.col("pan").cast(pl.String))).to_series()

    assert [True, False] == held.to_list()


def test_a_delivery_needs_three_columns_and_no_others() -> None:
    columns = {"cuid": "customer", "url": "link", "change": "what"}

    assert columns == Receiver.model_validate({"columns": columns}).columns
