"""Read what the service answers: its body within limits of bytes and seconds, and its JSON, whose
shape is documented only in part (interface.md 4).

Of JSON nothing is raised. An envelope may be a list, an object that contains one, or a single
message; a request may have `account_link` beside its envelope id or inside its message.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import httpx

from flows.extensions.partner_api.profile import INTERFACE, Profile
from flows.extensions.partner_api.service_objects import (
    CardLink,
    CredentialRequest,
    JobMessage,
    JobRecord,
    Messages,
    Refusal,
    identifier,
)
from flows.extensions.partner_api.translation import job_in_our_words, link_in_our_words, value_at
from flows.harmless import with_cuid
from flows.results.error_text import parse_error

# in place of what was on a page of messages that was lost
LOST_PAGE: Final = {"lost_page": True}


def messages_in(parts: Iterable[Any]) -> Messages:
    """Return the messages among the elements of envelopes, and the number of the others."""
    statuses: list[JobMessage] = []
    requests: list[CredentialRequest] = []
    unread = 0
    for element in parts:
        message = _request(element) or _status(element)
        if isinstance(message, CredentialRequest):
            requests.append(message)
        elif message is not None:
            statuses.append(message)
        else:
            unread += 1
    return Messages(tuple(statuses), tuple(requests), unread)


def job_of(body: bytes, profile: Profile = INTERFACE) -> JobRecord | None:
    """Return the job record in a body (2.2), None if it has none."""
    record = job_in_our_words(document_of(body), profile)
    if not record.keys() & {"id", "status"}:
        return None
    pending = record.get("credential_requests", [])
    requests = [_request({"job_id": record.get("id"), **request}) for request in pending]
    readable = [request for request in requests if request is not None]
    return JobRecord.model_validate({**record, "requests": readable})


def link_of(body: bytes, profile: Profile = INTERFACE) -> CardLink | None:
    """Return the link's record in a body (2.9), None if it has none."""
    link = CardLink.model_validate(link_in_our_words(document_of(body), profile))
    return link if link.id or link.url or link.cardholder_long_token else None


def refusal_of(body: bytes) -> Refusal:
    """Read a refusal, whose shape 7 leaves open: its codes, and what is harmless of its text."""
    reasons = parse_error(body.decode("utf-8", "replace")).reasons
    codes = dict.fromkeys(reason.code for reason in reasons)
    message = "; ".join(reason.message for reason in reasons)
    return Refusal(", ".join(codes), with_cuid(message, None))


def text_in(body: bytes, places: Iterable[str]) -> str | None:
    """Return the first of these values, by names or paths, that is a text or a number."""
    record = document_of(body)
    values = (identifier(value_at(record, place)) for place in places)
    return next(filter(None, values), None)


def fits_header(text: str) -> bool:
    """Return whether a text can be the value of a header."""
    return bool(text) and text.isascii() and text.isprintable()


def document_of(body: bytes) -> object:
    """Return the JSON of a body, None for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _request(element: object) -> CredentialRequest | None:
    """Read an element as a credential request: it has an envelope id."""
    if not isinstance(element, dict):
        return None
    lifted = _lifted(element)
    if not fits_header(identifier(lifted.get("envelope_id")) or ""):  # it could not be answered
        return None
    return CredentialRequest.model_validate(lifted)


def _lifted(element: dict[str, Any]) -> dict[str, Any]:
    """Return a request with what is inside its message; it is the message where it has none."""
    inside = element.get("message")
    if isinstance(inside, dict):
        return {**inside, **element}
    return {**element, "message": element}


def _status(element: object) -> JobMessage | None:
    """Read an element as a status message: it has a job's state, or at least its id."""
    if not isinstance(element, dict) or not element.keys() & {"job_id", "message", "status"}:
        return None
    if "message" not in element:
        element = {**element, "message": element}
    return JobMessage.model_validate(element)


# The body of a response
# --------------------------------------------------------------------------------------------------

_MB = 1 << 20
_UNPACKED_AS_IT_IS = ("", "identity")
_DEFLATED = ("gzip", "x-gzip", "deflate")
ENCODINGS = "gzip, deflate"  # that we can unpack
_ANY_HEADER = 47  # wbits of zlib: of gzip, or its own


class Limits(NamedTuple):
    """How much of a response is read: a record has some kilobytes."""

    received: int = 8 * _MB
    unpacked: int = 32 * _MB
    seconds: float = 120


USUAL = Limits()


class UnreadableBodyError(Exception):
    """A body that was not read whole; its only argument says why."""


class SlowBodyError(UnreadableBodyError):
    """A body that took too long."""


def body_of(response: httpx.Response, limits: Limits, clock: Callable[[], float]) -> bytes:
    """Return the body of a response that is being received; `clock` gives monotonic seconds.

    Raises UnreadableBodyError beyond a limit, and what httpx raises.
    """
    until = clock() + limits.seconds
    received = bytearray()
    for piece in response.iter_raw():
        received += piece
        if len(received) > limits.received:
            raise UnreadableBodyError(f"more than {limits.received // _MB} MB")
        if clock() > until:
            raise SlowBodyError(f"not whole after {limits.seconds:.0f} seconds")
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in _UNPACKED_AS_IT_IS:
        return bytes(received)
    if encoding not in _DEFLATED:
        raise UnreadableBodyError("compressed in a way that was not asked for")
    return _unpacked(bytes(received), limits.unpacked)


def _unpacked(received: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(_ANY_HEADER)
    try:
        body = stream.decompress(received, most + 1)
    except zlib.error:
        raise UnreadableBodyError("compressed, and damaged") from None
    if len(body) > most:
        raise UnreadableBodyError(f"more than {most // _MB} MB when unpacked")
    if received and not stream.eof:
        raise UnreadableBodyError("compressed, and cut off")
    return body
