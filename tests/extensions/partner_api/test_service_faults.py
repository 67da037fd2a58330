"""The client on a bad day: what may be sent again is, what may not is told, and nothing of a card
or a secret is.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from flows.errors import CardlinkError
from flows.extensions.partner_api.client import ServiceClient, open_client
from flows.extensions.partner_api.service import (
    AnswerLostError,
    LinkRequestError,
    RedirectedError,
    ServiceBusyError,
    StrangeAnswerError,
    UnauthorisedError,
)
from flows.extensions.partner_api.service_objects import Refusal
from flows.extensions.partner_api.sessions import Credentials
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.transport import RateLimiter
from flows.runs.retry import Retry
from tests.builders import quick
from tests.extensions.partner_api.service_clients import (
    CREDENTIALS,
    HANG_UP,
    LET_IN,
    Script,
    client_at,
    http,
    request,
    scripted,
    settings_for,
)

JOB = http(200, '{"id": 7, "status": "AUTH"}')
LINK = http(201, '{"id": "l-1", "url": "https://links.example.com/l/l-1"}')
PAN = "4242424242424242"
Call = Callable[[ServiceClient], object]
WRITES: dict[str, Call] = {
    "create_link": lambda client: client.create_link(request()),
    "answer": lambda client: client.answer("7", "e-1", {"password": "hush"}),
    "post_answer": lambda client: client.post_answer("7", "e-1", {"password": "hush"}),
    "update_account": lambda client: client.update_account("7", {"password": "hush"}),
}
CONSUMES: dict[str, Call] = {
    "messages": lambda client: client.messages("7"),
    "cardholder_messages": lambda client: client.cardholder_messages("7"),
    "broadcasts": lambda client: client.broadcasts("7", "key"),
}
UNREPEATED = WRITES | CONSUMES
TROUBLE = {"silence": HANG_UP} | {str(status): http(status) for status in (429, 500, 502, 503, 504)}


def failing(call: Call, *answers: bytes, **settings: Any) -> tuple[CardlinkError, Script]:
    """Make a call that fails; return its error and what the server was asked."""
    with (
        scripted(*answers) as (address, script),
        client_at(address, **settings) as client,
        pytest.raises(CardlinkError) as told,
    ):
        call(client)
    return told.value, script


def read_job(client: ServiceClient) -> object:
    return client.job("7")


def make_link(client: ServiceClient) -> object:
    return client.create_link(request())


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_record_is_read_again_after_trouble(trouble: str) -> None:
    with (
        scripted(LET_IN, TROUBLE[trouble], TROUBLE[trouble], JOB) as (address, script),
        client_at(address) as client,
    ):
        job = client.job("7")

    assert job.status == "AUTH"
    assert len(script.asked) == 4


def test_a_record_is_not_asked_for_for_ever() -> None:
    error, script = failing(read_job, LET_IN, http(503), tries=3)

    assert isinstance(error, ServiceBusyError)
    assert "HTTP 503" in str(error)
    assert len(script.asked) == 4


@pytest.mark.parametrize("call", UNREPEATED)
@pytest.mark.parametrize("trouble", quick(2, ["silence", "500", "503"]))
def test_what_may_have_been_done_is_not_sent_again(call: str, trouble: str) -> None:
    error, script = failing(UNREPEATED[call], LET_IN, TROUBLE[trouble])

    assert isinstance(error, AnswerLostError)
    assert len(script.asked) == 2


@pytest.mark.parametrize("call", UNREPEATED)
def test_what_was_not_taken_is_sent_again(call: str) -> None:
    with scripted(LET_IN, http(429), LINK) as (address, script), client_at(address) as client:
        UNREPEATED[call](client)

    assert script.asked[1] == script.asked[2]


@pytest.mark.parametrize("call", UNREPEATED)
def test_where_nobody_listens_nothing_was_done(call: str) -> None:
    with scripted(LET_IN) as (address, _):
        pass

    with client_at(address) as client, pytest.raises(ServiceBusyError, match="ConnectError"):
        UNREPEATED[call](client)


def test_an_answer_that_never_comes_is_given_up() -> None:
    error, _ = failing(
        make_link,
        LET_IN,
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        timeout=0.2,
    )

    assert isinstance(error, AnswerLostError)


def test_a_session_is_renewed_once_and_then_given_up() -> None:
    error, script = failing(read_job, LET_IN, http(401), LET_IN, http(401))

    assert isinstance(error, UnauthorisedError)
    assert [one.split(" ")[0] for one in script.asked] == ["POST", "GET", "POST", "GET"]


def test_every_request_bears_the_token_and_a_redirect_is_not_followed() -> None:
    error, script = failing(
        read_job, LET_IN, http(307, "", "Location: https://elsewhere.example.com/")
    )

    assert isinstance(error, RedirectedError)
    assert "(HTTP 307), and redirects are not followed" in str(error.sentence)
    assert "Authorization: Bearer t-1" in script.heads[1]
    assert len(script.asked) == 2


@pytest.mark.parametrize(
    "body", ["", "[]", "no json", '{"other": 1}', '{"session_token": "two\\nlines"}']
)
def test_a_login_without_a_token_is_told(body: str) -> None:
    error, _ = failing(read_job, http(200, body))

    assert isinstance(error, StrangeAnswerError)
    assert "session token" in str(error)


@pytest.mark.parametrize("body", ["", "[]", "77", "<html>", '{"_": 1}'])
def test_an_answer_of_another_shape_is_told_and_not_quoted(body: str) -> None:
    calls: list[Call] = [read_job, lambda client: client.register("7"), make_link]

    errors = [failing(call, LET_IN, http(200, body))[0] for call in calls]

    assert [type(error) for error in errors] == [StrangeAnswerError] * 3
    assert not body or body not in "".join(map(str, errors))


def test_a_refusal_that_quotes_the_card_is_told_without_it() -> None:
    body = f'{{"_errors": [{{"property": "pan", "message": "{PAN} is invalid, cvv: 123"}}]}}'

    error, _ = failing(read_job, LET_IN, http(422, body))
    with scripted(LET_IN, http(422, body)) as (address, _), client_at(address) as client:
        refused = client.create_link(request())

    assert isinstance(refused, Refusal)
    assert refused.codes == "card.pan.format"
    assert [word for word in (PAN, "123") if word in refused.message + str(error.args)] == []


def test_an_access_key_no_header_can_hold_is_told() -> None:
    error, _ = failing(
        lambda client: client.register("7"), LET_IN, http(200, '{"access_key": "two\\nlines"}')
    )

    assert isinstance(error, StrangeAnswerError)
    assert "access key" in str(error)


def test_a_link_without_an_fi_key_in_the_settings_is_not_asked_for() -> None:
    with (
        client_at("http://127.0.0.1:9", fi_key="") as client,
        pytest.raises(LinkRequestError, match="fi_key"),
    ):
        client.create_link(request())


def test_errors_survive_pickling_and_bring_nothing_of_what_was_sent() -> None:
    error, _ = failing(make_link, LET_IN, HANG_UP)

    shown = "".join(traceback.format_exception(error)).encode() + pickle.dumps(error)

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert [error.__cause__, error.__context__] == [None, None]
    assert PAN.encode() not in shown


def test_addresses_tokens_and_cards_reach_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    with scripted(LET_IN, LINK) as (address, _), client_at(address) as client:
        client.create_link(request())
        client.card_link("secret-link-id")

    told = caplog.text + "".join(str(vars(one)) for one in caplog.records)
    assert [
        word
        for word in (PAN, "secret-link-id", "Bearer", CREDENTIALS.app_key, "/session")
        if word in told
    ] == []


def test_requests_records_and_credentials_show_no_value() -> None:
    wanted = request()

    secrets = Credentials("shown", "our-key", "our-user", "our-password")

    shown = f"{wanted!r} {wanted.card!r} {wanted} {wanted.cardholder} {secrets!r}"

    assert [word for word in (PAN, "Ada", "123", "our-") if word in shown] == []


def test_turns_are_spaced_and_wait_as_long_as_the_service_says() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    turns = RateLimiter(4, lambda: now[0], sleep)

    for _ in range(3):
        turns.take()
    turns.hold(7)
    turns.take()
    turns.hold(86_400)
    turns.take()

    assert slept == [0.25, 0.25, 7, 60]


def test_a_service_asks_for_patience_and_gets_it() -> None:
    patient = http(429, "{}", "Retry-After: 30")

    with scripted(LET_IN, patient, JOB) as (address, script), client_at(address) as client:
        job = client.job("7")

    assert job.status == "AUTH"
    assert len(script.asked) == 3


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0),
        ("Friday, 20-Nov-26 12:00:10 GMT", 10),
        ("soon", 0),
    ],
)
def test_patience_is_asked_for_by_a_date_of_the_services_own_clock(
    retry_after: str, seconds: float
) -> None:
    waits = list[float]()
    limited = http(429, "{}", f"Retry-After: {retry_after}", "Date: Fri, 20 Nov 2026 12:00:00 GMT")
    retry = Retry(lambda: 0.0, waits.append, lambda: 0.0)

    with (
        scripted(LET_IN, limited, JOB) as (address, _),
        open_client(settings_for(address), CREDENTIALS, retry) as client,
    ):
        client.job("7")

    assert seconds == round(max(waits))


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "http://service.example.com"},
        {"base_url": "https://user:word@service.example.com"},
        {"base_url": "https://service.example.com/?key=1"},
        {"base_url": "https://service.example.com", "link_id": "no group"},
        {"base_url": "https://service.example.com", "prefix": "Two Words"},
        {"base_url": "https://service.example.com", "password": "hush"},
    ],
)
def test_settings_that_would_do_harm_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="ServiceSettings"):
        ServiceSettings.model_validate(wrong)


def test_a_links_id_is_the_last_segment_of_its_url_or_what_the_settings_say() -> None:
    usual = ServiceSettings(base_url="https://service.example.com")
    other = ServiceSettings(base_url="https://service.example.com", link_id=r"[?&]link=(?P<id>\w+)")

    found = [
        usual.id_of("https://links.example.com/l/abc-1?x=/y"),
        other.id_of("https://links.example.com/?link=abc"),
    ]

    assert found == ["abc-1", "abc"]
