"""A database: its transactions, in which an act happens whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Protocol, TypeVar, cast

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, select, text
from sqlalchemy.exc import ArgumentError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from flows.database.errors import (
    DatabaseAddressError,
    NoBackupError,
    error_of,
    is_conflict,
)
from flows.database.migrate import migrate, newest, stored_revision
from schemas.database import ISSUER

T = TypeVar("T")

PATIENCE: Final = 60  # seconds that a transaction waits for those of others
ATTEMPTS: Final = 5  # of a transaction that others were in the way of
_DRIVERS: Final = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_BEGIN: Final = (
    f"SET LOCAL lock_timeout = '{PATIENCE}s'; "
    "SET LOCAL TIME ZONE 'UTC'; "
    "SET LOCAL DateStyle = 'ISO'"
)
_BEGIN_WRITING: Final = {"sqlite": "BEGIN IMMEDIATE", "postgresql": _BEGIN}
_BEGIN_READING: Final = {
    "sqlite": "BEGIN",
    "postgresql": f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; {_BEGIN}",
}
_FILE: Final = "file"  # of a connection's `info`: which file it is to
_INSERT: Final = text("INSERT INTO issuer (issuer) VALUES (:issuer) ON CONFLICT DO NOTHING")


class Transactions(Protocol):
    """What a step does with the database; in a dry run nothing of it stays."""

    @property
    def place(self) -> str:
        """Where it is, without user and password."""

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do one act of an issuer as one transaction; return what `work` returns."""

    def rehearsal(self, issuer: str) -> AbstractContextManager[Connection]:
        """Return the connection of an act that is always rolled back."""

    def snapshot(self) -> AbstractContextManager[Connection]:
        """Return a connection that reads the database as it is at this moment."""


