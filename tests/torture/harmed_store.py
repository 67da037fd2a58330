"""A store whose n-th write is harmed: the process dies there, is stopped there, another process
does the same first, what is written from there on is not listed yet, or what is deleted from there
on is listed still.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from flows.runs.store import Entry, Source, StoreBusyError
from tests.memory import one_level
from tests.stores import CleanableStore

Harm = Literal[
    "killed before",
    "killed after",
    "stopped",
    "raced",
    "raced, claims run out",
    "listed late",
    "deleted late",
    "SIGKILL before",
    "SIGKILL after",
]


class KilledError(BaseException):
    """Stands for a kill: nothing catches it, and nothing is written after it."""


@dataclass
class Writes:
    """Counts what a process writes, and harms the `nth` write of it (0: none)."""

    harm: Harm | None = None
    nth: int = 0
    rival: Callable[[], object] = lambda: None  # what another process does meanwhile
    offset: timedelta = timedelta()  # of the clock of whoever writes
    count: int = 0
    is_dead: bool = False
    keys: list[str] = field(default_factory=list)
    is_listed_late: bool = False
    unlisted: set[str] = field(default_factory=set)
    is_deleted_late: bool = False
    deleted: list[Entry] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def alive(self) -> None:
        """Raise where the process is dead."""
        if self.is_dead:
            raise StoreBusyError(place="the store of a dead process", code="killed")

    def write(self, key: str, act: Callable[[], bool]) -> bool:
        """Write once, harmed or not."""
        with self._lock:
            self.alive()
            self.count += 1
            self.keys.append(key)
            is_harmed = self.count == self.nth
        if not is_harmed:
            return act()
        match self.harm:
            case "killed before":
                self._die()
            case "killed after":
                act()
                self._die()
            case "SIGKILL before":
                os.kill(os.getpid(), signal.SIGKILL)
            case "SIGKILL after":
                act()
                os.kill(os.getpid(), signal.SIGKILL)
            case "stopped":
                signal.raise_signal(signal.SIGINT)
            case "raced" | "raced, claims run out":
                rival = threading.Thread(target=self.rival)
                rival.start()
                rival.join()
            case "listed late":
                self.is_listed_late = True
            case "deleted late":
                self.is_deleted_late = True
        return act()

    def _die(self) -> None:
        self.is_dead = True
        raise KilledError


class HarmedStore:
    """A store whose writes are counted, and one of them harmed; it can delete where it could."""

    def __init__(self, store: CleanableStore, writes: Writes) -> None:
        self._store = store
        self._writes = writes

    def create(self, key: str, data: bytes) -> bool:
        created = self._writes.write(key, lambda: self._store.create(key, data))
        if created and self._writes.is_listed_late:
            self._writes.unlisted.add(key)
        return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        content = list(parts)

        def act() -> bool:
            self._store.replace(key, content)
            return True

        self._writes.write(key, act)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        self._writes.alive()
        return self._store.open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        self._writes.alive()
        if not self._writes.is_deleted_late:
            entries = self._store.keys(prefix, shallow=shallow)
            return (entry for entry in entries if entry.key not in self._writes.unlisted)
        listed = {entry.key: entry for entry in self._writes.deleted}
        listed |= {entry.key: entry for entry in self._store.keys(prefix)}
        entries = (listed[key] for key in sorted(listed) if key.startswith(prefix))
        return one_level(entries, prefix) if shallow else entries

    def delete(self, key: str) -> None:
        entries = [entry for entry in self._store.keys(key) if entry.key == key]

        def act() -> bool:
            self._store.delete(key)
            return True

        self._writes.write(key, act)
        self._writes.deleted += entries

    def discard(self, leftover: Entry) -> None:
        self._writes.alive()
        self._store.discard(leftover)

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        self._writes.alive()
        return self._store.leftovers(prefix, before)

    def hides(self) -> bool | None:
        return self._store.hides()
