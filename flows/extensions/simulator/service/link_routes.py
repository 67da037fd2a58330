"""Card links over HTTP (interface.md 2.8 to 2.10, 4).

On demand, their records, and the page a cardholder opens.
"""
# No postponed annotations: FastAPI reads them, and they name headers and a model made from the
# settings.

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from flows.extensions.simulator.service import wire
from flows.extensions.simulator.service.conditional import IfNoneMatch, unless_known
from flows.extensions.simulator.service.desk import ServiceHandle, refusals
from flows.extensions.simulator.service.refusals import refused
from flows.extensions.simulator.service.sites import SITES

HYDRATED = frozenset({"card", "card.cardholder"})


def link_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes of a client that makes and reads links."""
    routes = APIRouter(dependencies=handle.clients_only)
    books = handle.books
    settings = handle.settings
    request_model = wire.link_request(settings)

    @routes.post(
        settings.create_link,
        status_code=201,
        response_model=wire.LinkRecord,
        response_model_exclude_unset=True,
        responses=refusals(401),
    )
    # the model is made from the settings, so mypy does not know it
    async def create_link(request: request_model) -> dict[str, Any]:  # type: ignore[valid-type]
        """Make one link for one cardholder, now."""
        fields: dict[str, Any] = request.model_dump()  # type: ignore[attr-defined]  # as above
        return books.links.record(books.create_link(fields, fields["fi_key"]))

    @routes.get(
        "/card_links/{link_id}",
        response_model=wire.LinkRecord,
        response_model_exclude_unset=True,
        responses=refusals(401, 404),
    )
    async def read_link(
        link_id: str,
        response: Response,
        hydration: Annotated[str, Header(alias=settings.header("hydration"))] = "[]",
        if_none_match: IfNoneMatch = "",
    ) -> Any:
        """Return a link's record; the hydration header is a JSON array of `card`,
        `card.cardholder`.
        """
        record = books.links.record(books.links.find(link_id), _hydrated(hydration))
        return unless_known(record, if_none_match, response)

    return routes


def page_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes a cardholder's browser takes: no session, the link is the key."""
    routes = APIRouter()
    books = handle.books

    @routes.get("/l/{link_id}", response_model=wire.Page, responses=refusals(404, 410))
    async def open_link(link_id: str) -> dict[str, Any]:
        """Open the verification page of a link."""
        link = books.links.open(link_id, books.now)
        return {
            "challenges": list(books.links.challenges),
            "merchant_sites": list(SITES),
            "expiration_date": link.expires.isoformat(),
        }

    @routes.post(
        "/l/{link_id}/challenges",
        response_model=wire.LinkRecord,
        response_model_exclude_unset=True,
        responses=refusals(403, 404, 410),
    )
    async def verify(link_id: str, verification: wire.Verification) -> dict[str, Any]:
        """Answer the challenges of a link."""
        return books.links.record(books.links.verify(link_id, verification.answers, books.now))

    @routes.post(
        "/l/{link_id}/placements",
        status_code=201,
        response_model=list[wire.JobRecord],
        response_model_exclude_unset=True,
        responses=refusals(403, 404),
    )
    async def place(link_id: str, choice: wire.Choice) -> list[dict[str, Any]]:
        """Choose merchant sites: a placement job starts at each."""
        jobs = books.place(link_id, choice.merchant_sites, choice.credentials)
        return [books.job_record(job.id) for job in jobs]

    return routes


def _hydrated(header: str) -> list[str]:
    try:
        parts = json.loads(header)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not all(map(_is_hydrated_part, parts)):
        message = "is a JSON array of card, card.cardholder"
        raise refused(422, "header", "invalid", message, "hydration")
    return parts


def _is_hydrated_part(part: object) -> bool:
    return isinstance(part, str) and part in HYDRATED
