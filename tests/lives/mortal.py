"""A store and a database that die with their process: from a chosen operation on nothing is done
any more, until they are revived.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import TypeVar

from sqlalchemy import Connection

from flows.adapters.local import LocalSource
from flows.database.connection import Database
from flows.runs.store import Entry
from tests.clocked import ClockedStore

T = TypeVar("T")


class KilledError(BaseException):
    """The process is dead: no handler of errors may stop it."""


@dataclass
class Life:
    """How many operations are left, None for any number, and how many were begun; one of a store
    and its copies.
    """

    left: int | None = None
    passed: int = 0

    @property
    def over(self) -> bool:
        return self.left is not None and self.passed > self.left


class MortalStore(ClockedStore):
    """Counts operations; the process dies before the one that `die_after` names."""

    def __init__(self, root: Path, now: Callable[[], datetime]) -> None:
        super().__init__(root, now)
        self._lock = Lock()
        self.life = Life()

    def die_after(self, operations: int | None) -> None:
        """Die after so many operations; None: live."""
        with self._lock:
            self.life.left, self.life.passed = operations, 0

    def create(self, key: str, data: bytes) -> bool:
        """Write a key, where the process lives."""
        self.live()
        return super().create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write a derived object, where the process lives."""
        self.live()
        super().replace(key, parts)

    def open(self, key: str, pin: Entry | None = None) -> LocalSource:
        """Open a key, where the process lives."""
        self.live()
        return super().open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List keys, where the process lives."""
        self.live()
        return super().keys(prefix, shallow=shallow)

    def delete(self, key: str) -> None:
        """Delete a key, where the process lives."""
        self.live()
        super().delete(key)

    def live(self) -> None:
        """Begin an operation, where the process lives."""
        with self._lock:
            self.life.passed += 1
            if self.life.over:
                raise KilledError


class MortalDatabase(Database):
    """Counts acts among the operations of a store: its process dies before one, or right after."""

    def __init__(self, below: Database, store: MortalStore) -> None:
        self.__dict__ |= below.__dict__
        self._store = store

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do one act, where the process lives."""
        self._store.live()
        done = super().act(issuer, work)
        self._store.live()
        return done


@dataclass
class Reaper:
    """Kills a share of the steps somewhere within, and runs them again; counts what was done and
    what was killed.
    """

    store: MortalStore
    chance: random.Random
    deaths: float  # the share of steps that are killed
    wait: Callable[[], None]  # lets an hour go by
    did: Counter[str] = field(default_factory=Counter)
    usual: dict[str, int] = field(default_factory=dict)  # operations a step passes

    def survive(self, what: str, work: Callable[[], T], *, spares: bool = False) -> T:
        """Do a step; now and then the process is killed within it, and it is run again an hour
        later. With `spares`, it never is.
        """
        while not spares and self.chance.random() < self.deaths:
            self.store.die_after(self.chance.randrange(max(1, self.usual.get(what, 40))))
            try:
                done = work()
            except KilledError:
                self.did[f"killed: {what}"] += 1
                self.wait()
            else:
                self.did[what] += 1
                return done
            finally:
                self.store.die_after(None)
        done = work()
        self.usual[what] = self.store.life.passed
        self.store.die_after(None)
        self.did[what] += 1
        return done
