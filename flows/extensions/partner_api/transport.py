"""How requests are sent: rate limit, what is safe to retry, our errors for HTTP's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import cache
from ssl import SSLContext
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from flows.errors import OperatorError
from flows.extensions.partner_api.responses import (
    ENCODINGS,
    USUAL,
    Limits,
    SlowBodyError,
    UnreadableBodyError,
    body_of,
    refusal_of,
)
from flows.extensions.partner_api.service import (
    AnswerLostError,
    NoSuchRecordError,
    RedirectedError,
    ServiceBusyError,
    ServiceRefusedError,
    SessionEndedError,
    StrangeAnswerError,
    UnauthorisedError,
)
from flows.extensions.partner_api.sessions import LOGIN
from flows.extensions.partner_api.settings import ServiceSettings
from flows.runs.retry import Retry
from schemas.settings import LOOPBACK

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0  # until a response begins
LONGEST_HOLD = 60.0  # seconds; the longest wait the service can impose at a time

LIMITED: Final = 429
UNAVAILABLE: Final = 503
UNAUTHORISED: Final = 401
MISSING: Final = 404
CONFLICT: Final = 409
_NOT_OF_ROW: Final = frozenset({403, 405, 415})  # refusals that say nothing of what was requested
_NO_LOGIN: Final = frozenset({404, 405, 410, *range(300, 400)})
OUT_OF_ORDER: Final = 500  # and above
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class RateLimiter:
    """Spaces requests evenly; `clock` gives monotonic seconds."""

    def __init__(
        self, per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._step = 1 / per_second
        self.clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._next = clock()

    def take(self) -> None:
        """Wait until the next request may be sent."""
        with self._lock:
            now = self.clock()
            turn = max(self._next, now)
            self._next = turn + self._step
        if turn > now:
            self._sleep(turn - now)

    def hold(self, seconds: float) -> None:
        """Send nothing for so long, at most a minute, as `Retry-After` asks."""
        with self._lock:
            self._next = max(self._next, self.clock() + min(seconds, LONGEST_HOLD))


class RetryPolicy(Enum):
    """What may be retried once a response is lost, by what the loss costs.

    A request that the service surely did not accept (no connection, or "too many requests") is
    retried under each policy; one for messages also where the service says when it is back (503).
    """

    READ = "read"  # of a record: costs nothing, so it is retried
    CONSUME = "consume"  # of messages, each read only once: a retry would hide that some are lost
    WRITE = "write"  # something may have been created: a retry might create it twice
    REPEAT = "repeat"  # the same, but the service knows a retry by its idempotency key


class Request(NamedTuple):
    """One request.

    `place` names it in messages without secret ids, `lost` says what to do without a response.
    """

    method: str
    path: str
    place: str
    policy: RetryPolicy = RetryPolicy.READ
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    lost: str = ""
    refusable: bool = False  # a refusal is a result too: recorded, not raised
    is_login: bool = False


class Response(NamedTuple):
    """A response: a success, or a refusal if the request is refusable."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}

    @property
    def refused(self) -> bool:
        """Whether the service refused."""
        return self.status // 100 != 2


class _RetryError(Exception):
    """Nothing was done or lost: the same request may be sent again. Holds why, and its place."""


class _LostError(_RetryError):
    """The service may have done it, and knows the same request again."""


