"""The service as a FastAPI application: routes joined, refusals written as JSON.

A refusal never repeats a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from flows.extensions.simulator.chance import chance
from flows.extensions.simulator.service import wire
from flows.extensions.simulator.service.books import Client, ServiceState
from flows.extensions.simulator.service.desk import ServiceHandle, refusals
from flows.extensions.simulator.service.job_routes import (
    broadcast_routes,
    job_routes,
    message_routes,
)
from flows.extensions.simulator.service.link_routes import link_routes, page_routes
from flows.extensions.simulator.service.people_at_links import Shares, let_cardholders_act
from flows.extensions.simulator.service.portal_routes import portal_routes
from flows.extensions.simulator.service.recount import totals
from flows.extensions.simulator.service.refusals import DisturbedError, RefusedRequestError, refused
from flows.extensions.simulator.service.sites import SITES
from flows.extensions.simulator.validation import Fault


def create_app(
    state: ServiceState, settings: wire.Spoken, clock: Callable[[], datetime]
) -> FastAPI:
    """Return the application over these books; every request first brings them up to `clock`."""
    handle = ServiceHandle(state, settings, clock)
    app = FastAPI(
        title="Practice service",
        description="The partner's interface beyond the file, as interface.md describes it.",
        version="1",
        docs_url=None,  # its pages would load scripts from elsewhere
        redoc_url=None,
        dependencies=[Depends(handle.on_time), Depends(handle.undisturbed)],
    )
    app.add_exception_handler(RefusedRequestError, _refusal)
    app.add_exception_handler(DisturbedError, _disturbance)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_exception_handler(HTTPException, _unread)

    @app.post(settings.login, responses=refusals(401))
    async def log_in(login: wire.Login) -> dict[str, str]:
        """Open a session; its token is sent back as `Authorization: Bearer`."""
        client = Client(login.app_name, login.app_key, login.username, login.password)
        return {settings.name("login.session_token", "session_token"): state.login(client)}

    for routes in (
        link_routes,
        job_routes,
        message_routes,
        broadcast_routes,
        page_routes,
        portal_routes,
        people_routes,
    ):
        app.include_router(routes(handle))
    return app


async def _refusal(_request: Request, error: Exception) -> JSONResponse:
    # for the type checker: registered for it
    assert isinstance(error, RefusedRequestError)  # noqa: S101 - as above
    return _body(error.status, error.faults)


async def _disturbance(_request: Request, error: Exception) -> Response:
    # for the type checker: registered for it
    assert isinstance(error, DisturbedError)  # noqa: S101 - as above
    disturbance = error.disturbance
    return Response(disturbance.body, disturbance.status, media_type="application/json")


async def _unfit(_request: Request, error: Exception) -> JSONResponse:
    """Say which entity and property do not fit; FastAPI's own answer would repeat what was sent."""
    # for the type checker: registered for it
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    return _body(422, map(_fault, error.errors()))


async def _unread(_request: Request, error: Exception) -> JSONResponse:
    """Say in our form what the framework refuses by itself: no such path, no JSON."""
    # for the type checker: registered for it
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    return _body(error.status_code, [Fault("request", "", "refused", str(error.detail))])


def _fault(error: dict[str, Any]) -> Fault:
    """Return a validation error of the framework in our form: its place ends in the property."""
    source, *path = map(str, error["loc"])
    name = path[-1] if path else ""
    entity = path[-2] if len(path) > 1 else source
    return Fault(entity, name, str(error["type"]), str(error["msg"]))


def _body(status: int, faults: Iterable[Fault]) -> JSONResponse:
    body = [
        {
            "name": fault.kind,
            "message": fault.message,
            "entity_name": fault.entity,
            "property_name": fault.property,
        }
        for fault in faults
    ]
    return JSONResponse({"_errors": body}, status)


def people_routes(handle: ServiceHandle) -> APIRouter:
    """Return the route that lets cardholders act."""
    routes = APIRouter()
    books = handle.books

    @routes.post("/__people", responses=refusals())
    async def act(evening: wire.Evening) -> dict[str, Any]:
        """Let the cardholder of every link that nobody opened yet act; return the recount.

        The clock is taken ahead until their jobs have ended, unless they are to be left running.
        """
        sites = evening.merchant_sites or list(SITES)
        if not set(sites) <= SITES.keys():
            raise refused(422, "placement", "unknown", "is no merchant site here", "merchant_sites")
        shares = Shares(**{name: getattr(evening, name) for name in Shares._fields})
        let_cardholders_act(
            books,
            partial(chance, evening.seed),
            shares=shares,
            sites=sites,
            until_ended=evening.until_ended,
        )
        handle.keep_moment()
        return totals(books)

    return routes
