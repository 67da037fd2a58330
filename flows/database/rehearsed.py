"""The database of a dry run: what its acts write is there for the dry run alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, event

from flows.database.connection import Transactions

T = TypeVar("T")


class Rehearsed:
    """A database whose acts are remembered instead of committed; implements Transactions.

    Whatever reads it sees what was remembered: it is written again in a transaction that is rolled
    back afterwards, so that nobody waits for a dry run longer than for one of its reads. What is
    written by the frame is not remembered.
    """

    def __init__(self, below: Transactions) -> None:
        self._below = below
        self._remembered: list[tuple[str, Any, Any]] = []  # issuer, statement, values

    @property
    def place(self) -> str:
        """Where the database is."""
        return self._below.place

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do one act as it would be done; return what `work` returns."""
        written: list[tuple[str, Any, Any]] = []

        def remember(_: Connection, statement: Any, several: Any, values: Any, *__: Any) -> None:
            if statement.is_dml:
                written.append((issuer, statement, several or values or None))

        with self.rehearsal(issuer) as connection:
            event.listen(connection, "after_execute", remember)
            result = work(connection)
        self._remembered += written
        return result

    @contextmanager
    def rehearsal(self, issuer: str) -> Iterator[Connection]:
        """Yield the connection of an act that is always rolled back."""
        with self._below.rehearsal(issuer) as connection:
            for _, statement, values in self._remembered:
                connection.execute(statement, values)
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection that reads the database as the dry run has left it."""
        if not self._remembered:
            with self._below.snapshot() as connection:
                yield connection
            return
        with self.rehearsal(self._remembered[-1][0]) as connection:
            yield connection
