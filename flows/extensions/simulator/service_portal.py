"""The portal of a running practice service, over HTTP: what a person does at it by a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from flows.errors import OperatorError
from flows.extensions.simulator.portal import Behaviour
from flows.extensions.simulator.uploads import UploadRefusedError
from flows.steps import Option, Sentence, Slot, Step
from schemas.issuer import Issuer
from schemas.settings import LOOPBACK

REFUSED: Final = 422
_UPLOADS: Final = "/portal/uploads"
_TIMEOUT: Final = 300.0  # seconds: a full chunk is opened and judged row by row


class NoPracticeServiceError(OperatorError):
    """`[service]` leads to a practice service that is not there."""

    message = "No practice service responds at {base_url}, to which [service] of {issuer} leads."
    next_step = Sentence(
        "Start it in another terminal: {practice}. With {alone} chunks are answered without it; "
        "then it knows none of their links.",
        practice=Step("practice", Slot("issuer"), port=Slot("port")),
        alone=Option("--alone", of="simulate"),
    )


class ServicePortal:
    """Uploads bulk files to a practice service and downloads their results."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def uploads(self) -> dict[str, int]:
        """Return the ids of the uploads that the service has taken, by name."""
        listed = self._http.get(_UPLOADS).raise_for_status().json()
        return {upload["name"]: upload["id"] for upload in listed}

    def upload(self, name: str, content: bytes, behaviour: Behaviour) -> int:
        """Upload a bulk file and return its id; UploadRefusedError takes nothing."""
        parameters: dict[str, Any] = {"name": name, **behaviour._asdict()}
        response = self._http.post(_UPLOADS, params=parameters, content=content)
        if response.status_code == REFUSED:
            reason = response.json()["_errors"][0]["message"]
            raise UploadRefusedError(name=name, reason=reason)
        return int(response.raise_for_status().json()["id"])

    def result(self, upload_id: int) -> bytes:
        """Return the result CSV of an upload."""
        return self._http.get(f"{_UPLOADS}/{upload_id}/result").raise_for_status().content


def practice_address(issuer: Issuer) -> str | None:
    """Return where the issuer's practice service is, None where it has none."""
    base_url = getattr(getattr(issuer, "service", None), "base_url", "")
    return base_url if urlsplit(base_url).hostname in LOOPBACK else None


@contextmanager
def practice_http(issuer: Issuer, base_url: str) -> Iterator[httpx.Client]:
    """Connect to the practice service; NoPracticeServiceError where it does not respond as one."""
    failed = False
    try:
        with httpx.Client(base_url=base_url, timeout=_TIMEOUT, trust_env=False) as http:
            yield http
    except httpx.HTTPError:
        failed = True
    if failed:
        port = urlsplit(base_url).port or 80
        raise NoPracticeServiceError(base_url=base_url, issuer=issuer.issuer, port=port)
