"""How the service is asked: who we are, so many requests a second, what is safe to retry, errors of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx

from flows.partner_api.responses import fits_header, refusal_of
from flows.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
    StrangeAnswerError,
    UnauthorisedError,
)
from flows.runs.store import Retry
from schemas.partner_api.service import LOOPBACK, ServiceSettings

LONGEST_HOLD = 60.0  # seconds the service can make us wait at a time

LIMITED: Final = 429
UNAUTHORISED: Final = 401
MISSING: Final = 404
OUT_OF_ORDER: Final = 500  # and above
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@dataclass(frozen=True)
class Credentials:
    """The service object of interface.md 2.8 without its address; no repr shows a secret."""

    app_name: str
    app_key: str = field(repr=False)
    username: str = field(repr=False)
    password: str = field(repr=False)

    def as_json(self) -> dict[str, str]:
        """Return the properties as requests spell them."""
        return {name: getattr(self, name) for name in ("app_name", "app_key", "username", "password")}


class Session(Protocol):
    """Says who is asking; interface.md 5 leaves open how, so any scheme that goes by headers fits."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request, logging in where that has not happened yet."""
        ...

    def renew(self, refused: Mapping[str, str]) -> None:
        """Make these headers, which the service no longer takes, give way to new ones."""
        ...


class LoginSession:
    """A session by login: credentials against a token, which every later request bears."""

    def __init__(self, login: Callable[[], str | None]) -> None:
        self._login = login
        self._lock = Lock()
        self._headers: dict[str, str] = {}

    def headers(self) -> Mapping[str, str]:
        """Return the token's header; the first caller logs in."""
        with self._lock:
            if not self._headers:
                token = self._login()
                if token is None or not fits_header(token):
                    raise StrangeAnswerError(place="the login", problem="no session token")
                self._headers = {"Authorization": f"Bearer {token}"}
            return self._headers

    def renew(self, refused: Mapping[str, str]) -> None:
        """Forget the token, unless another thread has a new one already."""
        with self._lock:
            if self._headers == refused:
                self._headers = {}


class RateLimiter:
    """Hand out turns, evenly spaced; `clock` is a monotonic one in seconds."""

    def __init__(self, per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._step = 1 / per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._next = clock()

    def take(self) -> None:
        """Wait for a turn."""
        with self._lock:
            now = self._clock()
            mine = max(self._next, now)
            self._next = mine + self._step
        if mine > now:
            self._sleep(mine - now)

    def hold(self, seconds: float) -> None:
        """Give no turn for so long, at most a minute: the service said when to come back (`Retry-After`)."""
        with self._lock:
            self._next = max(self._next, self._clock() + min(seconds, LONGEST_HOLD))


class RetryPolicy(Enum):
    """What may be tried again, by what a lost answer costs."""

    READ = "read"  # a record: nothing
    CONSUME = "consume"  # messages: they are read once, so whoever asks again must know that some may be gone
    WRITE = "write"  # something may have been made: never by itself


class Request(NamedTuple):
    """One request; `place` names it in messages without ids that are secrets, `lost` says what to do without answer."""

    method: str
    path: str
    place: str
    again: RetryPolicy = RetryPolicy.READ
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    lost: str = ""
    refusable: bool = False  # a refusal is an answer too: what it says is for the records, not for an exception


class Response(NamedTuple):
    """What came back: a success, or a refusal where the request can take one."""

    status: int
    body: bytes

    @property
    def refused(self) -> bool:
        """True where the service says no."""
        return not 200 <= self.status < 300


class _RetryError(Exception):
    """Nothing was done, or nothing is lost: the same request may be sent again."""


class Sender:
    """Send requests to one service; a Retry says how often and how long what is safe is tried again."""

    def __init__(self, http: httpx.Client, turns: RateLimiter, retry: Retry) -> None:
        self._http = http
        self._turns = turns
        self._retry = retry

    def send(self, request: Request) -> Response:
        """Return the answer, or raise what `service_errors` names: nothing of httpx."""
        try:
            return self._retry(lambda: self._attempt(request), _RetryError)
        except _RetryError as error:
            kind = str(error)
        raise ServiceBusyError(place=request.place, kind=kind)

    def _attempt(self, request: Request) -> Response:
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
        if sent and request.again is not RetryPolicy.READ:
            raise AnswerLostError(place=request.place, kind=kind, advice=request.lost)
        raise _RetryError(kind)

    def _judge(self, request: Request, answer: httpx.Response) -> Response:
        """Let an answer through, or say what its status means."""
        status = answer.status_code
        if answer.is_success:
            return Response(status, answer.content)
        if status == LIMITED or status >= OUT_OF_ORDER:
            self._turns.hold(_seconds(answer.headers.get("Retry-After", "")))
            if request.again is not RetryPolicy.READ and status != LIMITED:
                raise AnswerLostError(place=request.place, kind=f"HTTP {status}", advice=request.lost)
            raise _RetryError(f"HTTP {status}")
        if status == UNAUTHORISED:
            raise UnauthorisedError(place=request.place, status=status)
        if status == MISSING:
            raise NoSuchRecordError(place=request.place)
        if request.refusable:
            return Response(status, answer.content)
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
