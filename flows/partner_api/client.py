"""The client: one method per endpoint of interface.md 4.

It returns typed records and raises only our errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from flows.partner_api.responses import (
    fits_header,
    job_of,
    link_of,
    messages_of,
    refusal_of,
    text_in,
)
from flows.partner_api.service import (
    LinkRequestError,
    NoSuchRecordError,
    StrangeAnswerError,
    UnauthorisedError,
)
from flows.partner_api.transport import (
    Credentials,
    LoginSession,
    RateLimiter,
    Request,
    Response,
    RetryPolicy,
    Sender,
    Session,
    connect,
)
from flows.runs.retry import Retry
from schemas.partner_api.card_link import HYDRATE_CARDHOLDER, CardLink, CardLinkRequest, Refusal
from schemas.partner_api.jobs import CredentialRequest, JobMessage, JobRecord, Messages
from schemas.partner_api.service import (
    CARDHOLDER_MESSAGES,
    JOB_MESSAGES,
    JOBS,
    LINKS,
    ServiceSettings,
)

_LOST_LINK: Final = "A link may exist: ask the partner before requesting another one for this card."
_LOST_MESSAGES: Final = "Messages may have been read and lost; the job's record shows its state."
_LOST_ANSWER: Final = (
    "Read the job's record: if the request is still pending, the answer did not arrive."
)


class ServiceClient:
    """The partner's service for one issuer; thread-safe."""

    def __init__(
        self, settings: ServiceSettings, credentials: Credentials, session: Session, sender: Sender
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._session = session
        self._sender = sender

    def create_link(self, request: CardLinkRequest) -> CardLink | Refusal:
        """Request one link (2.8); a refusal is returned.

        After AnswerLostError it may exist: do not repeat blindly.
        """
        settings = self._settings
        if not settings.fi_key:
            raise LinkRequestError(codes="service.fi_key.missing (a setting of [service])")
        body = {
            settings.service_property: {
                "service_server": settings.base_url,
                **self._credentials.as_json(),
            },
            **request.body(),
            settings.fi_key_property: settings.fi_key,
            settings.safe_key_property: settings.safe_key,
        }
        place = f"POST {settings.link_path}"
        response = self._send(
            Request(
                "POST",
                settings.link_path,
                place,
                RetryPolicy.WRITE,
                body=body,
                lost=_LOST_LINK,
                refusable=True,
            )
        )
        return refusal_of(response.body) if response.refused else _link(response, place)

    def card_link(self, link_id: str, hydrate: tuple[str, ...] = HYDRATE_CARDHOLDER) -> CardLink:
        """Return the record of a link (2.9), by default with its card and cardholder."""
        header = {}
        if hydrate:
            header = {self._settings.hydration_header: self._settings.link_hydration(*hydrate)}
        place = f"GET {LINKS}/…"  # its id may be the secret part of the URL
        request = Request("GET", _path(LINKS, link_id, place), place, headers=header)
        return _link(self._send(request), place)

    def job(self, job_id: str) -> JobRecord:
        """Return the record of a job (2.2).

        It has the job's pending requests, which need the hydration header.
        """
        path = _path(JOBS, job_id)
        header = {self._settings.hydration_header: self._settings.job_hydration}
        response = self._send(Request("GET", path, f"GET {path}", headers=header))
        record = job_of(response.body)
        if record is None:
            raise StrangeAnswerError(place=f"GET {path}", problem="no job record")
        return record

    def messages(self, job_id: str) -> Messages:
        """Read a job's messages (2.1, 2.4), each status message only once.

        After AnswerLostError some may be lost.
        """
        return messages_of(self._consume(_path(JOB_MESSAGES, job_id)))

    def cardholder_messages(self, cardholder_id: str) -> bytes:
        """Read the messages of a cardholder's jobs, raw, for `messages_of`.

        Store them: each can be read only once.
        """
        return self._consume(_path(CARDHOLDER_MESSAGES, cardholder_id))

    def credential_requests(self, job_id: str) -> tuple[CredentialRequest, ...]:
        """Return a job's pending requests; they stay until answered."""
        path = f"{_path(JOB_MESSAGES, job_id)}/credential_requests"
        return messages_of(self._send(Request("GET", path, f"GET {path}")).body).requests

    def answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> JobRecord | None:
        """Answer a credential request (2.5) by updating its job.

        Return the updated job if the response has it.
        """
        header = {self._settings.envelope_header: envelope_id}
        return self._update(job_id, answers, header)

    def update_account(self, job_id: str, account_link: Mapping[str, str]) -> JobRecord | None:
        """Update a job's account without an envelope id: this answers no request (4, rule 2)."""
        return self._update(job_id, account_link, {})

    def post_answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> None:
        """Answer a credential request by the endpoint that is not recommended (4)."""
        path = f"{_path(JOB_MESSAGES, job_id)}/credential_responses"
        number: int | str = int(job_id) if job_id.isdigit() else job_id
        body = {"job_id": number, "envelope_id": envelope_id, "account_link": dict(answers)}
        place = f"POST {path}"
        self._send(Request("POST", path, place, RetryPolicy.WRITE, body=body, lost=_LOST_ANSWER))

    def register(self, job_id: str) -> str:
        """Register a broadcast channel of a job and return its access key."""
        path = f"{_path(JOB_MESSAGES, job_id)}/broadcasts/registrations"
        request = Request(
            "GET",
            path,
            f"GET {path}",
            RetryPolicy.WRITE,
            lost="Register again; the lost channel stays unread.",
        )
        key = text_in(self._send(request).body, self._settings.access_key_fields)
        if key is None or not fits_header(key):
            raise StrangeAnswerError(
                place=f"GET {path}",
                problem="no access key; name its field in [service] access_key_fields",
            )
        return key

    def broadcasts(self, job_id: str, access_key: str) -> tuple[JobMessage, ...]:
        """Read the status messages of a channel, each only once.

        Credential requests are not among them.
        """
        path = f"{_path(JOB_MESSAGES, job_id)}/broadcasts"
        header = {self._settings.access_key_header: access_key}
        return messages_of(self._consume(path, header)).statuses

    def _consume(self, path: str, headers: Mapping[str, str] | None = None) -> bytes:
        request = Request(
            "GET", path, f"GET {path}", RetryPolicy.CONSUME, headers or {}, lost=_LOST_MESSAGES
        )
        return self._send(request).body

    def _update(
        self, job_id: str, account_link: Mapping[str, str], headers: Mapping[str, str]
    ) -> JobRecord | None:
        path = _path(JOBS, job_id)
        place = f"PUT {path}"
        body = {"account": {"account_link": dict(account_link)}}
        request = Request("PUT", path, place, RetryPolicy.WRITE, headers, body, _LOST_ANSWER)
        return job_of(self._send(request).body)

    def _send(self, request: Request) -> Response:
        """Send with the session's headers; if they are refused, once more with new ones."""
        headers = self._session.headers()
        try:
            return self._sender.send(_with(request, headers))
        except UnauthorisedError:
            self._session.renew(headers)
        return self._sender.send(_with(request, self._session.headers()))


@contextmanager
def open_client(
    settings: ServiceSettings, credentials: Credentials, retry: Retry
) -> Iterator[ServiceClient]:
    """Open a client with a session by login; nothing is sent before the first call."""
    turns = RateLimiter(settings.requests_per_second, retry.clock, retry.sleep)
    with connect(settings) as http:
        sender = Sender(http, turns, retry)
        session = LoginSession(lambda: log_in(settings, credentials, sender))
        yield ServiceClient(settings, credentials, session, sender)


def log_in(settings: ServiceSettings, credentials: Credentials, sender: Sender) -> str | None:
    """Return the token of a new session, None if the response has none.

    Section 5 leaves open how it is sent.
    """
    path = settings.login_path
    # an extra session does no harm, so a retry is safe
    request = Request("POST", path, f"POST {path}", RetryPolicy.READ, body=credentials.as_json())
    return text_in(sender.send(request).body, [settings.session_field])


def _link(response: Response, place: str) -> CardLink:
    record = link_of(response.body)
    if record is None:
        raise StrangeAnswerError(place=place, problem="no link record")
    return record


def _with(request: Request, headers: Mapping[str, str]) -> Request:
    return request._replace(headers={**headers, **request.headers})


def _path(base: str, record_id: str, place: str = "") -> str:
    """Return the path of one record.

    Raises NoSuchRecordError for an id that would lead to another path.
    """
    segment = quote(record_id, safe="")
    if not segment.strip("."):
        raise NoSuchRecordError(place=place or f"{base}/{segment}")
    return f"{base}/{segment}"
