"""Lists of several pages, links that are made later, conflicts: over real HTTP."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from flows.extensions.partner_api import client as client_module
from flows.extensions.partner_api.client import open_client
from flows.extensions.partner_api.job_records import Placement, with_messages
from flows.extensions.partner_api.profile import INTERFACE
from flows.extensions.partner_api.service import AnswerLostError, StrangeAnswerError
from flows.extensions.partner_api.service_objects import CardLink
from flows.runs.retry import Retry
from tests.extensions.partner_api.service_clients import (
    CREDENTIALS,
    HANG_UP,
    LET_IN,
    client_at,
    http,
    request,
    scripted,
    settings_for,
)

LINK = {"id": "l-1", "url": "https://links.example.com/l/l-1"}


def page(*jobs: int, headers: tuple[str, ...] = (), **more: Any) -> bytes:
    """Return a page with a status message of each of these jobs."""
    messages = [
        {"type": "job_status", "job_id": job, "message": {"status": "AUTH"}} for job in jobs
    ]
    return http(200, json.dumps({"items": messages, **more}), *headers)


FIRST = "/messages/cardholders/5"
STYLES: dict[str, tuple[dict[str, Any], list[bytes], list[str]]] = {
    "a link in the body": (
        {},
        [page(1, next=f"{FIRST}?page=2"), page(2, next=None)],
        [FIRST, f"{FIRST}?page=2"],
    ),
    "a link in the header": (
        {},
        [page(1, headers=(f'Link: <{FIRST}?after=1>; rel="next"',)), page(2)],
        [FIRST, f"{FIRST}?after=1"],
    ),
    "a cursor": (
        {"names": {"page": {"query": "from={cursor}", "cursor": ["meta.next"]}}},
        [page(1, meta={"next": "x"}), page(2, meta={"next": None})],
        [FIRST, f"{FIRST}?from=x"],
    ),
    "an offset": (
        {"names": {"page": {"query": "limit=1&offset={offset}", "total": ["total"]}}},
        [page(1, total=2), page(2, total=2)],
        [f"{FIRST}?limit=1&offset=0", f"{FIRST}?limit=1&offset=1"],
    ),
    "page numbers to an empty page": (
        {"names": {"page": {"query": "page={page}"}}},
        [page(1), page(2), page()],
        [f"{FIRST}?page=1", f"{FIRST}?page=2", f"{FIRST}?page=3"],
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_messages_of_all_pages_are_read(style: str) -> None:
    settings, pages, paths = STYLES[style]

    with (
        scripted(LET_IN, *pages) as (address, script),
        client_at(address, **settings) as client,
    ):
        read = json.loads(client.cardholder_messages("5"))

    assert [1, 2] == [message["job_id"] for message in read]
    assert paths == [asked.partition(" ")[2] for asked in script.asked[1:]]


def test_a_page_that_is_lost_leaves_those_before_it_and_is_missed() -> None:
    with (
        scripted(LET_IN, page(1, next="?page=2"), HANG_UP) as (address, _),
        client_at(address) as client,
    ):
        read = json.loads(client.cardholder_messages("5"))

    placement = with_messages(Placement("run", 1), read, INTERFACE)
    assert (["1"], 1) == ([job.job_id for job in placement.jobs], placement.missed)


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("https://elsewhere.example.com/2", "at another address"),
        ("//elsewhere.example.com", "at another address"),
        ("?page=1", "its pages do not end"),
    ],
)
def test_a_page_elsewhere_or_read_already_is_not_asked_for(link: str, problem: str) -> None:
    with (
        scripted(LET_IN, page(1, next=link)) as (address, script),
        client_at(address) as client,
        pytest.raises(StrangeAnswerError, match=problem),
    ):
        client.messages("5")

    assert {"GET /messages/place_card_on_single_site_jobs/5?page=1"} >= set(script.asked[2:])


def test_a_link_that_is_made_later_is_waited_for() -> None:
    accepted = http(202, "", "Location: /card_links/l-1")
    made = http(200, json.dumps(LINK))

    with (
        scripted(LET_IN, accepted, http(404), http(200, '{"id": "l-1"}'), made) as (
            address,
            script,
        ),
        client_at(address) as client,
    ):
        link = client.create_link(request())

    assert isinstance(link, CardLink)
    assert LINK["url"] == link.url
    assert ["GET /card_links/l-1"] * 3 == script.asked[2:]


@pytest.mark.parametrize(
    ("accepted", "why"),
    [(http(202, ""), "without an id"), (http(202, '{"id": "l-1"}'), "no link yet")],
)
def test_a_link_that_is_not_made_in_time_may_exist(
    accepted: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CREATED_WITHIN", 0)
    with (
        scripted(LET_IN, accepted, http(404)) as (address, _),
        client_at(address) as client,
        pytest.raises(AnswerLostError, match=why),
    ):
        client.create_link(request())


def test_a_conflict_is_tried_again_where_a_repeat_writes_nothing() -> None:
    record = http(200, '{"id": 7, "status": "AUTH"}')

    with (
        scripted(LET_IN, http(409), page(1), http(409), record) as (address, script),
        client_at(address) as client,
    ):
        client.messages("7")
        client.job("7")

    assert [1, 2, 2] == sorted(Counter(script.asked).values())


@pytest.mark.parametrize("trouble", [http(409), http(503), HANG_UP])
def test_a_link_is_asked_for_again_only_with_a_key_by_which_the_service_knows_it(
    trouble: bytes,
) -> None:
    made = http(201, json.dumps(LINK))

    with (
        scripted(LET_IN, trouble, made) as (address, script),
        client_at(address, names={"request": {"idempotency_key": "Idempotency-Key"}}) as client,
    ):
        link = client.create_link(request())

    heads = [head.lower() for head in script.heads[1:]]
    keys = {line for head in heads for line in head.splitlines() if "idempotency-key" in line}
    assert isinstance(link, CardLink)
    assert (2, 1) == (len(heads), len(keys))


def test_a_link_whose_repeats_are_lost_too_may_exist() -> None:
    retry = Retry(time.monotonic, lambda _: None, lambda: 0.0, attempts=3)
    with scripted(LET_IN, HANG_UP, HANG_UP, http(429)) as (address, script):
        settings = settings_for(address, names={"request": {"idempotency_key": "Idempotency-Key"}})
        with (
            open_client(settings, CREDENTIALS, retry) as client,
            pytest.raises(AnswerLostError),
        ):
            client.create_link(request())

    assert 4 == len(script.asked)


@pytest.mark.parametrize("location", ["body", "header"])
def test_the_keys_of_the_institution_go_where_the_settings_say(location: str) -> None:
    keys: dict[str, Any] = {"fi_key": "bank", "safe_key": "safe-1"}
    names = {"request": {"fi_key": ["X-FI-Key"]}}

    with (
        scripted(LET_IN, http(201, json.dumps(LINK))) as (address, script),
        client_at(address, **keys, names=names, keys_in=location) as client,
    ):
        client.create_link(request())

    head = script.heads[1].lower()
    assert [location == "header"] * 2 == ["x-fi-key: bank" in head, "safe_key: safe-1" in head]
