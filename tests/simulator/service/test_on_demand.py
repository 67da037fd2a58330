"""Section 2.8 of interface.md: a single link on demand, every object and every field."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.service import running_service
from tests.simulator.service.visits import Visit, refusal, visiting


def request(visit: Visit, **changes: Any) -> dict[str, Any]:
    """Return a whole request; `changes` replace objects, or single fields as `card__pan`."""
    whole: dict[str, Any] = {
        "service": {"service_server": "https://api.example.com", **visit.service.client._asdict()},
        "cardholder": {
            "cuid": "c-1",
            "first_name": "Ada",
            "last_name": "Byron",
            "email": "ada@example.com",
        },
        "address": {
            "address1": "1 Main St",
            "city": "Boston",
            "subnational": "MA",
            "postal_code": "02108",
            "country": "US",
            "phone_number": "617-555-0100",
        },
        "card": {
            "reference": None,
            "pan": "4242424242424242",
            "expiration_month": "11",
            "expiration_year": "29",
            "name_on_card": "Ada Byron",
            "nickname": "Everyday",
            "cvv": "007",
        },
        "financial_institution_key": "bank",
    }
    for name, value in changes.items():
        entity, _, field = name.partition("__")
        if field:
            whole[entity] = {**whole[entity], field: value}
        else:
            whole[entity] = value
    return whole


def without(whole: dict[str, Any], entity: str, field: str) -> dict[str, Any]:
    shorter = deepcopy(whole)
    del shorter[entity][field]
    return shorter


def test_a_link_on_demand_is_returned_whole_and_can_be_looked_up(visit: Visit) -> None:
    answer = visit.http.post("/card_links", json=request(visit))

    record = answer.json()
    assert 201 == answer.status_code
    assert f"https://links.example.com/l/{record['id']}" == record["url"]
    assert record["cardholder_long_token"]
    assert record == visit.http.get(f"/card_links/{record['id']}").json()


def test_a_link_on_demand_opens_with_what_its_cardholder_knows(visit: Visit) -> None:
    record = visit.http.post("/card_links", json=request(visit)).json()

    answer = visit.http.post(
        f"/l/{record['id']}/challenges", json={"answers": {"CVV": "007", "ZIP Code": "02108"}}
    )

    assert 200 == answer.status_code


def test_a_link_without_expiration_ends_two_months_after_its_creation(visit: Visit) -> None:
    assert (
        "2027-01-20"
        == visit.http.post("/card_links", json=request(visit)).json()["expiration_date"]
    )


def test_a_link_ends_on_the_day_that_is_asked_for(visit: Visit) -> None:
    ends = {"month": "12", "day": "1", "year": "2026"}

    record = visit.http.post("/card_links", json=request(visit, expiration=ends)).json()

    assert "2026-12-01" == record["expiration_date"]


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ({"month": "02", "day": "30", "year": "2027"}, ("expiration", "day")),
        ({"month": "11", "day": "19", "year": "2026"}, ("expiration", "day")),
        ({"month": "13", "day": "1", "year": "2027"}, ("expiration", "month")),
        ({"month": "1", "day": "1", "year": "2027"}, ("expiration", "month")),
        ({"month": "01", "day": "32", "year": "2027"}, ("expiration", "day")),
        ({"month": "01", "day": "1", "year": "27"}, ("expiration", "year")),
    ],
)
def test_a_day_that_is_none_or_has_gone_by_is_refused(
    visit: Visit, ends: dict[str, str], named: tuple[str, str]
) -> None:
    answer = visit.http.post("/card_links", json=request(visit, expiration=ends))

    assert (422, [named]) == refusal(answer)


@pytest.mark.parametrize(
    "missing", ["service", "cardholder", "address", "card", "financial_institution_key"]
)
def test_every_required_object_must_be_there(visit: Visit, missing: str) -> None:
    whole = request(visit)
    del whole[missing]

    assert (422, [("body", missing)]) == refusal(visit.http.post("/card_links", json=whole))


@pytest.mark.parametrize(
    ("entity", "field"),
    [
        ("service", "service_server"),
        ("service", "app_name"),
        ("service", "app_key"),
        ("service", "username"),
        ("service", "password"),
        ("cardholder", "first_name"),
        ("cardholder", "last_name"),
        ("address", "address1"),
        ("address", "city"),
        ("address", "subnational"),
        ("address", "postal_code"),
        ("address", "country"),
        ("address", "phone_number"),
        ("card", "reference"),
        ("card", "pan"),
        ("card", "expiration_month"),
        ("card", "expiration_year"),
        ("card", "name_on_card"),
        ("card", "nickname"),
    ],
)
def test_a_required_field_that_is_missing_is_named_with_its_object(
    visit: Visit, entity: str, field: str
) -> None:
    answer = visit.http.post("/card_links", json=without(request(visit), entity, field))

    assert (422, [(entity, field)]) == refusal(answer)


@pytest.mark.parametrize(
    ("entity", "field"), [("cardholder", "cuid"), ("cardholder", "email"), ("card", "cvv")]
)
def test_an_optional_field_may_be_missing(visit: Visit, entity: str, field: str) -> None:
    answer = visit.http.post("/card_links", json=without(request(visit), entity, field))

    assert 201 == answer.status_code


@pytest.mark.parametrize(
    ("field", "value"), [("address2", "Apt 4"), ("is_primary", False), ("email", "a@example.com")]
)
def test_optional_fields_of_the_address_are_taken(visit: Visit, field: str, value: object) -> None:
    answer = visit.http.post("/card_links", json=request(visit, **{f"address__{field}": value}))

    assert 201 == answer.status_code


@pytest.mark.parametrize("country", ["usa", "USA", "us", "US", "canada", "Canada", "ca", "CA"])
def test_each_of_the_eight_country_values_is_taken(visit: Visit, country: str) -> None:
    assert (
        201
        == visit.http.post("/card_links", json=request(visit, address__country=country)).status_code
    )


@pytest.mark.parametrize(
    ("change", "value", "named"),
    [
        ("address__country", "Usa", ("address", "country")),
        ("card__pan", "4242424242424241", ("card", "pan")),
        ("card__pan", "4242 4242 4242 4242", ("card", "pan")),
        ("card__expiration_month", "1", ("card", "expiration_month")),
        ("card__expiration_year", "2029", ("card", "expiration_year")),
        ("card__expiration_year", "25", ("card", "expiration")),
        ("card__cvv", "12", ("card", "cvv")),
        ("service__service_server", "http://api.example.com", ("service", "service_server")),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_place_and_never_repeated(
    visit: Visit, change: str, value: str, named: tuple[str, str]
) -> None:
    answer = visit.http.post("/card_links", json=request(visit, **{change: value}))

    assert (422, [named]) == refusal(answer)
    assert value not in answer.text


def test_all_faults_of_a_request_are_told_at_once(visit: Visit) -> None:
    whole = request(visit, card__pan=None, card__nickname=None, address__country="Usa")

    found = refusal(visit.http.post("/card_links", json=whole))

    assert (422, [("card", "pan"), ("card", "nickname"), ("address", "country")]) == found


def test_a_card_is_referred_to_instead_of_sent_again(visit: Visit) -> None:
    first = visit.http.post("/card_links", json=request(visit)).json()

    answer = visit.http.post(
        "/card_links", json=request(visit, card={"reference": {"id": first["card_id"]}})
    )

    assert (201, first["card_id"]) == (answer.status_code, answer.json()["card_id"])


def test_a_reference_to_no_card_is_refused(visit: Visit) -> None:
    answer = visit.http.post(
        "/card_links", json=request(visit, card={"reference": {"id": 999_999}})
    )

    assert (422, [("card", "reference")]) == refusal(answer)


def test_a_request_without_cuid_gets_one_made_up(visit: Visit) -> None:
    whole = without(request(visit), "cardholder", "cuid")
    hydrated = {"x-service-hydration": '["card", "card.cardholder"]'}

    links = [visit.http.post("/card_links", json=whole).json()["id"] for _ in range(2)]

    records = [visit.http.get(f"/card_links/{link}", headers=hydrated).json() for link in links]
    cuids = {record["card"]["cardholder"]["cuid"] for record in records}
    assert 2 == len(cuids)
    assert {"made-"} == {cuid[:5] for cuid in cuids}


def test_the_same_cuid_is_the_same_cardholder_with_another_link(visit: Visit) -> None:
    first, second = (visit.http.post("/card_links", json=request(visit)).json() for _ in range(2))

    assert first["cardholder_id"] == second["cardholder_id"]
    assert first["id"] != second["id"]


def test_a_service_object_with_other_credentials_is_refused(visit: Visit) -> None:
    answer = visit.http.post("/card_links", json=request(visit, service__password="other"))

    assert (401, [("service", "")]) == refusal(answer)


@pytest.mark.parametrize("value", [None, "reserved"])
def test_the_safe_key_may_be_null_or_a_string(visit: Visit, value: str | None) -> None:
    assert 201 == visit.http.post("/card_links", json=request(visit, safe_key=value)).status_code


def test_a_financial_institution_that_is_not_configured_is_refused() -> None:
    with running_service(fi_key="bank") as service, visiting(service) as visit:
        right = visit.http.post("/card_links", json=request(visit))
        wrong = visit.http.post(
            "/card_links", json=request(visit, financial_institution_key="other")
        )

    assert 201 == right.status_code
    assert (422, [("financial_institution", "key")]) == refusal(wrong)


def test_the_property_names_the_document_leaves_open_are_settings() -> None:
    spoken = {
        "names": {"request": {"fi_key": ["fi"], "safe_key": ["safe"], "service": ["integrator"]}},
    }

    with running_service(settings=spoken) as service, visiting(service) as visit:
        whole = request(visit)
        renamed = {
            "integrator": whole.pop("service"),
            "fi": whole.pop("financial_institution_key"),
            "safe": None,
        }
        answer = visit.http.post("/card_links", json=whole | renamed)

    assert 201 == answer.status_code


def test_a_reference_to_the_card_of_another_cardholder_is_refused(visit: Visit) -> None:
    first = visit.http.post("/card_links", json=request(visit)).json()
    other = {"cuid": "c-2", "first_name": "Charles", "last_name": "Babbage"}

    whole = request(visit, cardholder=other, card={"reference": {"id": first["card_id"]}})

    assert (422, [("card", "reference")]) == refusal(visit.http.post("/card_links", json=whole))
