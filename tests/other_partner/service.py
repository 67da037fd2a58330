"""The partner's routes."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.other_partner import portal, wire
from tests.other_partner.sessions import Sessions
from tests.other_partner.world import Job, World

Handler = Callable[[Request], Awaitable[Response]]
_UNAVAILABLE_EVERY = 29
_NEEDED = {
    "service": ("service_server", "app_name", "app_key", "username", "password"),
    "cardholder": ("first_name", "last_name"),
    "address": ("address1", "city", "subnational", "postal_code", "country", "phone_number"),
    "card": (),
}
_CARD = ("pan", "expiration_month", "expiration_year", "name_on_card", "nickname")


class Partner:
    """The service over its book."""

    def __init__(self, world: World, sessions: Sessions, fi_key: str) -> None:
        self.world = world
        self._sessions = sessions
        self._fi_key = fi_key
        self._pages = wire.Pages()
        self._requests = 0
        self.refused_in_files: set[str] = set()
        self.refusals: list[str] = []

    def app(self) -> Starlette:
        """Return the application, with every route below the base address."""
        messages = "/messages/place_card_on_single_site_jobs/{job_id:int}"
        signed: list[tuple[str, str, Handler]] = [
            ("POST", "/cardLinks", self.create),
            ("GET", "/card_links/{name}", self.link),
            ("GET", "/place_card_on_single_site_jobs/{job_id:int}", self.job),
            ("PUT", "/place_card_on_single_site_jobs/{job_id:int}", self.update),
            ("GET", messages, self.job_messages),
            ("GET", "/messages/cardholders/{holder_id:int}", self.holder_messages),
            ("POST", messages + "/credential_responses", self.respond),
            ("GET", messages + "/credential_requests", self.requests),
            ("GET", messages + "/broadcasts", self.broadcasts),
            ("GET", messages + "/broadcasts/registrations", self.register),
        ]
        routes = [
            Route(wire.ROOT + path, self._guarded(handler), methods=[method])
            for method, path, handler in signed
        ]
        routes.append(Route(wire.ROOT + "/session/open", self.log_in, methods=["POST"]))
        routes.append(Route("/portal/cardholders", self.upload, methods=["POST"]))
        routes.append(Route("/portal/transactions", self.report, methods=["GET"]))
        return Starlette(routes=routes)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            now = self.world.pass_time()
            self._requests += 1
            if self._requests % _UNAVAILABLE_EVERY == 0:
                return wire.problem(503, "busy", "ask again later", retry=True)
            refusal = self._sessions.refusal(request, await request.body(), now)
            if refusal is not None:
                self.refusals.append(refusal[0])
                return wire.problem(401, *refusal)
            return await handler(request)

        return guarded

    async def log_in(self, request: Request) -> Response:
        """Open a session."""
        now = self.world.pass_time()
        session = self._sessions.log_in(await request.json(), now)
        if session is None:
            return wire.problem(403, "credentials", "the credentials are not known")
        body = {"token": session.token, "signingKey": _base64(session.key)}
        body["endsMs"] = str(wire.milliseconds(session.ends))
        return JSONResponse({"data": {"session": body}}, status_code=201)

    async def create(self, request: Request) -> Response:
        """Make a link for one cardholder."""
        body = await request.json()
        wrong = self._wrong_of(body)
        if wrong:
            return wire.problem(422, "invalid", "; ".join(wrong))
        cuid = body["cardholder"].get("cuid") or ""
        if cuid and self.world.live_link_of(cuid):
            return wire.problem(409, "exists", "the cardholder has a link that has not expired")
        last_4 = str(body["card"].get("pan") or "0000")[-4:]
        link = self.world.make_link(cuid, last_4, _expiration(body.get("expiration")))
        record = wire.link_record(link, frozenset(), self.world.clock())
        return JSONResponse(record, status_code=202)

    def _wrong_of(self, body: dict[str, Any]) -> list[str]:
        wrong = [
            f"{part}.{name} is required"
            for part, names in _NEEDED.items()
            for name in names
            if not (body.get(part) or {}).get(name)
        ]
        card = body.get("card") or {}
        if "reference" not in card:
            wrong.append("card.reference is required, or null")
        if card.get("reference") is None:
            wrong += [f"card.{name} is required" for name in _CARD if not card.get(name)]
        if body.get("fiKey") != self._fi_key:
            wrong.append("fiKey is not that of a configured institution")
        return wrong

    async def link(self, request: Request) -> Response:
        """Answer a link's record."""
        link = self.world.link_named(request.path_params["name"])
        if link is None:
            return wire.problem(404, "unknown", "there is no such link")
        hydrated = wire.hydration(request)
        body = wire.link_record(link, hydrated, self.world.clock())
        return wire.with_etag(request, body, f'"{link.link_id}.{link.revision}.{len(hydrated)}"')

    def _job(self, request: Request) -> Job | None:
        return self.world.jobs.get(request.path_params["job_id"])

    async def job(self, request: Request) -> Response:
        """Answer a job's record."""
        job = self._job(request)
        if job is None:
            return _no_job()
        hydrated = wire.wants_requests(request)
        body = wire.job_record(job, self.world, hydrated)
        return wire.with_etag(request, body, f'"{job.job_id}.{job.revision}.{hydrated}"')

    async def update(self, request: Request) -> Response:
        """Take an answer to a request, or an update of the account."""
        job = self._job(request)
        if job is None:
            return _no_job()
        body = await request.json()
        values = body["account"]["account_link"]
        envelope = request.headers.get("x-service-envelope-id")
        if envelope is None:
            job.account |= values
            return JSONResponse(wire.job_record(job, self.world, hydrated=False))
        wrong = self.world.answer(job, envelope, values)
        if wrong:
            return wire.problem(422, "answer", wrong)
        return JSONResponse(wire.job_record(job, self.world, hydrated=False))

    async def respond(self, request: Request) -> Response:
        """Take an answer by the messaging endpoint."""
        job = self._job(request)
        if job is None:
            return _no_job()
        body = await request.json()
        wrong = self.world.answer(job, body["envelope_id"], body["account_link"])
        if wrong:
            return wire.problem(422, "answer", wrong)
        return Response(status_code=204)

    async def job_messages(self, request: Request) -> Response:
        """Deliver a job's messages once, and its pending request."""
        if self._pages.is_rest(request):
            return self._pages.page(request, [])
        job = self._job(request)
        return _no_job() if job is None else self._pages.page(request, self._delivered([job]))

    async def holder_messages(self, request: Request) -> Response:
        """Deliver the messages of all a cardholder's jobs."""
        if self._pages.is_rest(request):
            return self._pages.page(request, [])
        jobs = self.world.jobs_of(request.path_params["holder_id"])
        return self._pages.page(request, self._delivered(jobs))

    def _delivered(self, jobs: list[Job]) -> list[Mapping[str, object]]:
        bodies: list[dict[str, object]] = []
        for job in jobs:
            bodies += self.world.messages.pop(job.job_id, [])
            if job.request:
                bodies.append(wire.credential_request(job, self.world))
        return _numbered(bodies)

    async def requests(self, request: Request) -> Response:
        """List a job's requests, in a format slightly different from messages."""
        job = self._job(request)
        if job is None:
            return _no_job()
        pending = [wire.credential_request(job, self.world)] if job.request else []
        return self._pages.page(request, [{"request": record} for record in pending])

    async def register(self, request: Request) -> Response:
        """Open a channel for the broadcasts of a job."""
        key = secrets.token_hex(8)
        self.world.channels[key] = (request.path_params["job_id"], [])
        return JSONResponse({"data": {"channelKey": key}})

    async def broadcasts(self, request: Request) -> Response:
        """Deliver what was broadcast on the channel."""
        channel = self.world.channels.get(request.headers.get("service-messaging-access-key", ""))
        if channel is None or channel[0] != request.path_params["job_id"]:
            return wire.problem(403, "channel", "register first")
        items = _numbered(channel[1])
        channel[1].clear()
        return self._pages.page(request, items)

    async def upload(self, request: Request) -> Response:
        """Take a file of cardholders; answer the file of links."""
        self.world.pass_time()
        text = (await request.body()).decode()
        return PlainTextResponse(
            portal.result_of(self.world, text, self.refused_in_files), media_type="text/csv"
        )

    async def report(self, request: Request) -> Response:
        """Answer the report of transactions."""
        return PlainTextResponse(portal.transactions(self.world), media_type="text/csv")


def _numbered(bodies: list[dict[str, object]]) -> list[Mapping[str, object]]:
    return [{"seq": number, "body": body} for number, body in enumerate(bodies, 1)]


def _no_job() -> Response:
    return wire.problem(404, "unknown", "there is no such job")


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _expiration(sent: dict[str, str] | None) -> datetime | None:
    if not sent:
        return None
    return datetime(int(sent["year"]), int(sent["month"]), int(sent["day"]), tzinfo=UTC)
