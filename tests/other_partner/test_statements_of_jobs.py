"""The interface, statement by statement: sessions, messages, polling, answers and time limits.

They are held against the practice service by plain HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from tests.other_partner.caller import GOOD, JOB, Caller, calling

# by site: the answer that leads there, the type in messages, the one when polled, the key names
ASKS = {
    "shop.example.com": (0, "initial_account_link", "initial_account_link"),
    "video.example.com": (1, "tfa_request", "tfa"),
    "music.example.com": (1, "tfa_message", "tfa_message"),
    "travel.example.com": (1, "security", "security"),
}
KEYS = {
    "shop.example.com": ["username", "password"],
    "video.example.com": ["tfa"],
    "music.example.com": ["tfa_message"],
    "travel.example.com": ["security_1", "security_2"],
}


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with calling(session_seconds=1e9) as caller:
        yield caller


def requested(caller: Caller, job: int) -> list[dict[str, Any]]:
    return [message for message in caller.messages(job) if message["type"] != "job_status"]


def answered(caller: Caller, site: str) -> int:
    """Start a job and answer its first requests, until the one that ASKS names is there."""
    job = caller.job(site)
    for _ in range(ASKS[site][0]):
        (request,) = caller.record(job)["credential_requests"]
        caller.answer(job, request)
        caller.service.advance(20)
    return job


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD["service"])
def test_a_session_is_for_those_who_are_known_in_all_four_values(caller: Caller, name: str) -> None:
    credentials = {**GOOD["service"], name: "another"}

    assert 401 == caller.http.post("/session", json=credentials).status_code


@pytest.mark.slow
@pytest.mark.parametrize("site", ASKS)
def test_a_request_has_its_type_its_envelope_and_its_keys(caller: Caller, site: str) -> None:
    job = answered(caller, site)

    (by_message,), (polled,) = requested(caller, job), caller.record(job)["credential_requests"]

    assert ASKS[site][1:] == (by_message["type"], polled["type"])
    assert str(UUID(by_message["envelope_id"])) == by_message["envelope_id"]
    assert by_message["envelope_id"] == polled["envelope_id"]
    assert KEYS[site] == [prompt["key_name"] for prompt in by_message["account_link"]]
    assert by_message["account_link"] == polled["account_link"]


@pytest.mark.slow
@pytest.mark.parametrize("site", ASKS)
def test_a_request_has_a_label_for_each_value_and_a_status_that_begins_with_pending(
    caller: Caller, site: str
) -> None:
    job = answered(caller, site)

    (request,) = requested(caller, job)

    prompts = request["account_link"]
    assert all(isinstance(prompt["label"], str) and prompt["label"] for prompt in prompts)
    assert all(isinstance(prompt["secret"], bool) for prompt in prompts)
    assert all(prompt["secret"] for prompt in prompts if prompt["key_name"] == "password")
    assert request["message"]["status"].startswith("PENDING")
    assert request["message"]["status_message"]
    assert job == request["job_id"]


@pytest.mark.slow
@pytest.mark.parametrize("site", ASKS)
def test_the_requests_of_a_job_are_read_apart_from_its_messages(caller: Caller, site: str) -> None:
    job = answered(caller, site)
    path = f"/messages{JOB}{job}/credential_requests"

    first, second = (caller.http.get(path).json() for _ in range(2))

    assert first == second
    (request,) = first
    (by_message,) = requested(caller, job)
    for name in ("type", "job_id", "envelope_id", "account_link"):
        assert by_message[name] == request[name]


@pytest.mark.slow
def test_a_status_message_names_its_job_and_only_the_last_says_how_it_ended(
    caller: Caller,
) -> None:
    job = caller.job()
    first = caller.messages(job)
    (request,) = caller.record(job)["credential_requests"]
    caller.answer(job, request)
    for _ in range(10):
        caller.service.advance(10)

    statuses = [m for m in [*first, *caller.messages(job)] if m["type"] == "job_status"]

    assert {job} == {message["job_id"] for message in statuses}
    ends = [message["message"].get("termination_type") for message in statuses]
    assert [None] * (len(ends) - 1) + ["BILLABLE"] == ends


@pytest.mark.slow
def test_updating_comes_when_authentication_has_succeeded(caller: Caller) -> None:
    job = caller.job()
    (request,) = caller.record(job)["credential_requests"]
    caller.answer(job, request)
    seen = []
    for _ in range(20):
        record = caller.record(job)
        seen.append((record["status"], record["auth_percent_complete"]))
        caller.service.advance(2)

    assert "UPDATING" in dict(seen)
    for status, percent in seen:
        assert (status in ("UPDATING", "SUCCESSFUL")) == (percent == 100)


@pytest.mark.slow
def test_a_running_job_shows_that_it_runs_without_news(caller: Caller) -> None:
    job = caller.job("idle.example.com")
    caller.messages(job)
    caller.service.advance(60)

    heartbeats = caller.messages(job)

    assert len(heartbeats) > 1
    assert 1 == len({message["message"]["status"] for message in heartbeats})


@pytest.mark.slow
def test_a_job_has_five_minutes_and_more_where_it_asks(caller: Caller) -> None:
    silent, asking = caller.job("idle.example.com"), caller.job()
    caller.service.advance(10)

    (status, *_) = [m for m in caller.messages(silent) if m["type"] == "job_status"]
    (request,) = requested(caller, asking)

    assert 280 < status["message"]["job_timeout"] <= 300
    assert request["message"]["job_timeout"] > 300


@pytest.mark.slow
def test_a_request_that_nobody_answers_ends_the_job_by_timeout(caller: Caller) -> None:
    job = answered(caller, "video.example.com")
    caller.service.advance(1200)

    record = caller.record(job)

    assert ("TIMEOUT_TFA", "USER_DATA_FAILURE") == (record["status"], record["termination_type"])
    assert [] == record["credential_requests"]


@pytest.mark.slow
def test_a_wrong_password_asks_for_new_credentials_under_another_envelope(caller: Caller) -> None:
    job = caller.job()
    (first,) = caller.record(job)["credential_requests"]
    values = {"username": "right", "password": "wrong"}
    header = {"x-service-envelope-id": first["envelope_id"]}
    body = {"account": {"account_link": values}}
    updated = caller.http.put(f"{JOB}{job}", headers=header, json=body).json()
    caller.service.advance(20)

    record = caller.record(job)

    assert job == updated["id"]
    assert "PENDING_NEWCREDS" == record["status"]
    assert first["envelope_id"] != record["credential_requests"][0]["envelope_id"]


@pytest.mark.slow
def test_an_answer_under_a_foreign_envelope_leaves_the_request(caller: Caller) -> None:
    job = caller.job()
    (request,) = caller.record(job)["credential_requests"]
    foreign = {**request, "envelope_id": str(UUID(int=7))}

    assert 400 <= caller.answer(job, foreign).status_code < 500
    assert [request["envelope_id"]] == [
        pending["envelope_id"] for pending in caller.record(job)["credential_requests"]
    ]


@pytest.mark.slow
def test_polling_takes_no_message_from_those_who_read_them(caller: Caller) -> None:
    job = caller.job("idle.example.com")
    caller.service.advance(30)
    for _ in range(3):
        caller.record(job)

    assert caller.messages(job)


@pytest.mark.slow
def test_a_job_record_is_of_a_card_placement_and_dated_and_null_until_it_ends(
    caller: Caller,
) -> None:
    job = caller.job()
    running = caller.record(job)
    caller.service.advance(1200)
    ended = caller.record(job)

    assert ("CARD_PLACEMENT", job, None) == tuple(
        running[name] for name in ("type", "id", "termination_type")
    )
    assert ended["termination_type"] in ("BILLABLE", "USER_DATA_FAILURE")
    created, updated = (
        datetime.fromisoformat(ended[name]) for name in ("created_on", "last_updated_on")
    )
    assert created < updated


@pytest.mark.slow
def test_the_messages_of_a_cardholder_are_those_of_all_its_jobs(caller: Caller) -> None:
    jobs = caller.jobs("shop.example.com", "video.example.com")
    cardholder = caller.record(jobs[0])["cardholder_id"]
    path = f"/messages/cardholders/{cardholder}"

    first, second = (caller.http.get(path).json() for _ in range(2))

    assert set(jobs) == {message["job_id"] for message in first}
    assert [] == [message for message in second if message["type"] == "job_status"]
    assert set(jobs) == {message["job_id"] for message in second}


@pytest.mark.slow
def test_two_channels_hear_the_same_and_a_key_of_another_job_hears_nothing(caller: Caller) -> None:
    job, other = caller.job("idle.example.com"), caller.job("idle.example.com")
    path = f"/messages{JOB}{job}/broadcasts"
    keys = [next(iter(caller.http.get(f"{path}/registrations").json().values())) for _ in "ab"]
    caller.service.advance(30)

    heard = [
        caller.http.get(path, headers={"service-messaging-access-key": key}).json() for key in keys
    ]
    foreign = caller.http.get(
        f"/messages{JOB}{other}/broadcasts", headers={"service-messaging-access-key": keys[0]}
    )

    assert heard[0] == heard[1] != []
    assert 400 <= foreign.status_code < 500


@pytest.mark.slow
def test_a_link_by_reference_needs_no_card_number(caller: Caller) -> None:
    first = caller.create(**{"cardholder.cuid": "again"}).json()
    header = {"x-service-hydration": '["card"]'}
    card = caller.http.get(f"/card_links/{first['id']}", headers=header).json()["card"]
    nothing = dict.fromkeys([f"card.{name}" for name in GOOD["card"] if name != "reference"], None)

    second = caller.create(
        **{"cardholder.cuid": "again", **nothing, "card.reference": {"id": card["id"]}}
    )

    assert second.is_success, second.text
    assert first["cardholder_long_token"] != second.json()["cardholder_long_token"]


@pytest.mark.slow
def test_a_link_without_an_expiration_ends_two_months_after_its_creation(caller: Caller) -> None:
    link = caller.create(**{"cardholder.cuid": None}).json()

    assert "2027-01-20" == link["expiration_date"]
