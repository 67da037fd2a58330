"""The portal's contract: its columns in order, rules under unique codes, places that fit."""

from __future__ import annotations

import re
from datetime import date

import pytest

from flows.extensions.simulator import validation
from schemas import places
from schemas.actions import ASK, FIX, NOTHING
from schemas.expressions import yymm
from schemas.portal import REQUIRED, columns
from schemas.reasons import reason
from schemas.rules import RULES

# The template, a column a line (interface.md 2.6).
HEADER = """\
cardholder.cuid
service_card.pan
service_card.expiration_year
service_card.expiration_month
service_card.name_on_card
service_card.cvv_hash
service_card.cvv
service_card.customer_key
service_card.nickname
service_card.address.address1
service_card.address.address2
service_card.address.city
service_card.address.subnational
service_card.address.country
service_card.address.postal_code
service_card.address.email
service_card.address.phone_number
service_card.address.first_name
service_card.address.last_name
service_card.address.is_primary
"""


def test_the_columns_are_those_of_the_interface_in_its_order() -> None:
    expected = tuple(HEADER.split())

    actual = columns()

    assert expected == actual


def test_a_column_is_required_where_the_partner_requires_it() -> None:
    assert sorted(f"service_card.{field}" for field in validation.REQUIRED) == sorted(REQUIRED)


def test_every_code_is_entity_property_kind_and_unique() -> None:
    codes = [rule.code for rule in RULES]

    assert len(set(codes)) == len(codes)
    assert [] == [
        code
        for code in codes
        if not re.fullmatch(r"(cardholder|card|address)\.[a-z0-9_]+\.[a-z0-9_]+", code)
    ]


@pytest.mark.parametrize(
    ("start", "months", "expected"),
    [
        ("2026-11-20", 0, "2611"),
        ("2026-11-30", 2, "2701"),
        ("2026-12-31", 0, "2612"),
        ("2026-01-01", 240, "4601"),
    ],
)
def test_months_are_counted_over_the_turn_of_the_year(
    start: str, months: int, expected: str
) -> None:
    actual = yymm(date.fromisoformat(start), months)

    assert expected == actual


@pytest.mark.parametrize(
    "fit",
    [
        "021MA",
        "005NY",
        "063NY",
        "063CT",
        "100NY",
        "200DC",
        "331FL",
        "606IL",
        "733TX",
        "885TX",
        "834WY",
        "900CA",
        "006PR",
        "969GU",
        "967HI",
        "967AS",
        "340AA",
        "093AE",
        "962AP",
        "995AK",
        "MON",
        "HQC",
        "XNU",
        "XNT",
        "YYT",
    ],
)
def test_a_postal_code_fits_its_state(fit: str) -> None:
    assert fit in places.postal_places()


@pytest.mark.parametrize("unfit", ["021NY", "100MA", "000NY", "987WA", "VON", "DON", "213MD"])
def test_a_postal_code_fits_no_other_state(unfit: str) -> None:
    assert unfit not in places.postal_places()


def test_every_state_and_province_has_a_place_and_its_own_spelling() -> None:
    reached = {place.lstrip("0123456789")[-2:] for place in places.postal_places()}

    spelled = [places.subnational_spellings(country) for country in (places.US, places.CANADA)]

    assert {*places.STATES, *places.PROVINCES} == reached
    assert [set(places.STATES), set(places.PROVINCES)] == [set(known.values()) for known in spelled]
    assert all(word == word.upper() and "." not in word for known in spelled for word in known)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("address.postal_code.missing", FIX),
        ("row.content.repeated", NOTHING),
        ("a.b.unheard_of", ASK),
        ("", ASK),
    ],
)
def test_a_reason_says_who_acts_even_for_a_code_never_heard_of(code: str, action: str) -> None:
    actual = reason(code)

    assert (code, action) == (actual.code, actual.action)
