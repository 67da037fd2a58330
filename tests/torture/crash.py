"""A store, a database and a sealer that end their process at a chosen moment: by SIGKILL nothing
after it runs.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from flows.database.connection import Database
from flows.runs.sealing import Plain, Sealed, Sealer
from flows.runs.store import Entry, Source, Store
from tests.storms import last_entry

T = TypeVar("T")
BEFORE, WITHIN, AFTER = "before", "within", "after"
_WHERE = re.compile(
    r"[^/]+/(?:runs/[^/]+/)?"
    r"(?P<what>extracts|results|chunks|ledger|report/[a-z.]+|runs)?"
)


class Crash(NamedTuple):
    """The `nth` passing (from 1) of a boundary, before, within or after it."""

    boundary: str  # `create chunks`, `open chunks`, `seal`, `act committed`, …
    moment: str
    nth: int
    number: int = signal.SIGKILL


class Boundaries:
    """Counts the boundaries a process passes and ends it at one of them."""

    def __init__(self, crash: Crash | None = None) -> None:
        self._crash = crash
        self._lock = Lock()
        self.passed: Counter[str] = Counter()

    def step(self, operation: str, key: str = "") -> AbstractContextManager[int]:
        """Pass a boundary; yields which passing of it this is."""
        found = _WHERE.match(key)
        return self._step(f"{operation} {found['what'] or 'folder'}" if found else operation)

    def within(self, boundary: str, number: int) -> None:
        """End here where the crash is within this passing."""
        self._end(Crash(boundary, WITHIN, number))

    @contextmanager
    def _step(self, boundary: str) -> Iterator[int]:
        with self._lock:
            self.passed[boundary] += 1
            number = self.passed[boundary]
        self._end(Crash(boundary, BEFORE, number))
        yield number
        self._end(Crash(boundary, AFTER, number))

    def _end(self, here: Crash) -> None:
        if self._crash and here[:3] == self._crash[:3]:
            os.kill(os.getpid(), self._crash.number)


class CrashingStore:
    """A store whose every operation is a boundary."""

    def __init__(self, store: Store, boundaries: Boundaries) -> None:
        self._store = store
        self._boundaries = boundaries

    def create(self, key: str, data: bytes) -> bool:
        with self._boundaries.step("create", key):
            return self._store.create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        with self._boundaries.step("replace", key) as number:
            self._store.replace(key, self._torn(parts, number, key))

    def open(self, key: str, pin: Entry | None = None) -> Source:
        with self._boundaries.step("open", key):
            return self._store.open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        with self._boundaries.step("list", prefix):
            return iter(list(self._store.keys(prefix, shallow=shallow)))

    def _torn(self, parts: Iterable[bytes], number: int, key: str) -> Iterator[bytes]:
        found = _WHERE.match(key)
        for part in parts:
            yield part
            self._boundaries.within(f"replace {found['what'] if found else ''}", number)


class CrashingDatabase(Database):
    """A database whose every act is a boundary: right before its commit, and right after."""

    def __init__(self, below: Database, boundaries: Boundaries) -> None:
        self.__dict__ |= below.__dict__
        self._boundaries = boundaries

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        with ExitStack() as stack:

            def watched(connection: Connection) -> T:
                before = last_entry(connection, issuer)
                result = work(connection)
                last = last_entry(connection, issuer)
                what = last.what if last != before else "without an entry"
                stack.enter_context(self._boundaries.step(f"act {what}"))
                return result

            return super().act(issuer, watched)


class CrashingSealer:
    """A sealer whose every group is a boundary."""

    def __init__(self, sealer: Sealer, boundaries: Boundaries) -> None:
        self._sealer = sealer
        self._boundaries = boundaries
        self.fingerprints = sealer.fingerprints
        self.warnings = sealer.warnings

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        with self._boundaries.step("seal"):
            return self._sealer.seal(chunks)
