"""How the service is asked: one request, what is safe to try again, and its answer or an error of ours.

httpx keeps the request, and with it cards and tokens, in its exceptions: none of them leaves this module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from flows.core.service.answers import refusal_of
from flows.core.service.service_errors import (
    AnswerLostError,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
    UnauthorisedError,
)
from flows.core.storage.retry import Retry
from flows.edge.service.turns import Turns
from schemas.service import LOOPBACK, ServiceSettings

LIMITED: Final = 429
UNAUTHORISED: Final = 401
MISSING: Final = 404
OUT_OF_ORDER: Final = 500  # and above
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class Again(Enum):
    """What may be tried again, by what a lost answer costs."""

    READ = "read"  # a record: nothing
    CONSUME = "consume"  # messages: they are read once, so whoever asks again must know that some may be gone
    WRITE = "write"  # something may have been made: never by itself


class Request(NamedTuple):
    """One request; `place` names it in messages without ids that are secrets, `lost` says what to do without answer."""

    method: str
    path: str
    place: str
    again: Again = Again.READ
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    lost: str = ""
    refusable: bool = False  # a refusal is an answer too: what it says is for the records, not for an exception


class Answer(NamedTuple):
    """What came back: a success, or a refusal where the request can take one."""

    status: int
    body: bytes

    @property
    def refused(self) -> bool:
        """True where the service says no."""
        return not 200 <= self.status < 300


class _AgainError(Exception):
    """Nothing was done, or nothing is lost: the same request may be sent again."""


class Sender:
    """Send requests to one service; a Retry says how often and how long what is safe is tried again."""

    def __init__(self, http: httpx.Client, turns: Turns, retry: Retry) -> None:
        self._http = http
        self._turns = turns
        self._retry = retry

    def send(self, request: Request) -> Answer:
        """Return the answer, or raise what `service_errors` names: nothing of httpx."""
        try:
            return self._retry(lambda: self._attempt(request), _AgainError)
        except _AgainError as error:
            kind = str(error)
        raise ServiceBusyError(place=request.place, kind=kind)

    def _attempt(self, request: Request) -> Answer:
        self._turns.take()
        headers, sent = dict(request.headers), True
        try:
            answer = self._http.request(request.method, request.path.lstrip("/"), headers=headers, json=request.body)
        except _UNSENT as error:
            kind, sent = type(error).__name__, False
        except httpx.HTTPError as error:
            kind = type(error).__name__
        else:
            return self._judge(request, answer)
        if sent and request.again is not Again.READ:
            raise AnswerLostError(place=request.place, kind=kind, advice=request.lost)
        raise _AgainError(kind)

    def _judge(self, request: Request, answer: httpx.Response) -> Answer:
        """Let an answer through, or say what its status means."""
        status = answer.status_code
        if answer.is_success:
            return Answer(status, answer.content)
        if status == LIMITED or status >= OUT_OF_ORDER:
            self._turns.hold(_seconds(answer.headers.get("Retry-After", "")))
            if request.again is not Again.READ and status != LIMITED:
                raise AnswerLostError(place=request.place, kind=f"HTTP {status}", advice=request.lost)
            raise _AgainError(f"HTTP {status}")
        if status == UNAUTHORISED:
            raise UnauthorisedError(place=request.place, status=status)
        if status == MISSING:
            raise NoSuchRecordError(place=request.place)
        if request.refusable:
            return Answer(status, answer.content)
        raise ServiceRefusedError(place=request.place, status=status, reason=refusal_of(answer.content).codes)


def connect(settings: ServiceSettings, transport: httpx.BaseTransport | None = None) -> httpx.Client:
    """Return the connection to a service, silent about addresses and headers; redirects are not followed.

    A redirect would carry a card or a token to a place nobody named.
    """
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they log addresses and headers
    return httpx.Client(
        base_url=settings.base_url,
        timeout=httpx.Timeout(settings.read_timeout_seconds, connect=settings.connect_timeout_seconds),
        transport=transport,
        trust_env=urlsplit(settings.base_url).hostname not in LOOPBACK,  # a proxy never stands before loopback
    )


def _seconds(header: str) -> float:
    return float(header) if header.isdigit() else 0.0
