"""Read the service's JSON, whose shape is documented only in part (interface.md 4).

Nothing is raised. An envelope may be a list, an object that contains one, or a single message; a
request may have `account_link` beside its envelope id or inside its message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from flows.harmless import with_cuid
from flows.results.error_text import parse_error
from schemas.partner_api.card_link import CardLink, Refusal
from schemas.partner_api.jobs import CredentialRequest, JobMessage, JobRecord, Messages, identifier

_WRAPPERS = ("messages", "credential_requests", "broadcasts", "data", "results", "items")
_DEPTH = 3  # nested wrappers


def messages_of(body: bytes) -> Messages:
    """Return the messages in the body of any messages endpoint (2.1, 2.4)."""
    statuses: list[JobMessage] = []
    requests: list[CredentialRequest] = []
    unread = 0
    for element in _elements(document_of(body)):
        message = _request(element) or _status(element)
        if isinstance(message, CredentialRequest):
            requests.append(message)
        elif message is not None:
            statuses.append(message)
        else:
            unread += 1
    return Messages(tuple(statuses), tuple(requests), unread)


def job_of(body: bytes) -> JobRecord | None:
    """Return the job record in a body (2.2), None if it has none."""
    record = object_of(body)
    if record is None or not record.keys() & {"id", "status"}:
        return None
    elements = _elements(record.get("credential_requests"))
    requests = [_request({"job_id": record.get("id"), **element}) for element in elements]
    readable = [request for request in requests if request is not None]
    return JobRecord.model_validate({**record, "requests": readable})


def link_of(body: bytes) -> CardLink | None:
    """Return the link's record in a body (2.9), None if it has none."""
    record = object_of(body) or {}
    inner = record.get("card_link")
    if isinstance(inner, dict):
        record = inner
    link = CardLink.model_validate(record)
    return link if link.id or link.url or link.cardholder_long_token else None


def refusal_of(body: bytes) -> Refusal:
    """Read a refusal, whose shape 7 leaves open: its codes, and what is harmless of its text."""
    reasons = parse_error(body.decode("utf-8", "replace")).reasons
    codes = dict.fromkeys(reason.code for reason in reasons)
    message = "; ".join(reason.message for reason in reasons)
    return Refusal(", ".join(codes), with_cuid(message, None))


def text_in(body: bytes, names: Iterable[str]) -> str | None:
    """Return the first of these properties that is a text or a number."""
    record = object_of(body) or {}
    values = (identifier(record.get(name)) for name in names)
    return next(filter(None, values), None)


def fits_header(text: str) -> bool:
    """Return whether a text can be the value of a header."""
    return bool(text) and text.isascii() and text.isprintable()


def object_of(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a body, None for anything else."""
    document = document_of(body)
    return document if isinstance(document, dict) else None


def document_of(body: bytes) -> object:
    """Return the JSON of a body, None for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def has_elements(document: object) -> bool:
    """Return whether the document of a messages endpoint has anything in it, readable or not."""
    return any(True for _ in _elements(document))


def _elements(envelope: object, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects of an envelope of any shape."""
    if isinstance(envelope, list):
        for element in envelope:
            yield element if isinstance(element, dict) else {}
    elif isinstance(envelope, dict):
        inner = _inner(envelope) if depth < _DEPTH else []
        for wrapped in inner:
            yield from _elements(wrapped, depth + 1)
        if envelope and not inner:
            yield envelope
    elif envelope is not None:
        yield {}


def _inner(envelope: dict[str, Any]) -> list[Any]:
    """Return what an envelope wraps."""
    wrapped = [envelope.get(name) for name in _WRAPPERS]
    return [inner for inner in wrapped if isinstance(inner, list | dict)]


def _request(element: dict[str, Any]) -> CredentialRequest | None:
    """Read an element as a credential request: it has an envelope id."""
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


def _status(element: dict[str, Any]) -> JobMessage | None:
    """Read an element as a status message: it has a job's state, or at least its id."""
    if not element.keys() & {"job_id", "message", "status"}:
        return None
    if "message" not in element:
        element = {**element, "message": element}
    return JobMessage.model_validate(element)