class Sender:
    """Sends requests to one service; a Retry says how often and how long safe ones are retried."""

    def __init__(
        self,
        http: httpx.Client,
        auth: httpx.Auth,
        turns: RateLimiter,
        retry: Retry,
        limits: Limits = USUAL,
    ) -> None:
        self._http = http
        self._auth = auth
        self._turns = turns
        self._retry = retry
        self._limits = limits
        self._has_worked = set[tuple[str, RetryPolicy]]()  # kinds of requests
        self.clock_offset: float | None = None  # seconds that the service's clock is ahead

    def send(self, request: Request) -> Response:
        """Return the response, or raise one of our errors: none of httpx."""
        losses = list[str]()  # attempts that the service may have accepted
        try:
            return self._retry(lambda: self._attempt(request, losses), _RetryError)
        except _RetryError as error:
            kind, place = error.args
        if losses and request.policy is RetryPolicy.REPEAT:
            raise AnswerLostError(place=request.place, kind=kind, advice=request.lost)
        raise ServiceBusyError(place=place, kind=kind)

    def _attempt(self, request: Request, losses: list[str]) -> Response:
        try:
            return self._exchange(request)
        except _LostError as error:
            losses.append(error.args[0])
            raise

    def _exchange(self, request: Request) -> Response:
        """Send what the session's flow yields: perhaps a login, then the request itself."""
        path = request.path.lstrip("/")
        headers = dict(request.headers)
        built = self._http.build_request(request.method, path, headers=headers, json=request.body)
        with closing(self._auth.sync_auth_flow(built)) as flow:
            outgoing = next(flow)
            while True:
                part = request if outgoing is built else _of_session(outgoing)
                answer = self._judge(part, self._sent(part, outgoing))
                try:
                    outgoing = flow.send(answer)
                except StopIteration:
                    break
        kind = request.method, request.policy
        if answer.status_code == UNAUTHORISED:
            if kind in self._has_worked:
                raise SessionEndedError(place=request.place, kind=str(UNAUTHORISED))
            raise _unauthorised(request, answer)
        self._has_worked.add(kind)
        return Response(answer.status_code, answer.content, answer.headers)

    def _sent(self, request: Request, outgoing: httpx.Request) -> httpx.Response:
        """Send one request; return its response with what is read of its body."""
        self._turns.take()
        try:
            response = self._http.send(outgoing, stream=True)
            with closing(response):
                self._note_clock(response.headers)
                body = self._body(request, response)
                headers = [(k, v) for k, v in response.headers.items() if k != "content-encoding"]
                return httpx.Response(response.status_code, headers=headers, content=body)
        except _UNSENT as error:
            kind = type(error).__name__
            is_sent = False
        except httpx.HTTPError as error:
            kind = type(error).__name__
            is_sent = True
        raise _without_response(request, kind, is_accepted=is_sent)

    def _note_clock(self, headers: httpx.Headers) -> None:
        moment = _moment(headers.get("Date", ""))
        if moment is not None:
            self.clock_offset = (moment - datetime.now(UTC)).total_seconds()

    def _judge(self, request: Request, response: httpx.Response) -> httpx.Response:
        """Return a response that the session's flow and the caller can use, or raise what it means.

        One that is not authorised goes to the flow, which may log in again.
        """
        status = response.status_code
        if response.is_success or (status == UNAUTHORISED and not request.is_login):
            return response
        if _may_pass(request, status):
            self._turns.hold(_patience(response.headers))
            is_conflict = status == CONFLICT and request.policy is RetryPolicy.REPEAT
            is_accepted = _may_be_done(request, response) or is_conflict
            raise _without_response(request, f"HTTP {status}", is_accepted=is_accepted)
        refusal = _refusal(request, response)
        if refusal is not None:
            raise refusal
        return response

    def _body(self, request: Request, response: httpx.Response) -> bytes:
        """Return the body of a response; of a refusal only what can be read.

        A success that is not read whole is lost where that matters; a record is read anew, unless
        it would be as large again.
        """
        if _may_pass(request, response.status_code):
            return b""
        try:
            return body_of(response, self._limits, self._turns.clock)
        except UnreadableBodyError as error:
            problem = str(error)
            is_slow = isinstance(error, SlowBodyError)
        if not response.is_success:
            return b""
        if request.policy is RetryPolicy.READ and not is_slow:
            raise StrangeAnswerError(place=request.place, problem=problem)
        raise _without_response(request, problem, is_accepted=True)


def _of_session(outgoing: httpx.Request) -> Request:
    """Return the description of a request that a session's flow sends for itself.

    An extra session does no harm, so a retry is safe.
    """
    place = f"{outgoing.method} {outgoing.url.path}"
    return Request(outgoing.method, outgoing.url.path, place, RetryPolicy.READ, is_login=True)


