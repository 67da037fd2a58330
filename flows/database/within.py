"""A transaction that is open already, as the database of whatever reads or writes within it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class Within:
    """The transaction of a connection; implements Transactions. Threads use it in turn."""

    def __init__(self, connection: Connection, place: str) -> None:
        self._connection = connection
        self._turns = threading.RLock()
        self.place = place

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do an act as a part of the transaction, which is the issuer's."""
        with self._turns:
            return work(self._connection)

    @contextmanager
    def rehearsal(self, issuer: str) -> Iterator[Connection]:
        """Yield the connection, in a part of the transaction that is rolled back."""
        with self._turns, self._connection.begin_nested() as part:
            yield self._connection
            part.rollback()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield the connection: what the transaction has written is seen."""
        with self._turns:
            yield self._connection
