"""Job records and messages over HTTP (interface.md 2.1 to 2.5, 4): paths and headers, no more."""
# No postponed annotations: FastAPI reads them, and they name headers of the settings.

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from flows.extensions.simulator.service import wire
from flows.extensions.simulator.service.channels import Message, flat_request
from flows.extensions.simulator.service.conditional import IfNoneMatch, unless_known
from flows.extensions.simulator.service.desk import ServiceHandle, refusals
from flows.extensions.simulator.service.refusals import refused
from flows.extensions.simulator.service.wire import CARDHOLDER_MESSAGES, JOB_MESSAGES, JOBS

MESSAGES: dict[str, Any] = {
    "response_model": list[wire.Envelope],
    "response_model_exclude_unset": True,
}
REQUESTS: dict[str, Any] = {
    "response_model": list[wire.FlatRequest],
    "response_model_exclude_unset": True,
}
RECORD: dict[str, Any] = {"response_model": wire.JobRecord, "response_model_exclude_unset": True}


def job_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes of the job record: polling and updating."""
    routes = APIRouter(dependencies=handle.clients_only)
    books = handle.books
    settings = handle.settings

    @routes.get(JOBS + "/{job_id}", **RECORD, responses=refusals(401, 404))
    async def read_job(
        job_id: int,
        response: Response,
        hydration: Annotated[str, Header(alias=settings.header("hydration"))] = "",
        if_none_match: IfNoneMatch = "",
    ) -> Any:
        """Return a job's record, with its credential requests where the hydration header asks for
        them.
        """
        if hydration not in ("", settings.job_hydration):
            raise refused(
                422,
                "header",
                "invalid",
                "asks for something else than credential requests",
                "hydration",
            )
        record = books.job_record(job_id, hydrate=bool(hydration))
        return unless_known(record, if_none_match, response)

    @routes.put(JOBS + "/{job_id}", **RECORD, responses=refusals(401, 404, 409))
    async def update_job(
        job_id: int,
        update: wire.JobUpdate,
        envelope_id: Annotated[str | None, Header(alias=settings.header("envelope-id"))] = None,
    ) -> dict[str, Any]:
        """Answer the credential request of the envelope header; without it, update the account and
        answer nothing.
        """
        if envelope_id is None:
            books.update_account(job_id)
        else:
            books.answer(job_id, envelope_id, update.account.account_link)
        return books.job_record(job_id)

    return routes


def message_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes that read messages and answer them."""
    routes = APIRouter(dependencies=handle.clients_only)
    books = handle.books
    known = refusals(401, 404)

    @routes.get(JOB_MESSAGES + "/{job_id}", **MESSAGES, responses=known)
    async def read_messages(job_id: int) -> list[Message]:
        """Read a job's messages: status messages once, the pending credential request every
        time.
        """
        return books.messages(job_id)

    @routes.get(CARDHOLDER_MESSAGES + "/{cardholder_id}", **MESSAGES, responses=known)
    async def read_cardholder(cardholder_id: int) -> list[Message]:
        """Read the messages of all jobs of a cardholder; each carries its `job_id`."""
        return books.cardholder_messages(cardholder_id)

    @routes.get(JOB_MESSAGES + "/{job_id}/credential_requests", **REQUESTS, responses=known)
    async def read_requests(job_id: int) -> list[Message]:
        """Return what a job waits for, the status data beside the rest instead of in `message`."""
        return [flat_request(request) for request in books.credential_requests(job_id)]

    @routes.post(
        JOB_MESSAGES + "/{job_id}/credential_responses", **RECORD, responses=refusals(401, 404, 409)
    )
    async def respond(job_id: int, response: wire.CredentialResponse) -> dict[str, Any]:
        """Answer a credential request; the job update does the same and is recommended."""
        if response.job_id != job_id:
            raise refused(
                422, "credential_response", "mismatch", "is not the job of the path", "job_id"
            )
        books.answer(job_id, response.envelope_id, response.account_link)
        return books.job_record(job_id)

    return routes


def broadcast_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes of channels that hear the status messages of a job, whoever else reads
    them.
    """
    routes = APIRouter(dependencies=handle.clients_only)
    books = handle.books
    settings = handle.settings
    below = JOB_MESSAGES + "/{job_id}/broadcasts"

    @routes.get(
        f"{below}/registrations", response_model=wire.AccessKey, responses=refusals(401, 404)
    )
    async def register(job_id: int) -> dict[str, str]:
        """Register a channel of one's own; its access key goes into the header of every broadcast
        query.
        """
        return {"access_key": books.register(job_id)}

    @routes.get(below, **MESSAGES, responses=refusals(401, 403, 404))
    async def read_broadcasts(
        job_id: int,
        access_key: Annotated[str, Header(alias=settings.access_key)] = "",
    ) -> list[Message]:
        """Read a registered channel: status messages only, each once."""
        return books.broadcasts(job_id, access_key)

    return routes
