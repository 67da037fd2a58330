"""The practice service on 127.0.0.1 and a free port, in a thread, for as long as a test needs
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.simulator.service.app import create_app
from flows.extensions.simulator.service.books import Client, Habits, ServiceState
from flows.extensions.simulator.service.serving import address, listen, serving
from flows.extensions.simulator.service.wire import Spoken
from flows.runs.sealing import Opener
from tests.simulator.uploads import PaperOpener

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
T = TypeVar("T")


@dataclass(frozen=True)
class RunningService:
    """A service that listens; its clock stands still until a test moves it."""

    address: str
    books: ServiceState
    settings: ServiceSettings
    loop: asyncio.AbstractEventLoop

    @property
    def client(self) -> Client:
        """Who may log in."""
        return self.books.habits.client

    def act(self, do: Callable[[ServiceState], T]) -> T:
        """Do something with the books between two requests, never within one."""

        async def on_the_loop() -> T:
            return do(self.books)

        return asyncio.run_coroutine_threadsafe(on_the_loop(), self.loop).result(timeout=300)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.act(lambda books: books.advance(books.now + timedelta(seconds=seconds)))


@contextmanager
def running_service(
    *,
    opener: Opener | None = None,
    now: datetime = NOON,
    settings: dict[str, Any] | None = None,
    **habits: Any,
) -> Iterator[RunningService]:
    """Run a service with these habits; sealed uploads need the `opener` of the portal's key."""
    books = ServiceState(opener or PaperOpener(), now, Habits(**habits))
    with listen() as listener:
        spoken = ServiceSettings.model_validate({"base_url": address(listener), **(settings or {})})
        server = Spoken.model_validate(spoken.model_dump())
        app = create_app(books, server, lambda: books.now)
        with serving(app, listener) as loop:
            yield RunningService(address(listener), books, spoken, loop)
