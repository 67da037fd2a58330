"""What the page server shows: files of `report/`, `reconciliation/` and `programme/`, from whatever
store they are in; never a chunk, a link or a list of links.
"""

import hmac
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError, TryAgainError, guarded
from flows.extensions import hooks
from flows.pages.address import ReportsAddress
from flows.pages.health import ArrivalsHealth
from flows.runs.store import Source
from flows.wiring import open_store

METRICS = "metrics"  # below the token, or at the root for who sends it as a bearer token
READERS = 8  # threads that read from stores
PIECE = 2**18  # bytes of a page in memory for each browser that reads it
TYPES = {
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
SERVED = re.compile(
    rf"(?:programme|(?P<issuer>[a-z0-9-]+)/"
    rf"(?:runs/[a-z0-9-]+/report|reconciliation(?:/period-[a-z0-9-]+)?|programme))/"
    rf"(?!links)[a-z0-9_-]+\.(?P<type>{'|'.join(TYPES)})"
)
REFUSED = (
    "Not here. This server shows reports and reconciliation pages; links are read from the store.\n"
)


def site(folder: Path, address: ReportsAddress) -> Starlette:
    """Return the pages of a folder's issuers, for requests with the address's host and token."""

    def page(request: Request) -> Response:
        path = request.scope["path"].removeprefix(address.prefix)
        token, _, key = path[1:].partition("/")
        is_known = hmac.compare_digest(token.encode(errors="replace"), address.token.encode())
        served = SERVED.fullmatch(key) if is_known else None
        if is_known and key == METRICS:
            return _scraped(folder, request)
        return _response(folder, served, request.method) if served else refused()

    def metrics(request: Request) -> Response:
        sent = request.headers.get("authorization", "").encode(errors="replace")
        is_known = hmac.compare_digest(sent, f"Bearer {address.token}".encode())
        return _scraped(folder, request) if is_known else refused()

    health = ArrivalsHealth(folder)

    def arrivals(_: Request) -> Response:
        return _text(*health.read())

    host = f"[{address.host}]" if ":" in address.host else address.host
    of_host = Middleware(TrustedHostMiddleware, allowed_hosts=[host], www_redirect=False)
    prefixes = {"", address.prefix}
    pages = [
        *(Route(f"{prefix}/{METRICS}", metrics) for prefix in prefixes),
        Route("/{path:path}", page),
    ]
    return Starlette(
        routes=[
            *(Route(f"{prefix}/healthz", healthy) for prefix in prefixes),
            *(Route(f"{prefix}/healthz/arrivals", arrivals) for prefix in prefixes),
            Mount("", routes=pages, middleware=[of_host]),
        ],
        exception_handlers={404: refused},
        lifespan=_few_threads,
    )


async def healthy(_: Request) -> Response:
    """Return that the server answers; whoever checks needs neither token nor host."""
    return _text(200, "ok\n")


def refused(*_: object) -> Response:
    """Return the one answer to whatever is not served."""
    return _text(404, REFUSED)


def _response(folder: Path, served: re.Match[str], method: str) -> Response:
    try:
        source = guarded(_opened)(folder, served)
    except TryAgainError as error:
        return _text(503, f"{error.what_happened} Try again in a minute.\n")
    except CardlinkError as error:
        return _text(500, f"{error.what_happened}\n")
    if source is None:
        return refused()
    size = str(source.entry.size)
    headers = {"Content-Type": TYPES[served["type"]], "Content-Length": size}
    if method == "HEAD":
        with source:
            return Response(headers=headers)
    return Page(source, headers)


class Page(StreamingResponse):
    """A page piece by piece, so that a slow browser holds no more of it in memory."""

    def __init__(self, source: Source, headers: Mapping[str, str]) -> None:
        self.source = source
        super().__init__(iter(partial(guarded(source.read), PIECE), b""), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and close the page, whoever ended it."""
        with self.source:
            await super().__call__(scope, receive, send)


def _scraped(folder: Path, request: Request) -> Response:
    """Return the metrics, where an extension has them."""
    for exposed in hooks("exposed"):
        content, media_type = exposed(folder, request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": media_type})
    return Response(REFUSED, 404)


def _text(status: int, text: str) -> Response:
    return Response(text, status, headers={"Content-Type": "text/plain"})


def _opened(folder: Path, served: re.Match[str]) -> Source | None:
    """Open a page of an issuer; one of all issuers from the first root that has it.

    TryAgainError where a store that may have it does not respond.
    """
    temporary: TryAgainError | None = None
    for name in issuers(folder):
        if served["issuer"] not in (None, name):
            continue
        try:
            return open_store(load_issuer(folder, name), folder).open(served.string)
        except TryAgainError as error:
            temporary = error
        except CardlinkError:
            continue  # not there, or, on S3, nothing that this role may see
    if temporary is not None:
        raise temporary
    return None


@asynccontextmanager
async def _few_threads(_: Starlette) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = READERS
    yield
