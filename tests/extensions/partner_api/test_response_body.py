"""The service's answer is read within limits, and it is said what may have been done by then."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from flows.errors import CardlinkError
from flows.extensions.partner_api.responses import Limits
from flows.extensions.partner_api.service import (
    AnswerLostError,
    ServiceBusyError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.transport import (
    RateLimiter,
    Request,
    RetryPolicy,
    Sender,
    connect,
)
from flows.runs.retry import Retry
from tests.extensions.partner_api.service_clients import settings_for

LIMITS = Limits(received=1 << 20, unpacked=2 << 20, seconds=60)
BOMB = gzip.compress(bytes(8 << 20), 1)
PACKED = {"Content-Encoding": "gzip"}
ENDLESS = "more than 1 MB"
EXPLODING = "more than 2 MB when unpacked"


class Stream(httpx.SyncByteStream):
    """A body that comes piece by piece."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.sent += len(piece)
            yield piece


def sent(
    policy: RetryPolicy, *, pieces: Iterable[bytes], status: int = 200, headers: Any = None
) -> bytes:
    """Return the body of a request that is answered so; a second passes at each look."""
    answer = httpx.Response(status, headers=headers or {}, stream=Stream(pieces))
    transport = httpx.MockTransport(lambda _: answer)
    seconds = itertools.count()

    def clock() -> float:
        return float(next(seconds))

    with connect(settings_for("https://service.example.com"), transport=transport) as http:
        retry = Retry(clock, lambda _: None, lambda: 0.0, attempts=1)
        sender = Sender(http, httpx.Auth(), RateLimiter(1e6, clock, lambda _: None), retry, LIMITS)
        request = Request("POST", "/card_links", "POST /card_links", policy, lost="Ask first.")
        return sender.send(request._replace(refusable=True)).body


def failure(policy: RetryPolicy, **answer: Any) -> CardlinkError:
    with pytest.raises(CardlinkError) as caught:
        sent(policy, **answer)
    return caught.value


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"pieces": itertools.repeat(b"x" * 65_536)}, ENDLESS),
        ({"pieces": [BOMB], "headers": PACKED}, EXPLODING),
        ({"pieces": [b"\x1f\x8b junk"], "headers": PACKED}, "compressed, and damaged"),
        (
            {"pieces": [gzip.compress(b"{}" * 999)[:30]], "headers": PACKED},
            "compressed, and cut off",
        ),
        (
            {"pieces": [b"{}"], "headers": {"Content-Encoding": "br"}},
            "compressed in a way that was not asked for",
        ),
    ],
    ids=["endless", "exploding", "damaged", "cut off", "another code"],
)
def test_a_body_beyond_a_limit_is_no_record_and_has_its_sentence(
    answer: dict[str, Any], why: str
) -> None:
    error = failure(RetryPolicy.READ, **answer)

    assert StrangeAnswerError is type(error)
    assert why in str(error)


@pytest.mark.parametrize("policy", [RetryPolicy.WRITE, RetryPolicy.CONSUME])
@pytest.mark.parametrize(
    ("pieces", "headers", "why"),
    [(b"x" * 65_536, {}, ENDLESS), (BOMB, PACKED, EXPLODING)],
    ids=["endless", "exploding"],
)
def test_a_request_with_such_an_answer_may_have_been_done(
    policy: RetryPolicy, pieces: bytes, headers: dict[str, str], why: str
) -> None:
    endless = itertools.repeat(pieces) if not headers else iter([pieces])

    error = failure(policy, pieces=endless, headers=headers)

    assert AnswerLostError is type(error)
    assert f"was lost ({why}): it is unknown whether it was done" in str(error)
    assert "Ask first." in str(error)


def test_a_body_that_comes_too_slowly_is_given_up() -> None:
    slow = {"pieces": itertools.repeat(b"x")}

    errors = [failure(policy, **slow) for policy in (RetryPolicy.WRITE, RetryPolicy.READ)]

    assert [AnswerLostError, ServiceBusyError] == [type(error) for error in errors]
    assert all("not whole after 60 seconds" in str(error) for error in errors)


def test_a_refusal_with_an_endless_reason_is_a_refusal() -> None:
    body = sent(RetryPolicy.WRITE, pieces=itertools.repeat(b"x" * 65_536), status=422)

    assert b"" == body


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bytes], ids=["gzip", "zlib", "no"])
def test_a_body_within_the_limits_is_read_whole(pack: Any) -> None:
    content = b'{"id": 7}' * 10_000
    packed = pack(content)
    coding = {gzip.compress: "gzip", zlib.compress: "deflate", bytes: "identity"}[pack]

    body = sent(
        RetryPolicy.READ,
        pieces=iter([packed[:9], packed[9:]]),
        headers={"Content-Encoding": coding},
    )

    assert content == body
