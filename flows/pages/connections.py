"""Bounds on connections: how many there are, how long one may be silent, and how long one lasts.

uvicorn bounds neither connections that send nothing nor slow ones, and answers everybody with 503
where there are too many. Here the oldest one without a request makes room for the next.
"""

from asyncio import TimerHandle, Transport
from logging import Filter, LogRecord

from h11 import LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.errors import CardlinkError

MOST = 100  # connections at a time
SILENT = 10.0  # seconds until the first request is whole
LONGEST = 120.0  # seconds that a connection lasts, with all its requests and answers


class WithoutTraces(Filter):
    """Logs an error of ours as its sentence, without a trace, and drops those a browser causes."""

    def filter(self, record: LogRecord) -> bool:
        """Return whether a record is logged; one with an error of ours becomes its sentence."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CardlinkError):
            record.msg = str(error)
            record.args = record.exc_info = None
        return not isinstance(error, LocalProtocolError)  # the browser broke HTTP, or left


class BoundedProtocol(H11Protocol):
    """A connection of HTTP/1.1 that cannot be held open for nothing."""

    began: float
    timers: tuple[TimerHandle, ...] = ()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin, and make room where there are too many."""
        super().connection_made(transport)
        self.began = self.loop.time()
        self.timers = (
            self.loop.call_later(SILENT, self._end_if_silent),
            self.loop.call_later(LONGEST, transport.abort),
        )
        connections = [other for other in self._others() if not other.transport.is_closing()]
        if len(connections) >= MOST:
            idle = [other for other in connections if other.is_idle]
            longest = min(idle, key=lambda other: other.began, default=self)
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, and forget the deadlines."""
        for timer in self.timers:
            timer.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _others(self) -> "list[BoundedProtocol]":
        return [
            other
            for other in self.connections
            if isinstance(other, BoundedProtocol) and other is not self
        ]

    def _end_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.abort()
