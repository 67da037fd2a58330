"""Trying again: how long, how often, and with how much chance in between; time and chance are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Retry:
    """Bounded attempts with full jitter: `random` (0 to 1) of a wait that doubles from `first` up to `cap` seconds.

    Ends after `attempts`, or where the next wait would pass `budget` seconds on `clock` (a monotonic one).
    Full jitter, since sixteen threads that were throttled together must not come back together.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    random: Callable[[], float]
    budget: float = 60.0
    attempts: int = 40
    first: float = 0.1
    cap: float = 5.0

    def __call__(self, attempt: Callable[[], T], on: type[Exception]) -> T:
        """Return what `attempt` returns; an `on` error is tried again and the last one is raised."""
        began = self.clock()
        for number in range(self.attempts - 1):
            try:
                return attempt()
            except on:
                wait = self.random() * min(self.cap, self.first * 2.0**number)
                if self.clock() + wait - began > self.budget:
                    raise
            self.sleep(wait)
        return attempt()
