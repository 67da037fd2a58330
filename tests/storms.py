"""Stores that misbehave as some stores do: they fail at chosen keys, list late, or say what others
never say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, select

from flows.database.connection import Database
from flows.runs.store import Entry, Source, Store
from schemas.database import JOURNAL
from tests.memory import one_level

T = TypeVar("T")


@dataclass
class FailingStore:
    """Raises what `trouble` returns for an operation and key, instead of doing it."""

    store: Store
    trouble: Callable[[str, str], Exception | None]

    def create(self, key: str, data: bytes) -> bool:
        self._fail("create", key)
        return self.store.create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self._fail("replace", key)
        self.store.replace(key, parts)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        self._fail("open", key)
        return self.store.open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        self._fail("keys", prefix)
        return self.store.keys(prefix, shallow=shallow)

    def _fail(self, operation: str, key: str) -> None:
        error = self.trouble(operation, key)
        if error is not None:
            raise error


@dataclass
class LateStore:
    """Lists nothing that was written through it until `settle` is called; reads are never late."""

    store: Store
    hidden: set[str] = field(default_factory=set)

    def create(self, key: str, data: bytes) -> bool:
        created = self.store.create(key, data)
        self.hidden |= {key} if created else set()
        return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self.store.replace(key, parts)
        self.hidden.add(key)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        return self.store.open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        shown = (entry for entry in self.store.keys(prefix) if entry.key not in self.hidden)
        return shown if not shallow else one_level(shown, prefix)

    def settle(self) -> None:
        """List everything from now on."""
        self.hidden.clear()


class FailingDatabase(Database):
    """A database where `trouble` is asked at each act, with what its journal entry says was done
    ("" without one): what it returns is raised before the act is committed, or `late`, after it.
    """

    def __init__(
        self,
        below: Database,
        trouble: Callable[[str], BaseException | None],
        *,
        late: bool = False,
    ) -> None:
        self.__dict__ |= below.__dict__
        self._trouble = trouble
        self._late = late

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        done: list[str] = []

        def watched(connection: Connection) -> T:
            before = last_entry(connection, issuer)
            result = work(connection)
            last = last_entry(connection, issuer)
            done[:] = [last.what if last != before else ""]
            if not self._late:
                self._fail(done[0])
            return result

        result = super().act(issuer, watched)
        if self._late:
            self._fail(done[0])
        return result

    def _fail(self, what: str) -> None:
        error = self._trouble(what)
        if error is not None:
            raise error


class LastEntry(NamedTuple):
    """The number of an issuer's last journal entry, and what it says was done."""

    number: int = 0
    what: str = ""


def last_entry(connection: Connection, issuer: str) -> LastEntry:
    """Return the last entry of an issuer's journal, as a transaction sees it."""
    query = select(JOURNAL.c.number, JOURNAL.c.what).where(JOURNAL.c.issuer == issuer)
    row = connection.execute(query.order_by(JOURNAL.c.number.desc()).limit(1)).first()
    return LastEntry(*row) if row is not None else LastEntry()
