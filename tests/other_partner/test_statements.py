"""The interface, statement by statement: single links and the jobs that follow from them.

They are held against the practice service by plain HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.other_partner.caller import GOOD, JOB, Caller, calling, changed

REQUIRED = (
    *[f"service.{name}" for name in ("service_server", *GOOD["service"])],
    "cardholder.first_name",
    "cardholder.last_name",
    *[f"address.{name}" for name in GOOD["address"]],
    *[f"card.{name}" for name in GOOD["card"] if name != "cvv"],
    *["service", "cardholder", "address", "card", "financial_institution_key"],
)
ACCEPTED: tuple[dict[str, Any], ...] = (
    {},
    {"card.cvv": None},
    {"cardholder.cuid": None},
    {"cardholder.email": "ann@example.com"},
    {"address.address2": "Flat 2"},
    {"address.is_primary": True},
    {"address.is_primary": False},
    {"address.email": "ann@example.com"},
    {"expiration": {"month": "01", "day": "31", "year": "2027"}},
    {"expiration": {"month": "02", "day": "1", "year": "2027"}},
    {"safe_key": None},
    *({"address.country": country} for country in ("usa", "USA", "us", "US")),
    *(
        {"address.country": country, "address.subnational": "ON", "address.postal_code": "M5V 2T6"}
        for country in ("canada", "Canada", "ca", "CA")
    ),
)
REFUSED: tuple[dict[str, Any], ...] = (
    {"address.country": "Mexico"},
    {"address.country": "uSa"},
    {"card.pan": "4111111111111112"},
    {"card.pan": "41111111"},
    {"card.expiration_month": "13"},
    {"card.expiration_month": "1"},
    {"card.expiration_year": "2036"},
    {"expiration": {"month": "13", "day": "1", "year": "2027"}},
    {"expiration": {"month": "02", "day": "31", "year": "2027"}},
    {"expiration": {"month": "01", "day": "1", "year": "27"}},
    {"service.password": "wrong"},
    {"service.app_key": "wrong"},
)
RECORD = {"id": int, "cardholder_id": int, "card_id": int, "account_id": int, "type": str} | {
    **{"status": str, "percent_complete": int, "auth_percent_complete": int},
    **{"status_message": str, "created_on": str, "last_updated_on": str},
    "credential_requests": list,
}
MESSAGE = {"status": str, "percent_complete": int, "auth_percent_complete": int} | {
    "job_timeout": int,
    "status_message": str,
}
SITES = {
    "shop.example.com": ("SUCCESSFUL", "BILLABLE"),
    "video.example.com": ("SUCCESSFUL", "BILLABLE"),
    "music.example.com": ("SUCCESSFUL", "BILLABLE"),
    "travel.example.com": ("SUCCESSFUL", "BILLABLE"),
    "again.example.com": ("DUPLICATE_CARD", "USER_DATA_FAILURE"),
    "broken.example.com": ("", "SITE_INTERACTION_FAILURE"),
    "down.example.com": ("", "PROCESS_FAILURE"),
}


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with calling() as caller:
        yield caller


@pytest.mark.slow
@pytest.mark.parametrize("path", REQUIRED)
def test_a_required_property_of_a_link_is_required(caller: Caller, path: str) -> None:
    body = changed(caller.service.address, {})
    *outer, name = path.split(".")
    del (body[outer[0]] if outer else body)[name]

    answer = caller.http.post("/card_links", json=body)

    assert 400 <= answer.status_code < 500


@pytest.mark.slow
@pytest.mark.parametrize("changes", ACCEPTED, ids=json.dumps)
def test_an_allowed_request_makes_a_link_that_is_usable_at_once(
    caller: Caller, changes: dict[str, Any]
) -> None:
    answer = caller.create(**{"cardholder.cuid": None, **changes})

    assert 200 <= answer.status_code < 300, answer.text
    assert answer.json()["cardholder_long_token"]


@pytest.mark.slow
@pytest.mark.parametrize("changes", REFUSED, ids=json.dumps)
def test_a_request_that_is_not_as_documented_makes_no_link(
    caller: Caller, changes: dict[str, Any]
) -> None:
    assert 400 <= caller.create(**changes).status_code < 500


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ['["card"]', '["card.cardholder"]', '["card", "card.cardholder"]']
)
def test_a_link_is_read_with_what_its_header_asks_for(caller: Caller, value: str) -> None:
    link = caller.create(**{"cardholder.cuid": None}).json()

    plain = caller.http.get(f"/card_links/{link['id']}").json()
    record = caller.http.get(f"/card_links/{link['id']}", headers={"x-service-hydration": value})

    assert link["cardholder_long_token"] == plain["cardholder_long_token"]
    assert isinstance(record.json()["card"], dict)
    assert ("cardholder" in value) == isinstance(record.json()["card"].get("cardholder"), dict)


@pytest.mark.slow
@pytest.mark.parametrize("field", RECORD)
def test_a_job_record_has_each_field(caller: Caller, field: str) -> None:
    record = caller.record(caller.job())

    assert isinstance(record[field], RECORD[field])


@pytest.mark.slow
@pytest.mark.parametrize("field", MESSAGE)
def test_a_status_message_and_a_request_have_each_property(caller: Caller, field: str) -> None:
    job = caller.job("video.example.com")  # asks twice
    caller.answer(job, caller.record(job)["credential_requests"][0])
    caller.service.advance(60)

    messages = caller.messages(job)

    kinds = {message["type"] == "job_status" for message in messages}
    assert {True, False} == kinds
    assert all(isinstance(message["message"][field], MESSAGE[field]) for message in messages)


@pytest.mark.slow
@pytest.mark.parametrize("site", SITES)
def test_a_job_blocks_until_it_is_answered_and_ends_as_documented(
    caller: Caller, site: str
) -> None:
    status, end = SITES[site]
    job = caller.job(site)
    ended = caller.record(job)
    for _ in range(60):
        ended = caller.record(job)
        if ended["termination_type"]:
            break
        pending = ended["credential_requests"]
        assert bool(pending) == ended["status"].startswith("PENDING")
        for request in pending:
            assert {"envelope_id", "account_link", "job_id", "type", "message"} <= request.keys()
            assert caller.answer(job, request).is_success
        caller.service.advance(10)

    finals = [m for m in caller.messages(job) if m["message"].get("termination_type")]
    assert (end, [end]) == (
        ended["termination_type"],
        [final["message"]["termination_type"] for final in finals],
    )
    assert status in ("", ended["status"])
    assert [] == caller.messages(job)


@pytest.mark.slow
def test_a_request_stays_and_a_status_message_is_given_once(caller: Caller) -> None:
    job = caller.job()
    first = caller.messages(job)
    second = caller.messages(job)

    requests = [message for message in first if message["type"] != "job_status"]
    assert requests
    assert [m["envelope_id"] for m in requests] == [m["envelope_id"] for m in second]
    assert "credential_requests" not in caller.record(job, hydrated=False)


@pytest.mark.slow
def test_a_request_may_be_answered_by_message_and_without_an_envelope_nothing_is(
    caller: Caller,
) -> None:
    job = caller.job()
    (request,) = caller.record(job)["credential_requests"]
    values = {prompt["key_name"]: "right" for prompt in request["account_link"]}
    caller.http.put(f"{JOB}{job}", json={"account": {"account_link": values}})
    still = caller.record(job)["credential_requests"]
    answer = {"job_id": job, "envelope_id": request["envelope_id"], "account_link": values}

    posted = caller.http.post(f"/messages{JOB}{job}/credential_responses", json=answer)

    assert [request["envelope_id"]] == [pending["envelope_id"] for pending in still]
    assert posted.is_success
    assert [] == caller.record(job)["credential_requests"]


@pytest.mark.slow
def test_a_broadcast_needs_its_key_and_takes_nothing_from_others(caller: Caller) -> None:
    job = caller.job()
    path = f"/messages{JOB}{job}/broadcasts"
    (key,) = caller.http.get(f"{path}/registrations").json().values()
    caller.answer(job, caller.record(job)["credential_requests"][0])
    caller.service.advance(10)

    without = caller.http.get(path)
    heard = caller.http.get(path, headers={"service-messaging-access-key": key}).json()

    assert 400 <= without.status_code < 500
    elements = heard if isinstance(heard, list) else heard["messages"]
    assert {"job_status"} == {message["type"] for message in elements}
    assert [m for m in caller.messages(job) if m["type"] == "job_status"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/card_links/nobody", f"{JOB}999999999", f"/messages{JOB}999999999"]
)
def test_nothing_is_answered_for_an_id_that_nobody_has_nor_without_a_session(
    caller: Caller, path: str
) -> None:
    anonymous = httpx.get(f"{caller.service.address}{path}", trust_env=False)

    assert (404, 401) == (caller.http.get(path).status_code, anonymous.status_code)
