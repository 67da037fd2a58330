"""Section 5 of interface.md: who may ask, and the header names both sides speak by."""

from __future__ import annotations

import pytest

from flows.extensions.partner_api.profile import CARDHOLDER_MESSAGES, JOB_MESSAGES, JOBS
from tests.service import running_service
from tests.simulator.service.visits import Visit, refusal, visiting


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/card_links"),
        ("GET", "/card_links/x"),
        ("GET", f"{JOBS}/1"),
        ("PUT", f"{JOBS}/1"),
        ("GET", f"{JOB_MESSAGES}/1"),
        ("GET", f"{CARDHOLDER_MESSAGES}/1"),
        ("GET", f"{JOB_MESSAGES}/1/credential_requests"),
        ("POST", f"{JOB_MESSAGES}/1/credential_responses"),
        ("GET", f"{JOB_MESSAGES}/1/broadcasts"),
        ("GET", f"{JOB_MESSAGES}/1/broadcasts/registrations"),
    ],
)
def test_without_a_session_every_endpoint_of_the_api_is_closed(
    visit: Visit, method: str, path: str
) -> None:
    del visit.http.headers["Authorization"]

    answer = visit.http.request(method, path)

    assert (401, [("session", "")]) == refusal(answer)


def test_a_session_ends_and_a_new_login_opens_another(visit: Visit) -> None:
    job = visit.job()

    visit.service.advance(901)
    closed = visit.http.get(f"{JOBS}/{job}")
    visit.log_in()

    assert 401 == closed.status_code
    assert job == visit.record(job)["id"]


@pytest.mark.parametrize("wrong", ["app_name", "app_key", "username", "password"])
def test_a_login_with_one_wrong_value_is_refused_and_does_not_say_which(
    visit: Visit, wrong: str
) -> None:
    answer = visit.http.post("/session", json=visit.service.client._asdict() | {wrong: "other"})

    assert (401, [("session", "")]) == refusal(answer)


@pytest.mark.parametrize("missing", ["app_name", "app_key", "username", "password"])
def test_a_login_needs_all_four_values(visit: Visit, missing: str) -> None:
    given = visit.service.client._asdict()
    del given[missing]

    assert (422, [("body", missing)]) == refusal(visit.http.post("/session", json=given))


def test_names_the_document_leaves_open_come_from_the_same_settings_the_client_reads() -> None:
    spoken = {
        "prefix": "acme",
        "names": {
            "path": {"login": "/login", "create_link": "/links/new"},
            "login": {"session_token": ["token"]},
        },
    }

    with running_service(settings=spoken) as service, visiting(service) as visit:
        paths = visit.http.get("/openapi.json").raise_for_status().json()["paths"]

    assert {"/login", "/links/new", "/card_links/{link_id}"} <= paths.keys()
    headers = {
        one["name"]
        for path in paths.values()
        for act in path.values()
        for one in act.get("parameters", [])
    }
    assert {"x-acme-envelope-id", "x-acme-hydration", "acme-messaging-access-key"} <= headers


def test_a_refusal_never_repeats_what_was_sent(visit: Visit) -> None:
    answer = visit.http.post(
        "/session", json={"app_name": {"pan": "4242424242424242"}, "password": 4242424242424242}
    )

    assert 422 == answer.status_code
    assert "4242" not in answer.text


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/session", 405)])
def test_what_is_no_endpoint_is_refused_in_the_same_form(
    visit: Visit, path: str, status: int
) -> None:
    assert (status, [("request", "")]) == refusal(visit.http.get(path))


def test_a_body_that_is_no_json_is_refused_and_not_repeated(visit: Visit) -> None:
    answer = visit.http.post(
        "/session", content=b"\xff4242", headers={"Content-Type": "application/json"}
    )

    assert (400, [("request", "")]) == refusal(answer)
    assert "4242" not in answer.text
