"""A request of a single link is held to every rule of interface.md 2.8 before it is sent, and told
by codes only.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.partner_api.link_requests import checked_request, link_request
from flows.extensions.partner_api.service import LinkRequestError
from schemas.places import COUNTRIES
from tests.builders import GOOD

CARDHOLDER = {"first_name": "Ada", "last_name": "Byron"}
ADDRESS = {
    "address1": "1 Main St",
    "city": "Boston",
    "subnational": "MA",
    "postal_code": "02108",
    "country": "US",
    "phone_number": "6175550100",
}
CARD = {
    "reference": None,
    "pan": "4242424242424242",
    "expiration_month": "11",
    "expiration_year": "29",
    "name_on_card": "Ada Byron",
    "nickname": "My card",
}
WHOLE: dict[str, dict[str, Any]] = {"cardholder": CARDHOLDER, "address": ADDRESS, "card": CARD}
PHONE = {"service_card.address.phone_number": "6175550100"}


def codes(plain: dict[str, Any]) -> str:
    with pytest.raises(LinkRequestError) as told:
        checked_request(plain)
    return str(told.value.fields["codes"])


@pytest.mark.parametrize(
    ("entity", "name"), [(entity, name) for entity, fields in WHOLE.items() for name in fields]
)
def test_each_required_property_is_asked_for_by_name(entity: str, name: str) -> None:
    less = {key: value for key, value in WHOLE[entity].items() if key != name}

    told = codes({**WHOLE, entity: less})

    assert f"{entity}.{name}.missing" in told


@pytest.mark.parametrize("entity", WHOLE)
def test_each_required_object_is_asked_for_by_name(entity: str) -> None:
    told = codes({key: value for key, value in WHOLE.items() if key != entity})

    assert told == f"{entity}.record.missing"


@pytest.mark.parametrize(
    "name", ["pan", "expiration_month", "expiration_year", "name_on_card", "nickname"]
)
def test_a_conditional_property_may_be_left_out_where_the_card_is_a_reference(name: str) -> None:
    card = {
        "reference": {"id": 1},
        **{key: CARD[key] for key in CARD if key not in ("reference", name)},
    }

    request = checked_request({**WHOLE, "card": card})

    assert name not in request.body()["card"]


def test_a_card_by_reference_needs_nothing_else() -> None:
    request = checked_request({**WHOLE, "card": {"reference": {"id": 1}}})

    assert request.body()["card"] == {"reference": {"id": 1}}


@pytest.mark.parametrize(
    ("entity", "change", "code"),
    [
        ("card", {"pan": "4242 4242"}, "card.pan.format"),
        ("card", {"expiration_month": "13"}, "card.expiration_month.format"),
        ("card", {"expiration_month": "1"}, "card.expiration_month.format"),
        ("card", {"expiration_year": "2029"}, "card.expiration_year.format"),
        ("card", {"cvv": "12"}, "card.cvv.format"),
        ("card", {"cvv": 123}, "card.cvv.format"),
        ("card", {"cvv_hash": "x"}, "card.property.unknown"),
        ("card", {"reference": "7"}, "card.reference.format"),
        ("address", {"country": "Mexico"}, "address.country.unknown"),
        ("address", {"city": ""}, "address.city.missing"),
        ("address", {"is_primary": "TRUE"}, "address.is_primary.format"),
        ("cardholder", {"first_name": ""}, "cardholder.first_name.missing"),
    ],
)
def test_a_broken_rule_is_named_with_entity_and_property(
    entity: str, change: dict[str, Any], code: str
) -> None:
    told = codes({**WHOLE, entity: {**WHOLE[entity], **change}})

    assert told == code


@pytest.mark.parametrize("country", COUNTRIES)
def test_each_of_the_eight_country_values_is_taken(country: str) -> None:
    request = checked_request({**WHOLE, "address": {**ADDRESS, "country": country}})

    assert request.body()["address"]["country"] == country


@pytest.mark.parametrize(
    ("expiration", "right"),
    [
        ({"month": "12", "day": "31", "year": "2026"}, True),
        ({"day": "9"}, True),
        ({}, True),
        ({"month": "0"}, False),
        ({"day": "32"}, False),
        ({"year": "26"}, False),
    ],
)
def test_an_expiration_is_of_two_four_and_up_to_two_digits(
    expiration: dict[str, str], right: bool
) -> None:
    plain = {**WHOLE, "expiration": expiration}

    if right:
        assert checked_request(plain).body()["expiration"] == expiration
    else:
        assert codes(plain).startswith("expiration.")


def test_a_refined_row_becomes_a_request() -> None:
    request = link_request({**GOOD, **PHONE})

    assert request.body() == {
        "cardholder": {"cuid": "c-1", "first_name": "Ada", "last_name": "Byron"},
        "address": {**ADDRESS, "is_primary": True},
        "card": {
            "reference": None,
            "pan": "4242424242424242",
            "expiration_month": "11",
            "expiration_year": "29",
            "name_on_card": "Ada Byron",
            "nickname": "Card ending in 4242",
            "cvv": "123",
        },
    }


def test_a_row_without_a_phone_number_is_told_so() -> None:
    with pytest.raises(LinkRequestError, match=r"address\.phone_number\.missing"):
        link_request(GOOD)


@given(
    st.dictionaries(st.sampled_from(sorted(GOOD)), st.text(max_size=20) | st.none(), max_size=6),
)
def test_a_request_is_made_or_told_by_codes_without_a_value(changes: dict[str, str | None]) -> None:
    marked = {name: value and f"QX{value}XQ" for name, value in changes.items()}

    try:
        shown = repr(link_request({**GOOD, **PHONE, **marked}))
    except LinkRequestError as error:
        shown = f"{error!r} {error} {error.__cause__} {error.__context__}"

    assert "QX" not in shown
