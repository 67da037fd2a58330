"""The portal over HTTP (interface.md 2.6, 2.7), and the simulator's own recount.

No session, nothing of the API.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from flows.simulator.service import wire
from flows.simulator.service.desk import ServiceHandle, refusals
from flows.simulator.service.recount import recount
from flows.simulator.service.refusals import refused
from flows.simulator.uploads import UploadRefusedError

BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": BINARY}}}
}


def portal_routes(handle: ServiceHandle) -> APIRouter:
    """Return the routes of who uploads chunks and downloads results, and of the recount."""
    routes = APIRouter()
    books = handle.books

    @routes.post(
        "/portal/uploads",
        status_code=201,
        response_model=wire.Uploaded,
        responses=refusals(),
        openapi_extra=BODY,
    )
    async def upload(request: Request, name: Annotated[str, Query(min_length=1)]) -> dict[str, int]:
        """Upload a bulk file, sealed for the portal's key, or in the clear with published test
        cards only.
        """
        try:
            number = books.upload(name, await request.body())
        except UploadRefusedError as error:
            reason = error.fields["reason"]
        else:
            return {"id": number, "rows": len(books.portal.books[-1].rows)}
        raise refused(422, "upload", "refused", reason)

    @routes.get(
        "/portal/uploads/{upload_id}/result",
        response_class=Response,
        responses={200: {"content": {"text/csv": {"schema": BINARY}}}, **refusals(404)},
    )
    async def result(upload_id: int) -> Response:
        """Download the result CSV of an upload."""
        return Response(books.result(upload_id), media_type="text/csv")

    @routes.get("/__books")
    async def read_books() -> dict[str, Any]:
        """Return the simulator's own recount: links, opened, authenticated, jobs and ends, for each
        cardholder.
        """
        return recount(books)

    return routes