def _unauthorised(request: Request, response: httpx.Response) -> UnauthorisedError:
    words = refusal_of(response.content).message if response.content.strip() else ""
    reason = f": {words}" if words else ""
    return UnauthorisedError(place=request.place, status=response.status_code, reason=reason)


def _refusal(request: Request, response: httpx.Response) -> OperatorError | None:
    """Return what a refusal that does not pass means, None where the caller judges it itself."""
    status = response.status_code
    if request.is_login:
        return _refused_login(request, response)
    if status == MISSING:
        return NoSuchRecordError(place=request.place)
    if response.is_redirect:
        return RedirectedError(place=request.place, status=status)
    if request.refusable and status not in _NOT_OF_ROW:
        return None
    reason = _in_words(response.content)
    return ServiceRefusedError(place=request.place, status=status, reason=reason)


def _refused_login(request: Request, response: httpx.Response) -> OperatorError:
    """Return why there is no session: a login at another place, or credentials or their names."""
    status = response.status_code
    if status in _NO_LOGIN:
        problem = (
            f"{request.place} is no login (HTTP {status}); [service.names] path.login names it"
        )
        return StrangeAnswerError(place=LOGIN, problem=problem)
    return _unauthorised(request, response)


def _in_words(body: bytes) -> str:
    """Return why a request is refused: codes, and the service's own words as far as harmless."""
    refusal = refusal_of(body)
    return f"{refusal.codes}: {refusal.message}" if refusal.message else refusal.codes


def _may_pass(request: Request, status: int) -> bool:
    """Return whether a refusal may pass: a conflict only where a repeat writes nothing twice."""
    if status == CONFLICT:
        return request.policy is not RetryPolicy.WRITE
    return status == LIMITED or status >= OUT_OF_ORDER


def _may_be_done(request: Request, response: httpx.Response) -> bool:
    """Return whether a request may have been carried out though it ended so.

    Whoever is unavailable and says until when has delivered no messages.
    """
    is_put_off = response.status_code == UNAVAILABLE and "Retry-After" in response.headers
    if is_put_off and request.policy is RetryPolicy.CONSUME:
        return False
    return response.status_code >= OUT_OF_ORDER


def _without_response(request: Request, kind: str, *, is_accepted: bool) -> Exception:
    """Return the error of a request whose response is not usable.

    `is_accepted`: the service may have done something.
    """
    if not is_accepted or request.policy is RetryPolicy.READ:
        return _RetryError(kind, request.place)
    if request.policy is RetryPolicy.REPEAT:
        return _LostError(kind, request.place)
    return AnswerLostError(place=request.place, kind=kind, advice=request.lost)


def connect(
    settings: ServiceSettings,
    timeout: float = READ_SECONDS,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Return the connection to a service, silent about addresses and headers.

    Redirects are not followed. A redirect would carry a card or a token to a place nobody named.
    """
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they log addresses and headers
    # there is no proxy before loopback
    trust_env = urlsplit(settings.base_url).hostname not in LOOPBACK
    return httpx.Client(
        base_url=settings.base_url,
        timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
        transport=transport,
        headers={"Accept-Encoding": ENCODINGS},
        trust_env=trust_env,
        verify=_authorities(trust_env=trust_env),
    )


@cache
def _authorities(*, trust_env: bool) -> SSLContext:
    """Return whom certificates must be signed by: read once, which takes longer than a request."""
    return httpx.create_ssl_context(trust_env=trust_env)


def _patience(headers: httpx.Headers) -> float:
    """Return the seconds to wait that `Retry-After` asks for: as seconds, or as a date.

    A date is compared with the response's own, so that the service's clock may be off.
    """
    retry_after = headers.get("Retry-After", "").strip()
    if retry_after.isdecimal():
        return float(retry_after)
    until = _moment(retry_after)
    now = _moment(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds()) if until else 0.0


def _moment(header: str) -> datetime | None:
    """Return the date in a header, None for anything else."""
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
