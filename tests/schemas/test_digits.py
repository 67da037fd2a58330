"""A card number is found in a text, cuid, link and message however its digits are written."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from datetime import date

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flows.card_numbers import numbers_alone
from flows.redaction import redact
from flows.results.masking import mask
from flows.spellings import readings
from schemas.conditions import tells_nothing
from schemas.digits import MOST_BETWEEN
from schemas.expressions import PUBLISHED, holds_card
from schemas.issuer import RuleSettings
from schemas.portal import CITY, CVV_HASH, PHONE
from schemas.rules import RULES
from tests.builders import portal_rows

CARD = "4242424242424242"
GROUPS = ((16,), (4, 4, 4, 4), (8, 8), (2,) * 8, (1,) * 16)
CHARS = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
ZEROS = [char for char in CHARS if unicodedata.decimal(char, None) == 0]
SEPARATORS = [
    char
    for char in CHARS
    if unicodedata.category(char) in ("Zs", "Zl", "Zp", "Pd", "Cf") or char in " ._/-:,;#|*+()\t·•~"
]

numbers = st.builds(
    lambda zero, separator, sizes: spelled(zero, separator, sizes),
    st.sampled_from(ZEROS),
    st.text(st.sampled_from(SEPARATORS), max_size=MOST_BETWEEN),
    st.sampled_from(GROUPS),
)


def spelled(zero: str, separator: str, sizes: tuple[int, ...] = (4, 4, 4, 4)) -> str:
    """Return CARD in groups, with the digits that begin with this zero."""
    digits = "".join(chr(ord(zero) + int(digit)) for digit in CARD)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    groups = [digits[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return separator.join(groups)


def is_held(text: str, pan: str = PUBLISHED[1]) -> bool:
    """Return whether a card number is found in the text of a row that has another."""
    return bool(pl.select(holds_card(pl.lit(pl.Series([text])), pl.lit(pl.Series([pan])))).item())


def tells(cuid: str) -> bool:
    rows = pl.DataFrame({"cuid": [cuid], "pan": [PUBLISHED[1]], CVV_HASH: [None]})
    named = rows.rename({"cuid": "cardholder.cuid", "pan": "service_card.pan"})
    return not named.select(tells_nothing("cardholder.cuid")).item()


def is_in_link(url: str) -> bool:
    return any(CARD in numbers_alone(reading.text) for reading in readings(url))


FINDERS: dict[str, Callable[[str], bool]] = {
    "text": lambda number: is_held(f"card {number}"),
    "text of the row": lambda number: is_held(f"Apt 5, {number}, floor 2", CARD),
    "cuid": tells,
    "link": lambda number: is_in_link(f"https://links.example.com/l/{number}"),
    "log": lambda number: "[masked]" in redact(f"card {number} is invalid"),
    "message": lambda number: not any(map(str.isdecimal, unmarked(mask(f"card {number}")))),
}


def unmarked(kept: str) -> str:
    """Return what was kept without its marks, the last of which may be cut."""
    return re.sub(r"\[[0-9]+ [A-Za-z0-9]+\]|\[[^\]]*…$", "", kept)


def test_digits_of_a_script_between_commas_and_blanks_of_another_kind_are_no_list() -> None:
    assert FINDERS["log"](",\u2000".join(["\u0664\u0662\u0664\u0662"] * 4))


@pytest.mark.parametrize("place", FINDERS)
@given(number=numbers)
def test_no_spelling_of_a_card_number_passes(place: str, number: str) -> None:
    # in our own texts that is a list of counts or rows
    assume(place != "log" or ", " not in number)

    assert FINDERS[place](number)


@pytest.mark.parametrize(
    "text",
    [
        "4242&nbsp;4242&nbsp;4242&nbsp;4242",
        "&#52;&#50;" * 8,
        "&#x34;&#x32;" * 8,
        "4242%2D4242%2D4242%2D4242",
        "4\ufe0f\u20e32\ufe0f\u20e3" * 8,
        "⁴²④②" * 4,
        "número 42 42 42 42 42 42 42 42 y más",
        "5 Elm, 42424242 42424242, 6",
        "no. 3, 3782 822463 10005, 7",
        f"{CARD} {CARD}",
    ],
)
def test_a_card_number_of_another_row_is_found_in_a_text(text: str) -> None:
    assert is_held(text)


@pytest.mark.parametrize(
    "text",
    [
        "1200–1250 W 45th St #2100‑15",
        "4242 Main St, call 617\u00a0555\u00a00123 or 617\u00a0555\u00a00124",
        "Unit 4 / 5 / 6 / 7 / 8, 2026‑11‑20 08:30:00",
        "4242\u00a04242\u00a04242\u00a04243",
        "4242\u00a04242\u00a04242 Elm 4242",
        "75% of 4242 & 4242",
        "cl-424242424242-4242",
        "4242424242424242a242424242424242",
        f"4242{' ' * (MOST_BETWEEN + 1)}4242 4242 4242 1",
    ],
)
def test_what_has_as_many_digits_and_is_no_card_number_is_left(text: str) -> None:
    assert not is_held(text)


@pytest.mark.parametrize("separator", ["  ", "\u00a0", " - ", "\u200b\u200b"])
@pytest.mark.parametrize("column", [CITY, PHONE])
def test_the_screen_of_a_rule_lets_no_spelling_of_a_card_number_pass(
    column: str, separator: str
) -> None:
    rule = next(
        rule for rule in RULES if rule.column == column and rule.code.endswith("card_number")
    )
    rows = portal_rows({column: spelled("0", separator)})

    holds = rows.select(rule.expression(date(2026, 11, 28), RuleSettings())).to_series()

    assert [False] == holds.to_list()
