"""How requests say who sends them: where a session's token is, when it is renewed, who signs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.extensions.partner_api.service import (
    NoSuchPluginError,
    ServiceBusyError,
    ServiceRefusedError,
    SessionEndedError,
    StrangeAnswerError,
    UnauthorisedError,
)
from tests.extensions.partner_api.service_clients import LET_IN, client_at, http, request, scripted

JOB = http(200, '{"id": 7, "status": "AUTH"}')


@pytest.mark.parametrize(
    ("auth", "line"),
    [
        ({}, "authorization: bearer t-1"),
        ({"token": "X-Session: {token}"}, "x-session: t-1"),
        ({"token": "Authorization: Token {token}"}, "authorization: token t-1"),
        ({"token": "Cookie: sid={token}"}, "cookie: sid=t-1"),
        (
            {"token": "?sid={token}"},
            "get /place_card_on_single_site_jobs/7?sid=t-1 http/1.1",
        ),
    ],
)
def test_the_token_is_where_the_settings_say(auth: dict[str, Any], line: str) -> None:
    answers = [LET_IN, JOB]
    with scripted(*answers) as (address, script), client_at(address, auth=auth) as client:
        client.job("7")

    assert line in script.heads[-1].lower().splitlines()
    assert len(answers) == len(script.heads)


def test_without_a_login_the_integrator_key_is_the_token() -> None:
    with (
        scripted(JOB) as (address, script),
        client_at(address, names={"path": {"login": ""}}) as client,
    ):
        client.job("7")

    assert ["authorization: bearer practice-key"] == [
        line for line in script.heads[0].lower().splitlines() if "authorization" in line
    ]


def test_the_login_has_the_names_and_the_form_that_the_settings_say() -> None:
    auth = {"login_encoding": "form"}
    credentials = {"app_name": [], "app_key": [], "username": ["user"], "password": ["word"]}
    names = {"login": {"credentials": credentials, "session_token": ["data.token"]}}
    let_in = http(200, '{"data": {"token": "t-2"}}')

    with (
        scripted(let_in, JOB) as (address, script),
        client_at(address, auth=auth, names={**names, "path.login": "/in"}) as client,
    ):
        client.job("7")

    assert script.heads[0].startswith("POST /in ")
    assert "content-type: application/x-www-form-urlencoded" in script.heads[0].lower()
    assert f"content-length: {len('user=cardlink&word=practice')}" in script.heads[0].lower()
    assert "authorization: bearer t-2" in script.heads[1].lower()


def test_the_login_may_nest_its_properties_and_credentials_may_be_headers_of_each_request() -> None:
    auth = {"headers": {"app_key": "X-Api-Key"}}
    properties = {
        "app_name": [],
        "app_key": [],
        "username": ["user.name"],
        "password": ["user.word"],
    }
    names = {"login": {"credentials": properties}}
    login = b'{"user":{"name":"cardlink","word":"practice"}}'

    with (
        scripted(LET_IN, JOB) as (address, script),
        client_at(address, auth=auth, names=names) as client,
    ):
        client.job("7")

    assert f"content-length: {len(login)}" in script.heads[0].lower()
    assert ["practice-key"] * 2 == [_header(head, "x-api-key") for head in script.heads]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            http(404),
            StrangeAnswerError,
            r"POST /session is no login \(HTTP 404\); \[service\.names\] path.login",
        ),
        (http(403, '{"error": "unknown client"}'), UnauthorisedError, "HTTP 403: .*unknown client"),
        (http(422, '{"error": "user is required"}'), UnauthorisedError, "HTTP 422: .*required"),
        (http(503), ServiceBusyError, r"not accept POST /session \(HTTP 503\)"),
    ],
)
def test_a_login_that_is_refused_says_what_to_correct(
    answer: bytes, error: type[Exception], words: str
) -> None:
    with (
        scripted(answer) as (address, _),
        client_at(address, tries=1) as client,
        pytest.raises(error, match=words),
    ):
        client.job("7")


def test_requests_are_signed_with_the_sessions_key_and_anew_after_a_new_login() -> None:
    logins = [
        http(200, json.dumps({"session_token": f"t-{number}", "session_key": f"k-{number}"}))
        for number in (1, 2)
    ]
    signing = {"type": "hmac", "canonical": "{token}", "headers": {"X-Signature": "{signature}"}}

    with (
        scripted(logins[0], http(401), logins[1], JOB) as (address, script),
        client_at(address, signing=signing, auth={"token": ""}) as client,
    ):
        client.job("7")

    signatures = [_header(head, "x-signature") for head in script.heads]
    assert [True, False, True, False] == [not signature for signature in signatures]
    assert signatures[1] != signatures[3]
    assert not any(_header(head, "authorization") for head in script.heads)


def _header(head: str, name: str) -> str:
    lines = (line.partition(": ") for line in head.splitlines())
    return next((value for key, _, value in lines if key.lower() == name), "")


def test_a_session_without_the_key_to_sign_with_says_which_setting_names_it() -> None:
    with (
        scripted(LET_IN) as (address, _),
        client_at(address, signing={"type": "hmac"}) as client,
        pytest.raises(StrangeAnswerError, match=r"login.session_key \(it has session_token\)"),
    ):
        client.job("7")


def test_a_refused_signature_is_told_in_the_services_words_and_is_no_refusal_of_the_row() -> None:
    bad = '{"error": "bad signature"}'

    with (
        scripted(LET_IN, http(403, bad)) as (address, _),
        client_at(address) as client,
        pytest.raises(ServiceRefusedError, match="bad signature"),
    ):
        client.create_link(request())
    with (
        scripted(LET_IN, http(401, bad), LET_IN, http(401, bad)) as (address, _),
        client_at(address) as client,
        pytest.raises(UnauthorisedError, match=r"HTTP 401: .*bad signature"),
    ):
        client.job("7")


PLUGIN = """
import httpx

class Auth(httpx.Auth):
    def __init__(self, settings, credentials):
        self.user = credentials.username

    def auth_flow(self, request):
        response = yield httpx.Request("GET", str(request.url.copy_with(path="/nonce")))
        request.headers["X-User"] = self.user + "/" + response.json()["nonce"]
        yield request
"""


def test_an_installed_package_may_authenticate_requests_in_its_own_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "own_auth-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-auth\nVersion: 1\n")
    entry_point = "[cardlink.service_auth]\nown = own_auth:Auth\n"
    (metadata / "entry_points.txt").write_text(entry_point)
    (tmp_path / "own_auth.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_auth", raising=False)

    with (
        scripted(http(200, '{"nonce": "n-1"}'), JOB) as (address, script),
        client_at(address, auth={"plugin": "own"}) as client,
    ):
        client.job("7")

    assert ["/nonce", "/place_card_on_single_site_jobs/7"] == [
        asked.partition(" ")[2] for asked in script.asked
    ]
    assert "cardlink/n-1" == _header(script.heads[1], "x-user")


def test_a_plugin_that_is_not_installed_is_named() -> None:
    auth = {"plugin": "nobody"}

    with (
        pytest.raises(NoSuchPluginError, match="nobody"),
        client_at("http://127.0.0.1:9", auth=auth),
    ):
        pass


def test_a_session_that_worked_and_ended_again_after_a_new_login_is_told_as_another_login() -> None:
    with (
        scripted(LET_IN, JOB, http(401), LET_IN, http(401)) as (address, script),
        client_at(address) as client,
    ):
        client.job("7")
        with pytest.raises(SessionEndedError, match="Another login with the same user"):
            client.job("7")

    assert 5 == len(script.heads)
