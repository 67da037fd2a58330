"""Files on S3 are heard of through a queue: its messages are held until they are settled."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import Protocol

from flows.arrivals.backlog import Message
from flows.arrivals.dispatch import Backoff
from flows.arrivals.events import events_of
from flows.errors import CardlinkError, guarded

MOST = 1000  # messages that are held at a time; no more are fetched
AGE = 45.0  # seconds after which a held message is hidden anew
STRANGE = 600.0  # seconds that messages of others are a problem for


class _Fetched(Protocol):
    """What a queue returns of a message."""

    @property
    def body(self) -> str: ...
    @property
    def handle(self) -> str: ...


class Queue(Protocol):
    """A queue whose messages are hidden while they are held."""

    def receive(self) -> Sequence[_Fetched]:
        """Wait for messages, and hide them."""

    def hold(self, handles: Sequence[str], seconds: int = ...) -> None:
        """Hide messages for longer, or no longer."""

    def delete(self, handles: Sequence[str]) -> None:
        """Delete messages."""


class QueueSource:
    """Hears of files through one queue, in a thread of its own.

    What is no event of our buckets is left in the queue: it belongs to somebody else.
    `last_sign` is when it last worked, on the monotonic clock.
    """

    def __init__(
        self, queue: Queue, places: frozenset[str], deliver: Callable[[Message], None], stop: Event
    ) -> None:
        self.last_sign = time.monotonic()
        self._queue = queue
        self._places = places
        self._deliver = deliver
        self._stop = stop
        self._held: dict[str, float] = {}
        self._settled = SimpleQueue[str]()
        self._accounting = Lock()
        self._error = ""
        self._strange_until = 0.0

    @property
    def problem(self) -> str:
        """Why nothing is heard, or what is wrong with what is; "" where all is well."""
        if self._error:
            return self._error
        if time.monotonic() < self._strange_until:
            return "The queue has messages that are no events of this bucket; they are left there."
        return ""

    def listen(self) -> None:
        """Take messages until the stop; errors are waited out, and are the `problem` meanwhile."""
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                guarded(self.fetch)()
            except CardlinkError as error:
                self._error = error.what_happened
                self.last_sign = time.monotonic()  # it works, and says what is wrong
                self._stop.wait(backoff.next())
            else:
                self._error = ""
                backoff.reset()

    def fetch(self) -> None:
        """Fetch once, and keep the queue's account of what is held and what is settled."""
        if len(self._held) < MOST:
            self._take(self._queue.receive())
        else:
            self._stop.wait(1.0)
        with self._accounting:
            self._account()
        self.last_sign = time.monotonic()

    def _take(self, fetched: Sequence[_Fetched]) -> None:
        """Hand over what was fetched; after the stop it is given back."""
        if self._stop.is_set():
            self._queue.hold([message.handle for message in fetched], 0)
            return
        for message in fetched:
            events = events_of(message.body)
            if events is None or any(event.place not in self._places for event in events):
                self._strange_until = time.monotonic() + STRANGE
                continue
            self._held[message.handle] = time.monotonic()
            self._deliver(Message(events, partial(self._settled.put, message.handle)))

    def _account(self) -> None:
        """Delete what is settled, and hold what is not for longer."""
        settled = []
        with suppress(Empty):
            while True:
                settled.append(self._settled.get_nowait())
        for handle in settled:
            self._held.pop(handle, None)
        self._queue.delete(settled)
        now = time.monotonic()
        ageing = [handle for handle, since in self._held.items() if now - since > AGE]
        self._queue.hold(ageing)
        self._held.update(dict.fromkeys(ageing, now))

    def close(self) -> None:
        """Delete what is settled, and give the others back, so that they come again at once."""
        with suppress(CardlinkError), self._accounting:
            self._account()
            self._queue.hold([*self._held], 0)
            self._held.clear()
