"""The client: one method per endpoint of interface.md 4.

It returns typed records and raises only our errors.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

import httpx

from flows.errors import CardlinkError
from flows.extensions.partner_api.profile import ID, Profile
from flows.extensions.partner_api.responses import (
    LOST_PAGE,
    USUAL,
    Limits,
    document_of,
    fits_header,
    job_of,
    link_of,
    messages_in,
    refusal_of,
    text_in,
)
from flows.extensions.partner_api.service import (
    AnswerLostError,
    LinkRequestError,
    NoSuchRecordError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.service_objects import (
    HYDRATE_CARDHOLDER,
    CardLink,
    CardLinkRequest,
    CredentialRequest,
    JobMessage,
    JobRecord,
    Messages,
    Refusal,
)
from flows.extensions.partner_api.sessions import Credentials, auth_of, it_has
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.translation import elements, no_job_in, no_link_in, value_at
from flows.extensions.partner_api.transport import (
    READ_SECONDS,
    RateLimiter,
    Request,
    Response,
    RetryPolicy,
    Sender,
    connect,
)
from flows.runs.retry import Retry

ACCEPTED: Final = 202
MOST_PAGES: Final = 1000
CREATED_WITHIN: Final = 30.0  # seconds that a link may take whose creation was only accepted
_BETWEEN_LOOKS: Final = 1.0  # seconds, while a link is being created
_LOST_LINK: Final = "A link may exist: ask the partner before requesting another one for this card."
_LOST_MESSAGES: Final = "Messages may have been read and lost; the job's record shows its state."
_LOST_ANSWER: Final = (
    "Read the job's record: if the request is still pending, the answer did not arrive."
)


class ServiceClient:
    """The partner's service for one issuer; thread-safe."""

    def __init__(
        self,
        settings: ServiceSettings,
        credentials: Credentials,
        sender: Sender,
        clock: Retry,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._credentials = credentials
        self._sender = sender

    def create_link(self, request: CardLinkRequest) -> CardLink | Refusal:
        """Request one link (2.8); a refusal is returned.

        After AnswerLostError it may exist: do not repeat blindly.
        """
        settings = self._settings
        if not settings.fi_key:
            raise LinkRequestError(codes="service.fi_key.missing (a setting of [service])")
        response = self._sender.send(link_creation(settings, self._credentials, request))
        if response.refused:
            return refusal_of(response.body)
        if response.status == ACCEPTED:
            return self._created_later(response)
        return self._link(response, f"POST {settings.path('create_link')}")

    def _created_later(self, response: Response) -> CardLink:
        """Return a link whose creation was only accepted, once its record has its URL."""
        settings = self._settings
        place = f"POST {settings.path('create_link')}"
        link = link_of(response.body, settings)
        until = self._clock.clock() + CREATED_WITHIN
        while link is None or not (link.url or link.cardholder_long_token):
            link_id = (link.id if link else None) or _last_segment(response.headers)
            if link_id is None or self._clock.clock() >= until:
                problem = "accepted, and no link yet" if link_id else "accepted, without an id"
                raise AnswerLostError(place=place, kind=f"HTTP 202, {problem}", advice=_LOST_LINK)
            self._clock.sleep(_BETWEEN_LOOKS)
            with suppress(NoSuchRecordError, StrangeAnswerError):
                link = self.card_link(link_id)
        return link

    def card_link(self, link_id: str, hydrate: tuple[str, ...] = HYDRATE_CARDHOLDER) -> CardLink:
        """Return the record of a link (2.9), by default with its card and cardholder."""
        return self._link(self._link_response(link_id, hydrate), self._settings.link_place())

    def link_document(self, link_id: str) -> object:
        """Return the record of a link as the service answers it; None where it is no JSON."""
        return document_of(self._link_response(link_id, HYDRATE_CARDHOLDER).body)

    def _link_response(self, link_id: str, hydrate: tuple[str, ...]) -> Response:
        settings = self._settings
        header = dict[str, str]()
        if hydrate:
            header[settings.hydration_header] = settings.link_hydration(*hydrate)
        place = settings.link_place()
        path = _path(settings.path("link"), link_id, place)
        return self._sender.send(Request("GET", path, place, headers=header))

    def job(self, job_id: str) -> JobRecord:
        """Return the record of a job (2.2).

        It has the job's pending requests, which need the hydration header.
        """
        return self._job(self._job_response(job_id), job_id)

    def _job(self, response: Response, job_id: str) -> JobRecord:
        record = job_of(response.body, self._settings)
        if record is None:
            place = f"GET {_path(self._settings.path('job'), job_id)}"
            problem = no_job_in(document_of(response.body))
            raise StrangeAnswerError(place=place, problem=problem)
        return record

    def job_document(self, job_id: str) -> object:
        """Return the record of a job as the service answers it; None where it is no JSON."""
        return document_of(self._job_response(job_id).body)

    def _job_response(self, job_id: str) -> Response:
        path = _path(self._settings.path("job"), job_id)
        header = {self._settings.hydration_header: self._settings.name("request.job_hydration")}
        return self._sender.send(Request("GET", path, f"GET {path}", headers=header))

    @property
    def profile(self) -> Profile:
        """The names and shapes that the service uses."""
        return self._settings

    @property
    def clock_offset(self) -> float | None:
        """The seconds that the service's clock was ahead at its last response; None: unknown."""
        return self._sender.clock_offset

    def messages(self, job_id: str) -> Messages:
        """Read a job's messages (2.1, 2.4), each status message only once.

        After AnswerLostError some may be lost.
        """
        return messages_in(self._consume(_path(self._settings.path("job_messages"), job_id)))

    def cardholder_messages(self, cardholder_id: str) -> bytes:
        """Read the messages of a cardholder's jobs, as one JSON list in the interface's words.

        Store them: each can be read only once. Where a later page was lost, LOST_PAGE is among
        them.
        """
        path = _path(self._settings.path("cardholder_messages"), cardholder_id)
        elements = list[Any]()
        try:
            for page in self._pages(_consuming(path)):
                elements += page
        except CardlinkError:
            if not elements:
                raise
            elements.append(LOST_PAGE)
        return json.dumps(elements).encode()

    def credential_requests(self, job_id: str) -> tuple[CredentialRequest, ...]:
        """Return a job's pending requests; they stay until answered."""
        path = _path(self._settings.path("credential_requests"), job_id)
        pages = self._pages(Request("GET", path, f"GET {path}"))
        return messages_in(chain.from_iterable(pages)).requests

    def answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> JobRecord | None:
        """Answer a credential request (2.5) by updating its job; return it if it comes back."""
        header = {self._settings.envelope_header: envelope_id}
        return self._update(job_id, answers, header)

    def update_account(self, job_id: str, account_link: Mapping[str, str]) -> JobRecord | None:
        """Update a job's account without an envelope id: this answers no request (4, rule 2)."""
        return self._update(job_id, account_link, {})

    def post_answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> None:
        """Answer a credential request by the endpoint that is not recommended (4)."""
        path = _path(self._settings.path("credential_responses"), job_id)
        number: int | str = int(job_id) if job_id.isdigit() else job_id
        body = {"job_id": number, "envelope_id": envelope_id, "account_link": dict(answers)}
        place = f"POST {path}"
        self._sender.send(
            Request("POST", path, place, RetryPolicy.WRITE, body=body, lost=_LOST_ANSWER)
        )

    def register(self, job_id: str) -> str:
        """Register a broadcast channel of a job and return its access key."""
        path = _path(self._settings.path("registrations"), job_id)
        request = Request(
            "GET",
            path,
            f"GET {path}",
            RetryPolicy.WRITE,
            lost="Register again; the lost channel stays unread.",
        )
        body = self._sender.send(request).body
        key = text_in(body, self._settings.places("channel.access_key"))
        if key is None or not fits_header(key):
            problem = "no access key; name its field in [service.names] channel.access_key"
            raise StrangeAnswerError(place=f"GET {path}", problem=problem + it_has(body))
        return key

    def broadcasts(self, job_id: str, access_key: str) -> tuple[JobMessage, ...]:
        """Read the status messages of a channel, each only once.

        Credential requests are not among them.
        """
        path = _path(self._settings.path("broadcasts"), job_id)
        header = {self._settings.access_key_header: access_key}
        return messages_in(self._consume(path, header)).statuses

    def _consume(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[Any]:
        return chain.from_iterable(self._pages(_consuming(path, headers)))

    def _pages(self, request: Request) -> Iterator[list[Any]]:
        """Yield the elements of each page of a list, in the interface's words."""
        pages = Pages(self._settings, self._settings.base_url, request.path)
        url: str | None = pages.first()
        while url is not None:
            response = self._sender.send(request._replace(path=url))
            document = document_of(response.body)
            page = list(elements(document, self._settings))
            if document is None and response.body.strip():
                page = [response.body.decode("utf-8", "replace")]  # no JSON: nobody can read it
            yield page
            url = pages.after(document, response.headers, len(page))

    def _link(self, response: Response, place: str) -> CardLink:
        record = link_of(response.body, self._settings)
        if record is None:
            raise StrangeAnswerError(place=place, problem=no_link_in(document_of(response.body)))
        return record

    def _update(
        self, job_id: str, account_link: Mapping[str, str], headers: Mapping[str, str]
    ) -> JobRecord | None:
        path = _path(self._settings.path("job"), job_id)
        place = f"PUT {path}"
        body = {"account": {"account_link": dict(account_link)}}
        request = Request("PUT", path, place, RetryPolicy.WRITE, headers, body, _LOST_ANSWER)
        return job_of(self._sender.send(request).body, self._settings)


@contextmanager
def open_client(
    settings: ServiceSettings,
    credentials: Credentials,
    retry: Retry,
    limits: Limits = USUAL,
    timeout: float = READ_SECONDS,
) -> Iterator[ServiceClient]:
    """Open a client with a session of its own; nothing is sent before the first call.

    `timeout`: seconds until a response begins.
    """
    turns = RateLimiter(settings.requests_per_second, retry.clock, retry.sleep)
    auth = auth_of(settings, credentials)
    with connect(settings, timeout) as http:
        yield ServiceClient(settings, credentials, Sender(http, auth, turns, retry, limits), retry)


def link_creation(
    settings: ServiceSettings, credentials: Credentials, request: CardLinkRequest
) -> Request:
    """Return the request for one link (2.8), with the keys where the settings say."""
    service = {"service_server": settings.base_url, **credentials.as_json()}
    body: dict[str, Any] = {settings.name("request.service"): service, **request.body()}
    headers = dict[str, str]()
    keys = {"request.fi_key": settings.fi_key, "request.safe_key": settings.safe_key}
    if settings.keys_in == "body":
        body |= {settings.name(name): key for name, key in keys.items()}
    else:
        headers |= {settings.name(name): key for name, key in keys.items() if key}
    policy = RetryPolicy.WRITE
    idempotency_header = settings.name("request.idempotency_key")
    if idempotency_header:
        headers[idempotency_header] = secrets.token_hex(16)
        policy = RetryPolicy.REPEAT
    place = f"POST {settings.path('create_link')}"
    path = settings.path("create_link")
    return Request("POST", path, place, policy, headers, body, lost=_LOST_LINK, refusable=True)


def _consuming(path: str, headers: Mapping[str, str] | None = None) -> Request:
    """Return the request of messages that can be read only once."""
    place = f"GET {path}"
    return Request("GET", path, place, RetryPolicy.CONSUME, headers or {}, lost=_LOST_MESSAGES)


def _last_segment(headers: Mapping[str, str]) -> str | None:
    """Return the id of the record that `Location` names, None without one."""
    path = urlsplit(headers.get("Location", "")).path
    return path.rstrip("/").rpartition("/")[2] or None


def _path(template: str, record_id: str, place: str = "") -> str:
    """Return the path of one record.

    Raises NoSuchRecordError for an id that would lead to another path.
    """
    segment = quote(record_id, safe="")
    path = template.replace(ID, segment)
    if not segment.strip("."):
        raise NoSuchRecordError(place=place or path)
    return path


class Pages:
    """The pages of one list: where the next one is, by what the last one was."""

    def __init__(self, profile: Profile, base_url: str, path: str) -> None:
        self._profile = profile
        self._query = profile.name("page.query")
        self._first = httpx.URL(urljoin(f"{base_url.rstrip('/')}/", path.lstrip("/")))
        self._seen: set[str] = set()
        self._taken = 0  # messages on the pages so far

    def first(self) -> str:
        """Return the URL of the first page."""
        if "{offset}" in self._query or "{page}" in self._query:
            return self._with_query()
        return self._checked(str(self._first))

    def after(self, document: object, headers: Mapping[str, str], messages: int) -> str | None:
        """Return the URL of the page after one with so many messages, None for the last.

        Raises StrangeAnswerError for one at another address, or that was read already.
        """
        self._taken += messages
        if not self._query:
            link = self._link(document, headers)
            return self._checked(urljoin(str(self._first), link)) if link else None
        if "{cursor}" in self._query:
            cursor = self._of_page("cursor", document)
            return self._with_query(cursor) if cursor not in (None, "", False) else None
        total = self._of_page("total", document)
        done = self._taken if "{offset}" in self._query else len(self._seen)
        is_last = done >= total if isinstance(total, int) else not messages
        return None if is_last else self._with_query()

    def _link(self, document: object, headers: Mapping[str, str]) -> str | None:
        links = httpx.Response(200, headers=dict(headers)).links
        in_body = self._of_page("next", document)
        return links.get("next", {}).get("url") or (in_body if isinstance(in_body, str) else None)

    def _of_page(self, name: str, document: object) -> str | int | None:
        values = (value_at(document, place) for place in self._profile.places(f"page.{name}"))
        return next((value for value in values if isinstance(value, str | int) and value), None)

    def _with_query(self, cursor: str | int | None = None) -> str:
        page = len(self._seen) + 1
        query = self._query.format(cursor=cursor, offset=self._taken, page=page)
        parameters = dict(httpx.QueryParams(query))
        return self._checked(str(self._first.copy_merge_params(parameters)))

    def _checked(self, url: str) -> str:
        problem = ""
        if urlsplit(url)[:2] != urlsplit(str(self._first))[:2]:
            problem = "the next page is at another address, which nobody named"
        elif url in self._seen or len(self._seen) >= MOST_PAGES:
            problem = "its pages do not end"
        if problem:
            raise StrangeAnswerError(place=f"GET {self._first.path}", problem=problem)
        self._seen.add(url)
        return url
