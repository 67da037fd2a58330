"""The partner's service as a torture meets it: its records are files beside the store, so that
processes that die, and the rerun after them, meet the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from flows.extensions.partner_api.service import NoSuchRecordError
from flows.extensions.partner_api.service_objects import CardLink, CardLinkRequest, JobRecord

SERVICE = """
[service]
base_url = "https://service.example.com"
fi_key = "practice-bank"
requests_per_second = 1000000.0
"""
URL = "https://links.example.com/l/"


class FiledPartner:
    """A service that links whoever is requested, and says of every link that it was opened."""

    def __init__(self, folder: Path) -> None:
        self._requests = folder / "partner"

    def create_link(self, request: CardLinkRequest) -> CardLink:
        """Create a link; the request is known from now on."""
        self._requests.mkdir(exist_ok=True)
        cuid = str(request.cardholder.cuid)
        (self._requests / f"{cuid} {uuid4().hex}").touch()
        return CardLink.model_validate(
            {"id": cuid, "url": URL + cuid, "expiration_date": "2030-01-02"}
        )

    def card_link(self, link_id: str) -> CardLink:
        """Return the record of a link."""
        return CardLink.model_validate({"id": link_id, "opened_on": "2026-11-20T12:00:00Z"})

    def job(self, job_id: str) -> JobRecord:
        """Know of no job."""
        raise NoSuchRecordError(place="the job")


def requested(folder: Path) -> list[str]:
    """Return whom a link was requested for, once for each request."""
    requests = (folder / "partner").glob("*")
    return sorted(request.name.partition(" ")[0] for request in requests)


def served(folder: Path) -> AbstractContextManager[Any]:
    """Let commands reach the partner whose records are in a folder."""

    @contextmanager
    def client(*_: Any, **__: Any) -> Iterator[FiledPartner]:
        yield FiledPartner(folder)

    return patch("flows.extensions.partner_api.connection.service_client", client)
