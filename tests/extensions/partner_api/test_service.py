"""The client against the practice service, over real HTTP: every endpoint of interface.md 4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flows.extensions.partner_api.client import ServiceClient
from flows.extensions.partner_api.service import (
    NoSuchRecordError,
    ServiceRefusedError,
    UnauthorisedError,
)
from flows.extensions.partner_api.service_objects import CardLink, Refusal
from flows.extensions.simulator.service.books import Habits
from tests.extensions.partner_api.service_clients import (
    CARD,
    CARDHOLDER,
    client_of,
    request,
    started_job,
)
from tests.extensions.partner_api.test_responses import messages_of
from tests.service import RunningService, running_service

PATIENT = {"username": "ada", "password": "right"}


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[ServiceClient]:
    with client_of(service) as opened:
        yield opened


def made(client: ServiceClient, **objects: object) -> CardLink:
    link = client.create_link(request(**objects))
    assert isinstance(link, CardLink)
    return link


def test_a_link_is_made_on_demand_with_url_token_and_the_usual_expiry(
    client: ServiceClient,
) -> None:
    link = made(client)

    assert link.url is not None
    assert link.url.startswith("https://links.example.com/l/")
    assert link.cardholder_long_token
    assert link.expires_raw == "2027-01-20"


def test_a_link_ends_on_the_day_that_was_asked_for(client: ServiceClient) -> None:
    link = made(client, expiration={"month": "12", "day": "24", "year": "2026"})

    assert link.expires_raw == "2026-12-24"


def test_a_card_may_be_a_reference(service: RunningService, client: ServiceClient) -> None:
    card_id = client.card_link(made(client).id or "").card_id

    link = made(client, card={"reference": {"id": int(card_id or 0)}})

    assert link.url


def test_a_refused_link_is_told_by_codes_and_by_words_without_the_card(
    client: ServiceClient,
) -> None:
    refused = client.create_link(request(card={**CARD, "pan": "4242424242424241"}))

    assert isinstance(refused, Refusal)
    assert refused.codes.startswith("card.pan.")
    assert "4242424242424241" not in refused.message


def test_a_link_is_looked_up_with_its_card_and_cardholder(client: ServiceClient) -> None:
    link_id = made(client, cardholder={**CARDHOLDER, "cuid": "c-7"}).id or ""

    found = client.card_link(link_id)

    assert found.cuid == "c-7"
    assert found.cardholder_id


def test_a_link_is_looked_up_bare_where_that_is_asked_for(client: ServiceClient) -> None:
    found = client.card_link(made(client).id or "", hydrate=())

    assert found.cuid is None


@pytest.mark.parametrize("link_id", ["nobody", "..", "a/b", "%2e%2e"])
def test_a_link_that_is_not_there_is_told_as_such(client: ServiceClient, link_id: str) -> None:
    with pytest.raises(NoSuchRecordError) as told:
        client.card_link(link_id)

    assert link_id not in str(told.value)


def test_a_job_record_has_its_pending_request_on_every_poll(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)

    polls = [client.job(job_id) for _ in range(2)]

    assert [len(one.requests) for one in polls] == [1, 1]
    assert polls[0].id == job_id
    assert polls[0].blocked
    assert [one.key_name for one in polls[0].requests[0].account_link] == ["username", "password"]
    assert [one.secret for one in polls[0].requests[0].account_link] == [False, True]


def test_messages_are_read_once_and_requests_stay(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    (waiting,) = client.messages(job_id).requests
    client.answer(job_id, waiting.envelope_id, PATIENT)
    service.advance(7)

    first, second = client.messages(job_id), client.messages(job_id)

    assert [one.message.status for one in first.statuses][-1] == "UPDATING"
    assert second.statuses == ()


def test_an_answer_with_its_envelope_id_lets_the_job_go_on(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    (waiting,) = client.credential_requests(job_id)

    updated = client.answer(job_id, waiting.envelope_id, PATIENT)

    assert updated is not None
    assert updated.status == "AUTH"
    assert client.credential_requests(job_id) == ()


def test_an_answer_may_be_posted_too(service: RunningService, client: ServiceClient) -> None:
    job_id = started_job(service, client)
    (waiting,) = client.credential_requests(job_id)

    client.post_answer(job_id, waiting.envelope_id, PATIENT)

    assert client.job(job_id).status == "AUTH"


def test_an_update_without_an_envelope_id_answers_nothing(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)

    client.update_account(job_id, PATIENT)

    assert client.job(job_id).blocked


def test_an_answer_given_twice_is_refused_with_a_code(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    (waiting,) = client.credential_requests(job_id)
    client.answer(job_id, waiting.envelope_id, PATIENT)

    with pytest.raises(ServiceRefusedError, match="HTTP 409"):
        client.answer(job_id, waiting.envelope_id, PATIENT)


def test_a_cardholders_messages_come_raw_and_name_their_job(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    cardholder_id = client.job(job_id).cardholder_id or ""

    body = client.cardholder_messages(cardholder_id)

    assert job_id in [one.job_id for one in messages_of(body).requests]


def test_a_broadcast_channel_has_statuses_and_no_requests(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)
    key = client.register(job_id)
    (waiting,) = client.credential_requests(job_id)
    client.answer(job_id, waiting.envelope_id, PATIENT)
    service.advance(7)

    heard = client.broadcasts(job_id, key)

    assert heard[-1].message.status == "UPDATING"
    assert client.broadcasts(job_id, key) == ()
    assert client.messages(job_id).statuses != ()


def test_a_broadcast_without_the_right_key_is_refused(
    service: RunningService, client: ServiceClient
) -> None:
    job_id = started_job(service, client)

    with pytest.raises(ServiceRefusedError, match="HTTP 403"):
        client.broadcasts(job_id, "another")


def test_job_ids_are_text_whichever_way_the_service_writes_them() -> None:
    with running_service(job_id_as_string=True) as service, client_of(service) as client:
        job_id = started_job(service, client)

        (waiting,) = client.messages(job_id).requests

    assert waiting.job_id == job_id


def test_another_prefix_and_other_names_are_spoken_as_configured() -> None:
    other = {
        "prefix": "acme-cards",
        "names": {
            "path": {"login": "/v2/log-in", "create_link": "/v2/links"},
            "login": {"session_token": ["ticket"]},
            "request": {"fi_key": ["fi"], "safe_key": ["vault"], "job_hydration": '["requests"]'},
        },
    }
    with running_service(settings=other) as service, client_of(service) as client:
        job_id = started_job(service, client)
        job = client.job(job_id)

    assert len(job.requests) == 1


def test_a_session_that_ran_out_is_renewed_by_itself() -> None:
    with running_service(session_seconds=60) as service, client_of(service) as client:
        job_id = started_job(service, client)
        service.advance(61)

        job = client.job(job_id)

    assert job.id == job_id


def test_wrong_credentials_are_told_and_not_quoted() -> None:
    ours = Habits().client._replace(app_key="another-key")

    with (
        running_service(client=ours) as service,
        client_of(service) as client,
        pytest.raises(UnauthorisedError) as told,
    ):
        client.job("1")

    assert "practice" not in str(told.value)