class Database:
    """A SQLite file, or a database of a PostgreSQL server, by its address or the file's path.

    Nothing is connected before it is used, and each transaction first makes or migrates tables that
    are not of the newest revision. Its methods raise the errors of `flows.database.errors`, and
    BugError without values for whatever else a statement did. No transaction may begin within
    another.
    """

    def __init__(self, url: str | Path) -> None:
        self._url = _checked(url)
        self._engines = dict[int, Engine]()  # by process
        weakref.finalize(self, _close, self._engines)
        self._opening = threading.Lock()
        self._foreign: tuple[type[Exception], ...] = (SQLAlchemyError, sqlite3.Error)
        # in memory there is one connection for all threads, and it has one transaction at a time
        self._turns = threading.RLock() if _is_in_memory(self._url) else nullcontext()

    def __repr__(self) -> str:
        return f"Database({self.place!r})"

    @property
    def place(self) -> str:
        """Where it is, without user and password."""
        url = self._url
        if url.get_backend_name() == "sqlite":
            return url.database or "in memory"
        server = url.query.get("host", url.host or "localhost")
        port = f":{url.port}" if url.port else ""
        return f"postgresql://{server}{port}/{url.database or ''}"

    def backup(self, file: Path) -> None:
        """Copy a SQLite database to a new file, while others use it; NoBackupError.

        A copy that fails leaves no file, and its error names the file.
        """
        if self._url.get_backend_name() != "sqlite":
            raise NoBackupError(place=self.place)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with self.snapshot() as connection, closing(sqlite3.connect(file)) as target:
                source = cast(sqlite3.Connection, connection.connection.driver_connection)
                source.backup(target)
        except BaseException as error:
            file.unlink(missing_ok=True)
            if isinstance(error, self._foreign):
                raise error_of(error, str(file)) from None
            raise

    def close(self) -> None:
        """Close this process's connections, as its end does."""
        _close(self._engines)

    def act(self, issuer: str, work: Callable[[Connection], T]) -> T:
        """Do one act of an issuer as one transaction under its lock; return what `work` returns.

        It is committed when `work` returns and rolled back when that raises anything. `work` is
        repeated whole where another transaction was in the way, so it changes nothing outside.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._turns, self._opened().connect() as connection:
                    self._begin_act(connection, issuer)
                    result = work(connection)
                    connection.commit()
                    return result
            except self._foreign as error:
                if is_conflict(error) and attempt < ATTEMPTS:
                    continue
                failure = error_of(error, self.place)
                break
        raise failure

    @contextmanager
    def rehearsal(self, issuer: str) -> Iterator[Connection]:
        """Yield the connection of an act that is always rolled back."""
        with self._guarded(), self._turns, self._opened().connect() as connection:
            self._begin_act(connection, issuer)
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection that reads the database as it is at this moment."""
        with self._guarded(), self._turns, self._opened().connect() as connection:
            self._begin(connection, _BEGIN_READING[connection.dialect.name])
            yield connection

    def _begin_act(self, connection: Connection, issuer: str) -> None:
        """Begin a transaction that writes, and take the issuer's lock."""
        self._begin(connection, _BEGIN_WRITING[connection.dialect.name])
        connection.execute(_INSERT, {"issuer": issuer})
        lock = select(ISSUER.c.issuer).where(ISSUER.c.issuer == issuer).with_for_update()
        connection.execute(lock)  # of SQLite, BEGIN IMMEDIATE is the lock

    def _begin(self, connection: Connection, begin: str) -> None:
        """Begin a transaction on tables of the newest revision; make or migrate them first."""
        connection.exec_driver_sql(begin)
        if stored_revision(connection) == newest():
            return
        connection.rollback()
        connection.exec_driver_sql(_BEGIN_WRITING[connection.dialect.name])
        migrate(connection, self.place)
        connection.commit()
        connection.exec_driver_sql(begin)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Let only our errors out."""
        try:
            yield
        except self._foreign as error:
            raise error_of(error, self.place) from None

    def _opened(self) -> Engine:
        """Return this process's engine; a fork never uses its parent's connections."""
        process = os.getpid()
        with self._opening:
            if process not in self._engines:
                self._engines[process] = self._made()
                self._foreign += (self._engines[process].dialect.loaded_dbapi.Error,)
        return self._engines[process]

    def _made(self) -> Engine:
        if self._url.get_backend_name() == "sqlite":
            return _sqlite_engine(self._url)
        return _postgresql_engine(self._url)


def _close(engines: dict[int, Engine]) -> None:
    """Close the connections of this process, and leave those of the process it was forked from."""
    engine = engines.pop(os.getpid(), None)
    if engine is not None:
        engine.dispose()


def _checked(url: str | Path) -> URL:
    """Return the address with the driver that is used; DatabaseAddressError."""
    if isinstance(url, Path):
        return URL.create("sqlite", database=str(url))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # its text may hold a password
        raise DatabaseAddressError from None
    if parsed.drivername not in _DRIVERS:
        raise DatabaseAddressError
    return parsed.set(drivername=_DRIVERS[parsed.drivername])


def _is_in_memory(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def _sqlite_engine(url: URL) -> Engine:
    """Return an engine that leaves it to us to begin transactions."""
    pool: dict[str, Any] = {"poolclass": QueuePool, "max_overflow": -1}
    engine = create_engine(
        url,
        hide_parameters=True,
        **({"poolclass": StaticPool} if _is_in_memory(url) else pool),
        connect_args={"timeout": PATIENCE, "isolation_level": None, "check_same_thread": False},
    )
    if not _is_in_memory(url):
        file = Path(url.database or "")
        event.listen(engine, "do_connect", lambda *_: _make_private(file))
        event.listen(engine, "connect", lambda _, entry: _note_file(file, entry))
        event.listen(engine, "checkout", lambda _, entry, __: _check_file(file, entry))
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _note_file(file: Path, entry: ConnectionPoolEntry) -> None:
    entry.info[_FILE] = _identity(file)


def _check_file(file: Path, entry: ConnectionPoolEntry) -> None:
    """Raise DisconnectionError, after which the pool connects anew, where a connection is to a file
    that is not there any more: it was removed, or another was put in its place.
    """
    if entry.info[_FILE] != _identity(file):
        raise DisconnectionError


def _identity(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = file.stat()
        return status.st_dev, status.st_ino
    return None


def _postgresql_engine(url: URL) -> Engine:
    return create_engine(
        url,
        hide_parameters=True,
        pool_size=4,
        max_overflow=-1,
        pool_pre_ping=True,
        connect_args={"connect_timeout": PATIENCE, "application_name": "cardlink"},
    )


def _make_private(file: Path) -> None:
    """Make a file that only its user reads, if there is none; SQLite gives its other files the
    same mode. A file that exists is not opened: to close it would end SQLite's locks on it.
    """
    with suppress(OSError):  # there is one; or SQLite cannot make one either, and says so
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")  # what an erasure deletes is overwritten
    patient_until = monotonic() + PATIENCE
    while connection.execute("PRAGMA journal_mode").fetchone() not in (("wal",), ("memory",)):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # another process switches a new file at this moment, and SQLite does not wait for that
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > patient_until:
                raise
            sleep(0.01)
