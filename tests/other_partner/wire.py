"""What the partner's answers look like: envelopes, names, pages, problems."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from email.utils import formatdate

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from tests.other_partner.world import Job, Link, World

PAGE = 2
ROOT = "/api/v3"
START = "https://links.example.com/start"


def milliseconds(seconds: float | None) -> int | None:
    """Return a time as the partner writes it."""
    return None if seconds is None else round(seconds * 1000)


def link_record(link: Link, hydrated: frozenset[str], now: float) -> dict[str, object]:
    """Return the card link record."""
    state = "EXPIRED" if link.expires < now else ("OPENED" if link.opened else "SENT")
    record: dict[str, object] = {
        "linkId": link.link_id,
        "state": state,
        "address": f"{START}?k={link.key}",
        "cardholder_long_token": link.long_token,
        "times": {
            "createdMs": milliseconds(link.created),
            "openedMs": milliseconds(link.opened),
            "validUntilMs": milliseconds(link.expires),
        },
    }
    if "card" in hydrated or "card.cardholder" in hydrated:
        record["card"] = {"cardId": link.card_id, "lastFour": link.last_4}
    if "card.cardholder" in hydrated:
        record["card"] |= {"cardholder": {"holderId": link.holder_id, "externalRef": link.cuid}}  # type: ignore[operator]
    return {"data": {"cardLink": record}}


def job_record(job: Job, world: World, hydrated: bool) -> dict[str, object]:
    """Return the job record, with the pending request where the poll asked for it."""
    record: dict[str, object] = {
        "jobId": job.job_id,
        "holder": {"holderId": job.link.holder_id},
        "cardId": job.link.card_id,
        "accountId": job.job_id + 1_000_000,
        "type": "CARD_PLACEMENT",
        "merchant": {"hostname": job.site},
        "progress": {
            "status": job.now.status,
            "percent_complete": job.now.percent,
            "auth_percent_complete": job.now.auth,
            "termination_type": job.now.termination,
            "status_message": job.now.text,
        },
        "createdMs": milliseconds(job.created),
        "updatedMs": milliseconds(job.updated),
    }
    if hydrated:
        record["credential_requests"] = [credential_request(job, world)] if job.request else []
    return {"data": {"job": record}}


def credential_request(job: Job, world: World) -> dict[str, object]:
    """Return the request that the job waits for."""
    assert job.request is not None
    return {
        "type": job.request.kind,
        "job_id": job.job_id,
        "envelope_id": job.envelope,
        "account_link": [
            {"key_name": key, "label": label, "secret": secret}
            for key, label, secret in job.request.keys
        ],
        "message": world.status_message(job),
    }


class Pages:
    """Lists that did not fit on a page, kept under the key of their `next` link."""

    def __init__(self) -> None:
        self._rest: dict[str, list[Mapping[str, object]]] = {}

    def page(self, request: HttpRequest, items: list[Mapping[str, object]]) -> JSONResponse:
        """Answer the first items, with a link to the rest."""
        cursor = request.query_params.get("cursor", "")
        items = self._rest.pop(cursor, items)
        body: dict[str, object] = {"items": items[:PAGE]}
        if items[PAGE:]:
            key = secrets.token_hex(6)
            self._rest[key] = items[PAGE:]
            body["paging"] = {"next": f"{request.url.path}?cursor={key}"}
        return JSONResponse(body)

    def is_rest(self, request: HttpRequest) -> bool:
        """Tell whether the request follows a link to the rest."""
        return request.query_params.get("cursor", "") in self._rest


def problem(status: int, code: str, text: str, *, retry: bool = False) -> JSONResponse:
    """Answer an error, with the date after which to ask again."""
    headers = {"Retry-After": formatdate(time.time() + 1, usegmt=True)} if retry else {}
    body = {"problem": {"code": code, "text": text}}
    return JSONResponse(body, status_code=status, headers=headers)


def with_etag(request: HttpRequest, body: dict[str, object], etag: str) -> Response:
    """Answer a record, or 304 where the client has it."""
    headers = {"ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return JSONResponse(body, headers=headers)


def hydration(request: HttpRequest) -> frozenset[str]:
    """Return the values of a link's hydration header: a JSON array of strings."""
    text = request.headers.get("x-service-hydration", "[]")
    try:
        values = json.loads(text)
    except ValueError:
        return frozenset()
    return frozenset(values) if isinstance(values, list) else frozenset()


def wants_requests(request: HttpRequest) -> bool:
    """Tell whether a job's poll asks for its requests, in the partner's own format."""
    return request.headers.get("x-service-hydration") == "include=credential_requests"
