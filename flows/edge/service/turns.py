"""Turns: so many requests a second, whichever thread sends them, and none while the service asks us to wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

LONGEST_HOLD = 60.0  # seconds the service can make us wait at a time


class Turns:
    """Hand out turns, evenly spaced; `clock` is a monotonic one in seconds."""

    def __init__(self, per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._step = 1 / per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._next = clock()

    def take(self) -> None:
        """Wait for a turn."""
        with self._lock:
            now = self._clock()
            mine = max(self._next, now)
            self._next = mine + self._step
        if mine > now:
            self._sleep(mine - now)

    def hold(self, seconds: float) -> None:
        """Give no turn for so long, at most a minute: the service said when to come back (`Retry-After`)."""
        with self._lock:
            self._next = max(self._next, self._clock() + min(seconds, LONGEST_HOLD))
