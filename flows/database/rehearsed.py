"""The database of a dry run: what its acts write is there for the dry run alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import polars as pl
from sqlalchemy import Connection, Table, event

from flows.database.bulk import REMEMBERED, insert_frame
from flows.database.connection import Transactions

T = TypeVar("T")


class Rehearsed:
    """A database whose acts are remembered instead of committed; implements Transactions.

    Whatever reads it sees what was remembered: it is written again in a transaction that is rolled
    back afterwards, so that nobody waits for a dry run longer than for one of its reads.
    """

    def __init__(self, below: Transactions) -> None:
        self._below = below
        self._remembered: list[Callable[[Connection], object]] = []
        self._issuer = ""  # of the last act

    @property
    def place(self) -> str:
        """Where the database is."""
        return self._below.place

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do one act as it would be done; return what `work` returns."""
        written: list[Callable[[Connection], object]] = []

        def remember(_: Connection, statement: Any, several: Any, values: Any, *__: Any) -> None:
            if statement.is_dml:
                of_all = several or values or None
                written.append(lambda connection: connection.execute(statement, of_all))

        def remember_frame(table: Table, frame: pl.DataFrame) -> None:
            written.append(partial(insert_frame, table=table, frame=frame))

        with self.rehearsal(issuer) as connection:
            event.listen(connection, "after_execute", remember)
            connection.info[REMEMBERED] = remember_frame
            try:
                result = work(connection)
            finally:
                del connection.info[REMEMBERED]
        self._remembered += written
        self._issuer = issuer
        return result

    @contextmanager
    def rehearsal(self, issuer: str) -> Iterator[Connection]:
        """Yield the connection of an act that is always rolled back."""
        with self._below.rehearsal(issuer) as connection:
            for write in self._remembered:
                write(connection)
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection that reads the database as the dry run has left it."""
        if not self._remembered:
            with self._below.snapshot() as connection:
                yield connection
            return
        with self.rehearsal(self._issuer) as connection:
            yield connection
