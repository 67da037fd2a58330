"""The database as an open transaction sees it, for whoever reads while it is open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class Within:
    """An open transaction as a database, since none begins within another; implements Transactions.

    Threads that read side by side take turns: the transaction has one connection.
    """

    def __init__(self, connection: Connection, place: str) -> None:
        self.place = place
        self._connection = connection
        self._turns = RLock()

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do one act as a part of the transaction; return what `work` returns."""
        with self._turns:
            return work(self._connection)

    @contextmanager
    def rehearsal(self, issuer: str) -> Iterator[Connection]:
        """Yield the connection within a savepoint that is rolled back."""
        with self._turns, self._connection.begin_nested() as savepoint:
            yield self._connection
            savepoint.rollback()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield the connection."""
        with self._turns:
            yield self._connection
