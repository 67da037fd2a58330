"""Card links over HTTP: on demand, their records, and the page a cardholder opens (interface.md 2.8
to 2.10, 4).
"""
# No postponed annotations: FastAPI reads them, and they name headers and a model made from the
# settings.

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header

from flows.simulator.service import wire
from flows.simulator.service.desk import ServiceHandle, refusals
from flows.simulator.service.refusals import refused
from flows.simulator.service.sites import SITES

HYDRATED = frozenset({"card", "card.cardholder"})


def link_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes of a client that makes and reads links."""
    routes = APIRouter(dependencies=handle.clients_only)
    books, settings = handle.books, handle.settings
    request_model = wire.link_request(settings)

    @routes.post(
        settings.link_path,
        status_code=201,
        response_model=wire.LinkRecord,
        response_model_exclude_unset=True,
        responses=refusals(401),
    )
    async def create_link(request: request_model) -> dict[str, Any]:  # type: ignore[valid-type]  # by the settings
        """Make one link for one cardholder, now."""
        asked: dict[str, Any] = request.model_dump()  # type: ignore[attr-defined]  # as above
        return books.links.record(books.create_link(asked, asked["fi_key"]))

    @routes.get(
        "/card_links/{link_id}",
        response_model=wire.LinkRecord,
        response_model_exclude_unset=True,
        responses=refusals(401, 404),
    )
    async def read_link(
        link_id: str, hydration: Annotated[str, Header(alias=settings.hydration_header)] = "[]"
    ) -> dict[str, Any]:
        """Return a link's record; the hydration header is a JSON array of `card`,
        `card.cardholder`.
        """
        return books.links.record(books.links.find(link_id), _hydrated(hydration))

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
    async def verify(link_id: str, given: wire.Verification) -> dict[str, Any]:
        """Answer the challenges of a link."""
        return books.links.record(books.links.verify(link_id, given.answers, books.now))

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
    if not isinstance(parts, list) or not all(
        isinstance(part, str) and part in HYDRATED for part in parts
    ):
        raise refused(
            422, "header", "invalid", "is a JSON array of card, card.cardholder", "hydration"
        )
    return parts
