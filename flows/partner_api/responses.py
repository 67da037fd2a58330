"""Read the service's JSON, whose shape is documented only in part (interface.md 4); nothing is
raised.

An envelope may be a list, an object that contains one, or a single message; a request may have
`account_link` beside its envelope id or inside its message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from flows.results.error_text import parse_error
from schemas.partner_api.card_link import CardLink, Refusal
from schemas.partner_api.jobs import CredentialRequest, JobMessage, JobRecord, Messages, identifier

_WRAPPERS = ("messages", "credential_requests", "broadcasts", "data", "results", "items")
_DEPTH = 3  # nested wrappers


def messages_of(body: bytes) -> Messages:
    """Return the messages in the body of any messages endpoint (2.1, 2.4)."""
    statuses, requests, unread = list[JobMessage](), list[CredentialRequest](), 0
    for element in _elements(document_of(body)):
        if (request := _request(element)) is not None:
            requests.append(request)
        elif (status := _status(element)) is not None:
            statuses.append(status)
        else:
            unread += 1
    return Messages(tuple(statuses), tuple(requests), unread)


def job_of(body: bytes) -> JobRecord | None:
    """Return the job record in a body (2.2), None if it has none."""
    found = object_of(body)
    if found is None or not found.keys() & {"id", "status"}:
        return None
    requests = (
        _request({"job_id": found.get("id"), **one})
        for one in _elements(found.get("credential_requests"))
    )
    record = {**found, "requests": [one for one in requests if one is not None]}
    return JobRecord.model_validate(record)


def link_of(body: bytes) -> CardLink | None:
    """Return the link's record in a body (2.9), None if it has none."""
    found = object_of(body) or {}
    inner = found.get("card_link")
    link = CardLink.model_validate(inner if isinstance(inner, dict) else found)
    return link if link.id or link.url or link.cardholder_long_token else None


def refusal_of(body: bytes) -> Refusal:
    """Read a refusal, whose shape 7 leaves open: its codes, and its text without card numbers."""
    found = parse_error(body.decode("utf-8", "replace")).reasons
    return Refusal(
        ", ".join(dict.fromkeys(one.code for one in found)), "; ".join(one.message for one in found)
    )


def text_in(body: bytes, names: Iterable[str]) -> str | None:
    """Return the first of these properties that is a text or a number."""
    found = object_of(body) or {}
    return next((value for name in names if (value := identifier(found.get(name)))), None)


def fits_header(text: str) -> bool:
    """Return whether a text can be the value of a header."""
    return bool(text) and text.isascii() and text.isprintable()


def object_of(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a body, None for anything else."""
    found = document_of(body)
    return found if isinstance(found, dict) else None


def document_of(body: bytes) -> object:
    """Return the JSON of a body, None for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _elements(found: object, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects of an envelope of any shape."""
    if isinstance(found, list):
        yield from (one if isinstance(one, dict) else {} for one in found)
    elif isinstance(found, dict):
        inner = [found[name] for name in _WRAPPERS if isinstance(found.get(name), list | dict)]
        if inner and depth < _DEPTH:
            for one in inner:
                yield from _elements(one, depth + 1)
        elif found:
            yield found


def _request(element: dict[str, Any]) -> CredentialRequest | None:
    """Read an element as a credential request: it has an envelope id."""
    inside = element.get("message")
    lifted = {**inside, **element} if isinstance(inside, dict) else {**element, "message": element}
    if not fits_header(identifier(lifted.get("envelope_id")) or ""):  # it could not be answered
        return None
    return CredentialRequest.model_validate(lifted)


def _status(element: dict[str, Any]) -> JobMessage | None:
    """Read an element as a status message: it has a job's state, or at least its id."""
    if not element.keys() & {"job_id", "message", "status"}:
        return None
    return JobMessage.model_validate(
        element if "message" in element else {**element, "message": element}
    )
