"""The portal over HTTP (interface.md 2.6, 2.7), and the simulator's own recount.

No session, nothing of the API.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from flows.extensions.simulator.link_styles import STYLES, USUAL
from flows.extensions.simulator.portal import Behaviour
from flows.extensions.simulator.service import wire
from flows.extensions.simulator.service.desk import ServiceHandle, refusals
from flows.extensions.simulator.service.recount import recount
from flows.extensions.simulator.service.refusals import refused
from flows.extensions.simulator.uploads import UploadRefusedError

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
    async def upload(
        request: Request,
        name: Annotated[str, Query(min_length=1)],
        behaviour: Annotated[Behaviour | None, Depends(_behaviour)],
    ) -> dict[str, int]:
        """Upload a bulk file, sealed for the portal's key, or in the clear with published test
        cards only.

        With a seed it is answered as the other parameters say, otherwise as the service was told.
        """
        try:
            number = books.upload(name, await request.body(), behaviour)
        except UploadRefusedError as error:
            reason = error.fields["reason"]
        else:
            return {"id": number, "rows": len(books.portal.books[-1].rows)}
        raise refused(422, "upload", "refused", reason)

    @routes.get("/portal/uploads", response_model=list[wire.NamedUpload])
    async def list_uploads() -> list[dict[str, Any]]:
        """Return the uploads that were taken, by name."""
        uploads = enumerate(books.portal.books, start=1)
        return [
            {"id": number, "name": upload.name, "rows": len(upload.rows)}
            for number, upload in uploads
        ]

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


async def _behaviour(
    seed: int | None = None,
    fail_share: Annotated[float, Query(ge=0, le=1)] = 0.0,
    shuffle: bool = False,
    links: Annotated[str, Query(pattern=f"^({'|'.join(STYLES)})$")] = USUAL,
) -> Behaviour | None:
    return None if seed is None else Behaviour(fail_share, shuffle, seed, links)
