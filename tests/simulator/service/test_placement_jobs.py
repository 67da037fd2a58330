"""Sections 2.1 to 2.5, 3, 4 and 8 of interface.md: the job record, its answers, its time and its
ends.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from flows.extensions.partner_api.profile import JOB_MESSAGES, JOBS
from tests.simulator.service.visits import Visit, refusal


def test_the_record_of_a_job_has_the_fields_of_the_document(visit: Visit) -> None:
    held = visit.verified()
    (started,) = visit.place(held, "shop.example.com")

    record = visit.record(started["id"])

    assert started == record
    ids = [record[name] for name in ("id", "cardholder_id", "card_id", "account_id")]
    assert [int] * 4 == [type(one) for one in ids]
    assert ("CARD_PLACEMENT", "PENDING", None) == (
        record["type"],
        record["status"],
        record["termination_type"],
    )
    assert (0, 0, "Sign in to the site.") == (
        record["percent_complete"],
        record["auth_percent_complete"],
        record["status_message"],
    )
    assert None is not datetime.fromisoformat(record["created_on"]).tzinfo
    assert record["created_on"] <= record["last_updated_on"]


def test_polling_holds_the_credential_requests_only_where_the_header_is_sent(visit: Visit) -> None:
    job = visit.job()

    plain, hydrated = visit.record(job), visit.record(job, poll=True)

    assert "credential_requests" not in plain
    assert [job] == [request["job_id"] for request in hydrated["credential_requests"]]


def test_polling_is_stateless(visit: Visit) -> None:
    job = visit.job()

    assert visit.record(job, poll=True) == visit.record(job, poll=True)


def test_a_hydration_header_that_asks_for_something_else_is_refused(visit: Visit) -> None:
    job = visit.job()

    answer = visit.http.get(f"{JOBS}/{job}", headers={"x-service-hydration": "true"})

    assert (422, [("header", "hydration")]) == refusal(answer)


def test_a_job_waits_as_long_as_its_question_is_not_answered(visit: Visit) -> None:
    job = visit.job()

    visit.service.advance(400)

    assert ("PENDING", None) == tuple(
        visit.record(job)[name] for name in ("status", "termination_type")
    )


def test_an_update_with_the_envelope_id_answers_the_request_and_the_job_goes_on(
    visit: Visit,
) -> None:
    job = visit.job()
    request = visit.waiting(job)

    answer = visit.put(job, request["envelope_id"], {"username": "u", "password": "p"})

    assert (200, job, "AUTH") == (answer.status_code, answer.json()["id"], answer.json()["status"])
    assert [] == visit.record(job, poll=True)["credential_requests"]


def test_an_update_without_the_envelope_id_is_an_ordinary_update_and_answers_nothing(
    visit: Visit,
) -> None:
    job = visit.job()
    before = visit.waiting(job)

    answer = visit.put(job, None, {"username": "u", "password": "p"})

    assert (200, "PENDING") == (answer.status_code, answer.json()["status"])
    assert before == visit.waiting(job)


def test_a_posted_response_does_the_same_as_the_update(visit: Visit) -> None:
    job = visit.job()
    given = {"job_id": job, "envelope_id": visit.waiting(job)["envelope_id"]}

    answer = visit.http.post(
        f"{JOB_MESSAGES}/{job}/credential_responses",
        json=given | {"account_link": {"username": "u", "password": "p"}},
    )

    assert (200, "AUTH") == (answer.status_code, answer.json()["status"])


def test_a_posted_response_for_another_job_than_the_paths_is_refused(visit: Visit) -> None:
    job, other = visit.job(), visit.job()
    given = {
        "job_id": other,
        "envelope_id": visit.waiting(other)["envelope_id"],
        "account_link": {},
    }

    answer = visit.http.post(f"{JOB_MESSAGES}/{job}/credential_responses", json=given)

    assert (422, [("credential_response", "job_id")]) == refusal(answer)


def test_an_envelope_id_the_job_never_gave_is_not_found(visit: Visit) -> None:
    job, other = visit.job(), visit.job()

    answer = visit.put(job, visit.waiting(other)["envelope_id"], {"username": "u", "password": "p"})

    assert (404, [("credential_request", "envelope_id")]) == refusal(answer)


def test_an_envelope_id_that_was_answered_is_a_conflict(visit: Visit) -> None:
    job = visit.job("video.example.com")
    old = visit.waiting(job)["envelope_id"]
    visit.answer(job)
    visit.service.advance(6)

    answer = visit.put(job, old, {"tfa": "123456"})

    assert (409, [("credential_request", "envelope_id")]) == refusal(answer)
    assert "tfa" == visit.waiting(job)["type"]


def test_an_answer_that_lacks_a_key_is_refused_and_the_request_stays(visit: Visit) -> None:
    job = visit.job()
    request = visit.waiting(job)

    answer = visit.put(job, request["envelope_id"], {"username": "u"})

    assert (422, [("account_link", "password")]) == refusal(answer)
    assert request == visit.waiting(job)


def test_a_wrong_password_is_asked_for_again_with_a_new_envelope(visit: Visit) -> None:
    job = visit.job()
    first = visit.waiting(job)

    visit.answer(job, "wrong")
    visit.service.advance(6)

    again = visit.waiting(job)
    assert ("credential_request", "PENDING_NEWCREDS") == (again["type"], again["message"]["status"])
    assert first["account_link"] == again["account_link"]
    assert first["envelope_id"] != again["envelope_id"]


@pytest.mark.parametrize(
    "site", ["shop.example.com", "video.example.com", "music.example.com", "travel.example.com"]
)
def test_answers_that_stay_wrong_end_the_job_with_user_data_failure(
    visit: Visit, site: str
) -> None:
    record = visit.to_the_end(visit.job(site, credentials=site != "shop.example.com"), "wrong")

    # `ack` is never wrong
    expected = "BILLABLE" if site == "music.example.com" else "USER_DATA_FAILURE"
    assert expected == record["termination_type"]


@pytest.mark.parametrize(
    ("site", "told", "polled", "keys"),
    [
        ("video.example.com", "tfa_request", "tfa", ["tfa"]),
        ("music.example.com", "tfa_message", "tfa_message", ["tfa_message"]),
        ("travel.example.com", "security", "security", ["security_1", "security_2"]),
    ],
)
def test_each_kind_of_question_has_its_types_and_its_keys(
    visit: Visit, site: str, told: str, polled: str, keys: list[str]
) -> None:
    job = visit.job(site, credentials=True)
    visit.service.advance(6)

    (by_message,) = [one for one in visit.messages(job) if "envelope_id" in one]
    by_polling = visit.waiting(job)

    assert (told, polled) == (by_message["type"], by_polling["type"])
    assert keys == [field["key_name"] for field in by_message["account_link"]]
    assert by_message["envelope_id"] == by_polling["envelope_id"]


def test_a_message_to_the_user_comes_with_a_status_text_and_a_label_to_show(visit: Visit) -> None:
    job = visit.job("music.example.com", credentials=True)
    visit.service.advance(6)

    request = visit.waiting(job)

    assert "The site has sent you a message." == request["message"]["status_message"]
    assert ["Open the link in the message sent to your phone"] == [
        one["label"] for one in request["account_link"]
    ]


def test_an_acknowledgement_is_answered_with_tfa_ack_and_the_job_goes_on_after_a_while(
    visit: Visit,
) -> None:
    job = visit.job("music.example.com", credentials=True)
    visit.service.advance(6)

    updated = (
        visit.put(job, visit.waiting(job)["envelope_id"], {"tfa": "ack"}).raise_for_status().json()
    )
    visit.service.advance(6)

    assert ("AUTH", "UPDATING") == (updated["status"], visit.record(job)["status"])


def test_a_site_says_which_values_it_needs(visit: Visit) -> None:
    asked = visit.waiting(visit.job("music.example.com"))["account_link"]

    assert ["email", "password", "pin"] == [field["key_name"] for field in asked]


def test_a_site_may_ask_more_than_once_before_it_lets_in(visit: Visit) -> None:
    job, types = visit.job("market.example.com"), []

    while visit.record(job)["status"] != "UPDATING":
        types.append(visit.waiting(job)["type"])
        visit.answer(job)
        visit.service.advance(6)

    assert ["initial_account_link", "tfa", "security"] == types


def test_updating_is_reached_after_authentication(visit: Visit) -> None:
    job = visit.job(credentials=True)

    before = visit.record(job)
    visit.service.advance(6)
    after = visit.record(job)

    assert ("AUTH", "UPDATING") == (before["status"], after["status"])
    assert (0, 100) == (before["auth_percent_complete"], after["auth_percent_complete"])


def test_percentages_of_both_phases_never_fall_and_end_at_a_hundred(visit: Visit) -> None:
    job, seen = visit.job("market.example.com"), []

    for step in range(20):
        record = visit.record(job, poll=True)
        seen.append((record["auth_percent_complete"], record["percent_complete"]))
        if record["credential_requests"]:
            visit.answer(job, "wrong" if step == 0 else "known")
        visit.service.advance(3)

    assert sorted(seen) == seen
    assert [auth for auth, _ in seen] == sorted(auth for auth, _ in seen)
    assert (100, 100) == seen[-1]


def test_a_new_job_has_five_minutes(visit: Visit) -> None:
    job = visit.job(credentials=True)

    (message,) = visit.messages(job)

    assert 300 == message["message"]["job_timeout"]


def test_time_is_added_when_the_user_is_asked(visit: Visit) -> None:
    job = visit.job("video.example.com", credentials=True)

    visit.service.advance(6)

    assert 300 - 6 + 120 == visit.waiting(job)["message"]["job_timeout"]


def test_a_question_nobody_answers_ends_in_timeout_tfa_and_user_data_failure(visit: Visit) -> None:
    job = visit.job("video.example.com", credentials=True)
    visit.service.advance(6)
    late = visit.waiting(job)["envelope_id"]

    visit.service.advance(300 - 6 + 120)

    record = visit.record(job, poll=True)
    assert ("TIMEOUT_TFA", "USER_DATA_FAILURE") == (record["status"], record["termination_type"])
    assert [] == record["credential_requests"]
    assert 409 == visit.put(job, late, {"tfa": "123456"}).status_code


@pytest.mark.parametrize(
    ("site", "status", "termination_type"),
    [
        ("shop.example.com", "SUCCESSFUL", "BILLABLE"),
        ("again.example.com", "DUPLICATE_CARD", "USER_DATA_FAILURE"),
        ("broken.example.com", "UNSUCCESSFUL", "SITE_INTERACTION_FAILURE"),
        ("down.example.com", "PROCESS_FAILURE", "PROCESS_FAILURE"),
        ("idle.example.com", "NEVER_STARTED", "NEVER_STARTED"),
    ],
)
def test_each_end_has_its_status_and_its_termination_type_in_the_record_and_the_last_message(
    visit: Visit, site: str, status: str, termination_type: str
) -> None:
    job = visit.job(site)

    record = visit.to_the_end(job)

    last = visit.messages(job)[-1]["message"]
    assert (status, termination_type) == (record["status"], record["termination_type"])
    assert (status, termination_type) == (last["status"], last["termination_type"])


def test_a_finished_job_asks_nothing_takes_no_answer_and_never_changes(visit: Visit) -> None:
    job = visit.job(credentials=True)
    record = visit.to_the_end(job)

    visit.service.advance(500)

    assert record == visit.record(job, poll=True)
    assert 404 == visit.put(job, "made-up", {"tfa": "1"}).status_code


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_job_that_is_not_there_is_not_found(visit: Visit, method: str) -> None:
    answer = visit.http.request(method, f"{JOBS}/999999", json={"account": {"account_link": {}}})

    assert (404, [("job", "id")]) == refusal(answer)
