"""Repeat what failed for a moment, within a bounded time: the inner one of two layers of retries.

1. **An adapter repeats one call** (`Retry`). On S3 that is every call, for up to a minute; in a
   directory up to six attempts within three seconds. If that is in vain, it raises a TryAgainError.
2. **The whole command runs again.** A TryAgainError ends a command with exit code 75, and the same
   command resumes the work. In Prefect the task does so by itself, after the waits of its form
   (`Form.retries`: `nightly` and `rerun` three times, within some six minutes; `ingest`, `deliver`,
   `purge` twice); a form without them ends as failed.

Temporary are the errors of a store that map to StoreBusyError (`_BY_CODE` in `flows/adapters/
s3_errors.py`, `_BY_NUMBER` in `local.py`), credentials of S3 that worked before they expired, and
errors of a service that say so.

No other error is retried: it needs a person. A stop signal ends the waiting.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from flows.stopping import received

T = TypeVar("T")


@dataclass(frozen=True)
class Retry:
    """Bounded attempts with full jitter.

    The wait is `random` (0 to 1) of one that doubles from `first` up to `cap` seconds. Ends after
    `attempts`, or where the next wait would exceed `budget` seconds on `clock` (a monotonic one).
    Full jitter, since sixteen threads that were throttled together must not retry together.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random
    budget: float = 60.0
    attempts: int = 40
    first: float = 0.1
    cap: float = 5.0

    def __call__(
        self, attempt: Callable[[], T], on: type[Exception] | tuple[type[Exception], ...]
    ) -> T:
        """Return what `attempt` returns.

        An `on` error is retried until a stop signal; the last one is raised.
        """
        began = self.clock()
        for number in range(self.attempts - 1):
            try:
                return attempt()
            except on:
                wait = self.random() * min(self.cap, self.first * 2.0**number)
                if received() or self.clock() + wait - began > self.budget:
                    raise
            self.sleep(wait)
        return attempt()
