"""Whether files that arrive start runs: what whoever checks from outside may know without a token.

It names no issuer, and is read from the stores at most twice a minute, however often it is asked.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError
from flows.operations.conditions import conditions
from flows.wiring import now, open_store

EVERY = 30.0  # seconds


class Health(NamedTuple):
    """A status of HTTP, and what it means."""

    status: int
    text: str


@dataclass
class ArrivalsHealth:
    """The health of the arrivals of a folder's issuers, as it was within the last half minute."""

    folder: Path
    _lock: Lock = field(default_factory=Lock)
    _known: Health | None = None
    _until: float = 0.0

    def read(self) -> Health:
        """Return whether runs start when a file arrives: 200, or 503 where somebody has to act."""
        with self._lock:
            if self._known is None or time.monotonic() >= self._until:
                self._known = _health(list(_down(self.folder)))
                self._until = time.monotonic() + EVERY
            return self._known


def _health(down: list[bool]) -> Health:
    if not down:
        return Health(200, "ok: no issuer has [arrivals], runs start by schedule\n")
    if not any(down):
        return Health(200, "ok: runs start when a file arrives\n")
    of_all = f"{sum(down)} of {len(down)}"
    return Health(503, f"down for {of_all} issuers: there, runs start by schedule alone\n")


def _down(folder: Path) -> Iterator[bool]:
    """Yield for each issuer with [arrivals] whether it is down, or nobody can say."""
    try:
        names = issuers(folder)
    except CardlinkError:
        yield True
        return
    for name in names:
        try:
            settings = load_issuer(folder, name)
            states = conditions(settings, open_store(settings, folder), now())
        except CardlinkError:
            yield True
            continue
        for state in states:
            yield state.trouble is not None
