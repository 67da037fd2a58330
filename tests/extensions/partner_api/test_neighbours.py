"""Limits and precedence of asking the service: the limit and its neighbours, the first and the last,
by the functions that hold them and a few values in memory.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from flows.extensions.partner_api import connection, transport
from flows.extensions.partner_api.client import CREATED_WITHIN, MOST_PAGES, Pages, open_client
from flows.extensions.partner_api.profile import Profile
from flows.extensions.partner_api.responses import Limits, UnreadableBodyError, body_of
from flows.extensions.partner_api.service import AnswerLostError, StrangeAnswerError
from flows.runs.retry import Retry
from schemas.issuer import Issuer
from tests.extensions.partner_api.service_clients import (
    CREDENTIALS,
    LET_IN,
    http,
    request,
    scripted,
    settings_for,
)
from tests.memory_bench import memory_bench

SERVICE = "http://127.0.0.1:1"


# What a service is waited for
# --------------------------------------------------------------------------------------------------


class Waited:
    """A clock that only waiting moves, by whole seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds)

    @property
    def retry(self) -> Any:
        return Retry(lambda: self.now, self.sleep, lambda: 0.0)


def test_a_link_that_is_made_later_is_asked_for_once_a_second_until_its_time_is_over() -> None:
    accepted = http(202, '{"id": "l-1"}')

    with (
        scripted(LET_IN, accepted, http(404)) as (address, script),
        open_client(settings_for(address), CREDENTIALS, Waited().retry) as client,
        pytest.raises(AnswerLostError),
    ):
        client.create_link(request())

    assert ["GET /card_links/l-1"] * int(CREATED_WITHIN) == script.asked[2:]


@pytest.mark.parametrize("status", [199, 200, 299, 300])
def test_an_answer_is_a_success_from_200_to_299(status: int) -> None:
    assert (status in (199, 300)) == transport.Response(status, b"").refused


def read_within(content: bytes, limits: Limits, clock: Iterator[float], **headers: str) -> str:
    """Return why a body is not read, "" where it is."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.Response(200, headers=fields, stream=httpx.ByteStream(content))
    try:
        body_of(answer, limits, lambda: next(clock))
    except UnreadableBodyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("size", "why"), [(9, ""), (10, ""), (11, "more than 0 MB")])
def test_a_body_may_be_as_large_as_its_limit(size: int, why: str) -> None:
    limits = Limits(received=10, unpacked=10)
    packed = gzip.compress(bytes(size))

    received = read_within(bytes(size), limits, itertools.repeat(0.0))
    roomy = limits._replace(received=len(packed))
    unpacked = read_within(packed, roomy, itertools.repeat(0.0), Content_Encoding="gzip")

    assert why == received
    assert (f"{why} when unpacked" if why else "") == unpacked


@pytest.mark.parametrize(("seconds", "is_slow"), [(59, False), (60, False), (61, True)])
def test_a_body_may_take_as_long_as_its_limit(seconds: int, is_slow: bool) -> None:
    clock = iter([0.0, float(seconds)])

    assert is_slow == bool(read_within(b"{}", Limits(seconds=60), clock))


def pages_of(most: int, settings: dict[str, Any], document: dict[str, Any], messages: int) -> int:
    """Return how many pages of so many messages are asked for, at most `most`."""
    pages = Pages(Profile.model_validate(settings), SERVICE, "/messages")
    url: str | None = pages.first()
    asked = 0
    while url is not None and asked < most:
        asked += 1
        url = pages.after(document, {}, messages)
    return asked


@pytest.mark.parametrize(
    ("style", "total", "asked"),
    [
        ("limit=2&offset={offset}", 3, 2),
        ("limit=2&offset={offset}", 4, 2),
        ("limit=2&offset={offset}", 5, 3),
        ("page={page}", 1, 1),
        ("page={page}", 2, 2),
        ("page={page}", 3, 3),
    ],
)
def test_the_last_page_is_the_one_with_the_last_message(style: str, total: int, asked: int) -> None:
    settings = {"names": {"page": {"query": style, "total": ["total"]}}}

    assert asked == pages_of(9, settings, {"total": total}, messages=2)


def test_a_list_has_a_thousand_pages_at_most() -> None:
    settings = {"names": {"page": {"query": "page={page}", "total": ["total"]}}}

    with pytest.raises(StrangeAnswerError, match="its pages do not end"):
        pages_of(MOST_PAGES + 9, settings, {"total": MOST_PAGES + 1}, messages=1)

    assert MOST_PAGES == pages_of(MOST_PAGES + 9, settings, {"total": MOST_PAGES}, messages=1)


def test_whoever_checks_a_service_waits_five_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench(service={"base_url": SERVICE})
    waits = list[float]()

    def client(_: Issuer, *, timeout: float, **__: Any) -> Any:
        waits.append(timeout)
        raise StrangeAnswerError(place="", problem="")

    monkeypatch.setattr(connection, "service_client", client)

    with pytest.raises(StrangeAnswerError):
        next(connection.check_service(bench.context))

    assert [5] == waits


@pytest.mark.parametrize(
    ("offset", "line"),
    [
        (60, "agrees"),
        (-60, "agrees"),
        (61, "61 seconds ahead of this machine's"),
        (-61, "61 seconds behind this machine's"),
    ],
)
def test_clocks_agree_within_a_minute(offset: float, line: str) -> None:
    assert line in connection._clock_line(offset)
