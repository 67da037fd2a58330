"""What every route of the service shares: the books, the settings, the clock, the session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from flows.extensions.simulator.service import wire
from flows.extensions.simulator.service.books import ServiceState
from flows.extensions.simulator.service.refusals import DisturbedError, refused


@dataclass(frozen=True)
class ServiceHandle:
    """One running service."""

    books: ServiceState
    settings: wire.Spoken
    clock: Callable[[], datetime]

    async def on_time(self) -> None:
        """Bring the books up to the moment, before a request is answered from them."""
        self.books.advance(self.clock() + self.books.lead)

    def keep_moment(self) -> None:
        """Let the clock go on from the moment to which the books were taken ahead."""
        self.books.lead = self.books.now - self.clock()

    async def undisturbed(self, request: Request) -> None:
        """Let a request pass unless the service answers something else on this path."""
        for beginning, disturbance in self.books.disturbances.items():
            if request.url.path.startswith(beginning):
                raise DisturbedError(disturbance)

    async def session(self, authorization: Annotated[str, Header()] = "") -> None:
        """Let only a logged-in client pass (interface.md 5)."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not self.books.logged_in(token):
            raise refused(401, "session", "missing", "is needed, or has ended: log in")

    @property
    def clients_only(self) -> list[Any]:
        """The dependencies of routes that need a session."""
        return [Depends(self.session)]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of refusals.

    These, 400 (no JSON at all) and 422 (a value that does not fit).
    """
    return {status: {"model": wire.Faults} for status in (400, *statuses, 422)}
