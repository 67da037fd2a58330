"""The interface, statement by statement: bulk files and their results, the challenges at a link.

They are held against the practice service's portal by plain HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations

import pytest

from tests.other_partner.caller import ROW, Caller, calling

CARD = "service_card."
ADDRESS = "service_card.address."
REQUIRED = (
    *[f"{CARD}{name}" for name in ("pan", "expiration_year", "expiration_month")],
    *[f"{ADDRESS}{name}" for name in ("address1", "city", "subnational", "country")],
    *[f"{ADDRESS}{name}" for name in ("postal_code", "first_name", "last_name", "is_primary")],
)
CANADA = {f"{ADDRESS}subnational": "ON", f"{ADDRESS}postal_code": "M5V 2T6"}
ACCEPTED: tuple[dict[str, str], ...] = (
    *({name: ""} for name in ROW if name not in REQUIRED and ROW[name]),
    {f"{CARD}customer_key": "k-1"},
    {f"{CARD}cvv": "123", f"{CARD}cvv_hash": ""},
    {f"{CARD}cvv": "", f"{CARD}cvv_hash": ""},
    {f"{ADDRESS}is_primary": "FALSE"},
    *({f"{ADDRESS}country": country} for country in ("usa", "USA", "us", "US")),
    *({f"{ADDRESS}country": country, **CANADA} for country in ("canada", "Canada", "ca", "CA")),
)
REFUSED: tuple[dict[str, str], ...] = (
    {f"{CARD}expiration_year": "2036"},
    {f"{CARD}expiration_month": "13"},
    {f"{ADDRESS}country": "Mexico"},
    {f"{ADDRESS}country": "uSA"},
    {f"{ADDRESS}is_primary": "yes"},
)
KNOWN = {
    "CVV": ("123", "321"),
    "ZIP Code": ("02108", "02109"),
    "PAN Last 4": ("1111", "1112"),
    "PAN Last 5": ("11111", "1111"),
    "Expiration Date": ("12/36", "11/36"),
}


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with calling() as caller:
        yield caller


@pytest.mark.slow
@pytest.mark.parametrize("column", REQUIRED)
def test_a_row_without_a_required_value_gets_no_link(caller: Caller, column: str) -> None:
    bad, good = caller.results([{**ROW, column: ""}, {**ROW, "cardholder.cuid": "b-2"}])

    assert ROW["cardholder.cuid"] in bad.pop("error")
    assert {""} == set(bad.values())
    assert good["url"].startswith("https://")


@pytest.mark.slow
@pytest.mark.parametrize("changes", ACCEPTED, ids=json.dumps)
def test_an_allowed_row_gets_a_link_that_ends_in_two_months(
    caller: Caller, changes: dict[str, str]
) -> None:
    (result,) = caller.results([{**ROW, **changes}])

    assert ["cuid", "last_4", "url", "expiration_date", "error"] == list(result)
    assert ("1111", "2027-01-20", "") == tuple(
        result[name] for name in ("last_4", "expiration_date", "error")
    )
    assert result["url"].startswith("https://")
    assert result["cuid"]  # generated where there is none


@pytest.mark.slow
@pytest.mark.parametrize("changes", REFUSED, ids=json.dumps)
def test_a_row_that_is_not_as_documented_gets_an_error(
    caller: Caller, changes: dict[str, str]
) -> None:
    (result,) = caller.results([{**ROW, **changes}])

    assert ("", True) == (result["url"], bool(result["error"]))


@pytest.mark.slow
def test_a_thousand_cardholders_go_into_a_file_and_not_one_more(caller: Caller) -> None:
    rows = [{**ROW, "cardholder.cuid": f"k-{number}"} for number in range(1001)]

    results = caller.results(rows[:1000])

    assert [row["cardholder.cuid"] for row in rows[:1000]] == [line["cuid"] for line in results]
    assert 1000 == len({line["url"] for line in results})
    assert 400 <= caller.upload(rows).status_code < 500


@pytest.mark.slow
def test_what_is_not_encrypted_may_hold_test_cards_only(caller: Caller) -> None:
    invented = {**ROW, "service_card.pan": "4929000000001239"}

    assert 400 <= caller.upload([invented]).status_code < 500


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("CVV", "ZIP Code"), *combinations(KNOWN, 1)], ids=str)
def test_each_challenge_is_passed_by_its_answer_alone(asked: tuple[str, ...]) -> None:
    right = {name: KNOWN[name][0] for name in asked}
    wrong = [{**right, name: KNOWN[name][1]} for name in asked]
    is_usual = len(asked) > 1
    with calling(**({} if is_usual else {"challenges": asked})) as caller:
        link = caller.create().json()["id"]

        opens = [caller.opens(link, answers) for answers in ({}, *wrong, right)]

    assert [False] * (len(opens) - 1) + [True] == opens
