"""Sections 2.1, 2.3, 2.4, 4 and 6 of interface.md: messages, who reads them, and broadcasts."""

from __future__ import annotations

import pytest

from flows.extensions.partner_api.profile import CARDHOLDER_MESSAGES, JOB_MESSAGES
from tests.service import running_service
from tests.simulator.service.visits import Visit, refusal, visiting


def test_a_status_message_has_the_fields_of_the_document(visit: Visit) -> None:
    job = visit.job(credentials=True)

    (message,) = visit.messages(job)

    assert {"type": "job_status", "job_id": job} == {
        name: message[name] for name in ("type", "job_id")
    }
    expected = {
        "status": "AUTH",
        "percent_complete": 0,
        "auth_percent_complete": 0,
        "job_timeout": 300,
        "status_message": "Signing in.",
    }
    assert expected == message["message"]


def test_a_status_message_is_read_once_and_the_record_still_tells_the_status(visit: Visit) -> None:
    job = visit.job(credentials=True)

    first, second = visit.messages(job), visit.messages(job)

    assert (1, 0) == (len(first), len(second))
    assert first[0]["message"]["status"] == visit.record(job)["status"]


def test_heartbeats_show_that_a_job_still_runs(visit: Visit) -> None:
    job = visit.job("idle.example.com")
    visit.messages(job)

    visit.service.advance(25)

    assert [290, 280] == [beat["message"]["job_timeout"] for beat in visit.messages(job)]


def test_only_the_final_message_carries_a_termination_type(visit: Visit) -> None:
    job = visit.job(credentials=True)

    visit.service.advance(60)

    *earlier, last = [one["message"] for one in visit.messages(job)]
    assert [] == [one for one in earlier if "termination_type" in one]
    assert ("SUCCESSFUL", "BILLABLE", 0) == (
        last["status"],
        last["termination_type"],
        last["job_timeout"],
    )


def test_a_credential_request_has_the_fields_of_the_document(visit: Visit) -> None:
    job = visit.job()

    (request,) = visit.messages(job)

    assert ("initial_account_link", job, 36) == (
        request["type"],
        request["job_id"],
        len(request["envelope_id"]),
    )
    assert [
        {"key_name": "username", "label": "User name", "secret": False},
        {"key_name": "password", "label": "Password", "secret": True},
    ] == request["account_link"]
    assert {
        "status": "PENDING",
        "percent_complete": 0,
        "auth_percent_complete": 0,
        "job_timeout": 420,
        "status_message": "Sign in to the site.",
    } == request["message"]


def test_a_credential_request_stays_until_it_is_answered(visit: Visit) -> None:
    job = visit.job()

    seen = [one["envelope_id"] for _ in range(3) for one in visit.messages(job)]
    visit.answer(job)

    assert 3 == len(seen)
    assert 1 == len(set(seen))
    assert [] == [one for one in visit.messages(job) if "envelope_id" in one]


def test_a_credential_request_that_is_read_again_tells_the_seconds_left_by_then(
    visit: Visit,
) -> None:
    job = visit.job()

    visit.service.advance(100)

    assert [320] == [request["message"]["job_timeout"] for request in visit.messages(job)]


def test_messages_of_all_jobs_of_a_cardholder_come_with_their_job_id(visit: Visit) -> None:
    held = visit.verified()
    first, second = visit.place(held, "shop.example.com", "video.example.com", credentials=True)

    found = visit.cardholder_messages(first["cardholder_id"])

    assert [first["id"], second["id"]] == [message["job_id"] for message in found]


def test_messages_of_other_cardholders_do_not_come_along(visit: Visit) -> None:
    job, other = visit.job(credentials=True), visit.job(credentials=True)

    found = visit.cardholder_messages(visit.record(job)["cardholder_id"])

    assert [job] == [message["job_id"] for message in found]
    assert [other] == [message["job_id"] for message in visit.messages(other)]


def test_what_is_read_as_the_jobs_is_gone_for_the_cardholder(visit: Visit) -> None:
    job = visit.job(credentials=True)
    cardholder = visit.record(job)["cardholder_id"]

    by_job, by_cardholder = visit.messages(job), visit.cardholder_messages(cardholder)

    assert (1, 0) == (len(by_job), len(by_cardholder))


def test_what_is_read_as_the_cardholders_is_gone_for_the_job(visit: Visit) -> None:
    job = visit.job(credentials=True)
    cardholder = visit.record(job)["cardholder_id"]

    by_cardholder, by_job = visit.cardholder_messages(cardholder), visit.messages(job)

    assert (1, 0) == (len(by_cardholder), len(by_job))


def test_a_service_may_write_the_job_id_of_messages_as_text() -> None:
    with running_service(job_id_as_string=True) as service, visiting(service) as visit:
        job = visit.job()
        started = visit.job(credentials=True)

        found = [*visit.messages(job), *visit.messages(started)]

    assert [str(job), str(started)] == [message["job_id"] for message in found]


def test_credential_requests_can_be_read_alone_with_their_status_data_beside_the_rest(
    visit: Visit,
) -> None:
    job = visit.job()

    (alone,) = visit.requests(job)

    (request,) = visit.messages(job)
    assert request.pop("message") | request == alone


def test_a_registered_channel_reads_every_status_message_once_whoever_else_has_read_it(
    visit: Visit,
) -> None:
    job = visit.job(credentials=True)
    one, other = visit.register(job), visit.register(job)

    visit.service.advance(60)
    heard = visit.messages(job)
    first, second, again = (
        visit.broadcasts(job, one),
        visit.broadcasts(job, other),
        visit.broadcasts(job, one),
    )

    assert heard[1:] == first == second  # the first one was told before anybody had registered
    assert [] == again
    assert "BILLABLE" == first[-1]["message"]["termination_type"]


def test_a_broadcast_never_holds_a_credential_request(visit: Visit) -> None:
    job = visit.job("video.example.com")
    key = visit.register(job)

    visit.to_the_end(job)

    assert {"job_status"} == {message["type"] for message in visit.broadcasts(job, key)}


@pytest.mark.parametrize("headers", [{}, {"service-messaging-access-key": "made-up"}])
def test_a_broadcast_query_needs_the_access_key_of_a_registration(
    visit: Visit, headers: dict[str, str]
) -> None:
    job = visit.job()

    answer = visit.http.get(f"{JOB_MESSAGES}/{job}/broadcasts", headers=headers)

    assert (403, [("broadcast", "")]) == refusal(answer)


def test_an_access_key_opens_the_channel_of_its_own_job_only(visit: Visit) -> None:
    job, other = visit.job(), visit.job()
    key = {"service-messaging-access-key": visit.register(other)}

    answer = visit.http.get(f"{JOB_MESSAGES}/{job}/broadcasts", headers=key)

    assert 403 == answer.status_code


@pytest.mark.parametrize(
    "path",
    [
        f"{JOB_MESSAGES}/999999",
        f"{CARDHOLDER_MESSAGES}/999999",
        f"{JOB_MESSAGES}/999999/credential_requests",
        f"{JOB_MESSAGES}/999999/broadcasts",
        f"{JOB_MESSAGES}/999999/broadcasts/registrations",
    ],
)
def test_messages_of_what_is_not_there_are_not_found(visit: Visit, path: str) -> None:
    assert 404 == visit.http.get(path).status_code
