"""A database: what an act changes is there whole or not at all, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select, text

from flows.database import connection as connections
from flows.database import errors
from flows.database.connection import Database
from flows.errors import BugError, CardlinkError, LimitError
from schemas.database import ISSUER

SECRET = "hunter2"


def issuers(database: Database) -> list[str]:
    with database.snapshot() as connection:
        return list(connection.scalars(select(ISSUER.c.issuer).order_by(ISSUER.c.issuer)))


def add(name: str) -> Any:
    return lambda connection: connection.execute(insert(ISSUER).values(issuer=name))


@contextmanager
def limited(limit: int, value: int) -> Iterator[None]:
    """Give this process no more than that for a while."""
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(limit, (soft, hard))


def error_in(database: Database, statement: str) -> CardlinkError:
    with pytest.raises(CardlinkError) as raised:
        database.act("bank", lambda connection: connection.exec_driver_sql(statement))
    return raised.value


def test_an_act_is_committed_with_its_issuer_and_returns_what_its_work_returns(
    database: Database,
) -> None:
    result = database.act("bank", lambda connection: connection.scalar(select(func.count(1))))

    assert 1 == result
    assert ["bank"] == issuers(database)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_act_that_raises_anything_changes_nothing(
    database: Database, kind: type[BaseException]
) -> None:
    def work(connection: Connection) -> None:
        add("other")(connection)
        raise kind

    with pytest.raises(kind):
        database.act("bank", work)

    assert [] == issuers(database)


def test_a_rehearsal_sees_what_it_writes_and_changes_nothing(database: Database) -> None:
    with database.rehearsal("bank") as connection:
        add("other")(connection)
        seen = connection.scalar(select(func.count()).select_from(ISSUER))

    assert 2 == seen
    assert [] == issuers(database)


def test_a_snapshot_does_not_see_what_is_committed_after_its_begin(database: Database) -> None:
    database.act("bank", lambda _: None)

    with database.snapshot() as connection:
        database.act("other", lambda _: None)
        seen = list(connection.scalars(select(ISSUER.c.issuer)))

    assert ["bank"] == seen
    assert ["bank", "other"] == issuers(database)


def test_acts_of_one_issuer_happen_one_after_the_other(database: Database) -> None:
    database.act("bank", lambda connection: connection.exec_driver_sql("CREATE TABLE n (n INT)"))
    database.act("bank", lambda connection: connection.exec_driver_sql("INSERT INTO n VALUES (0)"))

    def count(connection: Connection) -> None:
        number = connection.scalar(text("SELECT n FROM n")) or 0
        connection.execute(text("UPDATE n SET n = :n"), {"n": number + 1})

    threads = [
        threading.Thread(target=lambda: [database.act("bank", count) for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with database.snapshot() as connection:
        assert 80 == connection.scalar(text("SELECT n FROM n"))


def test_threads_share_a_database_in_memory() -> None:
    database = Database("sqlite://")

    threads = [
        threading.Thread(target=database.act, args=(f"bank-{n}", lambda _: None)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [f"bank-{n}" for n in range(4)] == issuers(database)


def test_an_act_is_repeated_whole_where_another_transaction_was_in_the_way(
    postgresql_server: Any,
) -> None:
    attempts = list[int]()

    def work(connection: Connection) -> None:
        attempts.append(1)
        add("other")(connection)
        if len(attempts) < 3:
            connection.exec_driver_sql("DO $$ BEGIN RAISE serialization_failure; END $$")

    with postgresql_server.database() as address:
        database = Database(address)
        database.act("bank", work)

        assert (3, ["bank", "other"]) == (len(attempts), issuers(database))
        database.close()


def test_an_act_that_others_are_always_in_the_way_of_is_to_be_tried_again(
    postgresql_server: Any,
) -> None:
    with postgresql_server.database() as address:
        database = Database(address)

        error = error_in(database, "DO $$ BEGIN RAISE deadlock_detected; END $$")

        assert (errors.DatabaseBusyError, 75) == (type(error), error.exit_code)
        database.close()


def test_a_lock_that_another_process_keeps_is_to_be_tried_again(
    database_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = Database(database_address)
    monkeypatch.setattr(connections, "PATIENCE", 1)
    monkeypatch.setitem(
        connections._BEGIN_WRITING, "postgresql", "SET LOCAL lock_timeout = '100ms'"
    )
    impatient = Database(database_address)

    with patient.rehearsal("bank"):
        error = error_in(impatient, "SELECT 1")

    assert errors.DatabaseBusyError is type(error)
    patient.close()
    impatient.close()


def test_an_error_has_no_value_of_a_statement_and_survives_pickling(database: Database) -> None:
    database.act(SECRET, lambda _: None)
    with pytest.raises(BugError) as raised:
        database.act("bank", add(SECRET))
    with pytest.raises(BugError) as in_rehearsal, database.rehearsal("bank") as connection:
        add(SECRET)(connection)

    copied = pickle.loads(pickle.dumps(raised.value))

    assert str(raised.value) == str(copied)
    assert "IntegrityError" in str(copied)
    assert SECRET not in str(raised.value) + str(in_rehearsal.value)
    assert raised.value.__context__ is None
    assert in_rehearsal.value.__suppress_context__


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://anna:{SECRET}@host:port/name",
        f"mysql://anna:{SECRET}@host/name",
        f"{SECRET}",
        "",
    ],
)
def test_what_is_no_address_of_a_database_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(errors.DatabaseAddressError) as raised:
        Database(address)

    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (f"postgresql://anna:{SECRET}@db.bank:5433/cards", "postgresql://db.bank:5433/cards"),
        (f"postgres://db/cards?password={SECRET}", "postgresql://db/cards"),
        (f"postgresql://anna:{SECRET}@/cards?host=/run/pg", "postgresql:///run/pg/cards"),
        ("sqlite:////var/cards.db", "/var/cards.db"),
        (Path("/var/what?.db"), "/var/what?.db"),
        ("sqlite://", "in memory"),
    ],
)
def test_the_place_of_a_database_has_no_password(address: str | Path, place: str) -> None:
    database = Database(address)

    assert (place, f"Database({place!r})") == (database.place, repr(database))


def test_a_server_that_is_not_there_is_to_be_tried_again() -> None:
    database = Database(f"postgresql://anna:{SECRET}@127.0.0.1:1/cards")

    error = error_in(database, "SELECT 1")

    assert errors.DatabaseUnreachableError is type(error)
    assert SECRET not in str(error)


def test_a_database_that_a_server_does_not_have_is_for_the_operator(
    postgresql_server: Any,
) -> None:
    database = Database(postgresql_server.address.replace("/postgres?", "/nowhere?"))

    error = error_in(database, "SELECT 1")

    assert errors.DatabaseDeniedError is type(error)


def test_a_server_that_ends_connections_is_to_be_tried_again(postgresql_server: Any) -> None:
    with postgresql_server.database() as address:
        database = Database(address)

        error = error_in(database, "SELECT pg_terminate_backend(pg_backend_pid())")

        assert errors.DatabaseUnreachableError is type(error)
        database.act("bank", lambda _: None)  # by a new connection
        database.close()


def test_a_database_in_a_folder_that_is_not_there_is_for_the_operator(tmp_path: Path) -> None:
    database = Database(tmp_path / "missing" / "cardlink.db")

    error = error_in(database, "SELECT 1")

    assert errors.DatabaseDeniedError is type(error)
    assert f"{tmp_path}/missing/cardlink.db" in str(error)


def test_a_file_that_is_no_database_is_for_the_operator(tmp_path: Path) -> None:
    (tmp_path / "cardlink.db").write_text("cuid,pan\n" * 1000)

    error = error_in(Database(tmp_path / "cardlink.db"), "SELECT 1")

    assert errors.DatabaseDamagedError is type(error)
    assert "cuid,pan\n" * 1000 == (tmp_path / "cardlink.db").read_text()


def test_a_full_disk_is_for_the_operator_and_the_act_can_be_done_later(tmp_path: Path) -> None:
    database = Database(tmp_path / "cardlink.db")
    database.act("bank", lambda _: None)

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
        connection.exec_driver_sql("CREATE TABLE big AS SELECT randomblob(1000000)")

    with pytest.raises(errors.DatabaseFullError):
        database.act("other", fill)

    assert ["bank"] == issuers(database)


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        (resource.RLIMIT_FSIZE, 20_000, "no file may have more than 20,000 bytes (ulimit -f)"),
        (resource.RLIMIT_NOFILE, 0, "too many open files"),
    ],
)
def test_a_limit_of_the_process_is_named_and_the_act_can_be_done_later(
    tmp_path: Path, limit: int, value: int, reason: str
) -> None:
    database = Database(tmp_path / "cardlink.db")
    database.act("bank", lambda _: None)
    database.close()  # the next act connects anew

    with limited(limit, value), pytest.raises(LimitError) as met:
        database.act("other", lambda _: None)

    assert {"place": f"work on the database {database.place}", "reason": reason} == met.value.fields
    database.act("other", lambda _: None)
    assert ["bank", "other"] == issuers(database)


def test_a_file_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    database = Database(tmp_path / "cardlink.db")
    database.act("bank", lambda _: None)
    (tmp_path / "cardlink.db").unlink()

    database.act("other", lambda _: None)

    assert ["other"] == issuers(database)
    assert 0o600 == (tmp_path / "cardlink.db").stat().st_mode & 0o777


def test_a_file_of_sqlite_is_private_and_as_durable_as_it_can_be(tmp_path: Path) -> None:
    database = Database(tmp_path / "cardlink.db")

    def pragmas(connection: Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert ["wal", 2, 1, 60_000] == database.act("bank", pragmas)
    assert 0o600 == (tmp_path / "cardlink.db").stat().st_mode & 0o777


BEGIN = """
import sys
from flows.database.connection import Database

print(flush=True)
sys.stdin.readline()
Database(sys.argv[1]).act(sys.argv[2], lambda _: None)
"""


def test_processes_that_begin_at_once_make_the_tables_once(database_address: str) -> None:
    names = [f"bank-{number}" for number in range(4)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BEGIN, database_address, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout
        assert "\n" == process.stdout.readline()

    for process in processes:
        assert process.stdin
        print(file=process.stdin, flush=True)
    for process in processes:
        process.communicate()

    database = Database(database_address)
    assert [0] * 4 == [process.returncode for process in processes]
    assert names == issuers(database)
    database.close()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_fork_has_connections_of_its_own(database: Database) -> None:
    database.act("bank", lambda _: None)
    child = os.fork()
    if not child:
        try:
            database.act("child", lambda _: None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    database.act("other", lambda _: None)

    assert ["bank", "child", "other"] == issuers(database)


def test_a_file_that_is_in_use_keeps_its_lock_when_another_opens_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "cardlink.db")
    database.act("bank", lambda _: None)
    check = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    )

    with database.rehearsal("bank"):
        with Database(tmp_path / "cardlink.db").snapshot():
            pass
        command = [sys.executable, "-c", check, str(tmp_path / "cardlink.db")]
        other = subprocess.run(command, stderr=subprocess.PIPE, text=True)

    assert "database is locked" in other.stderr


def test_as_many_transactions_as_threads_ask_for_are_open_at_once(tmp_path: Path) -> None:
    database = Database(tmp_path / "cardlink.db")

    with ExitStack() as opened:
        connections = [opened.enter_context(database.snapshot()) for _ in range(20)]

        assert 20 == len({id(connection) for connection in connections})


def test_a_copy_that_fails_leaves_no_file(tmp_path: Path) -> None:
    database = Database(tmp_path / "cardlink.db")
    database.act("bank", lambda connection: None)
    database.close()
    (tmp_path / "cardlink.db").write_bytes(b"no database" * 999)

    with pytest.raises(errors.DatabaseDamagedError):
        database.backup(tmp_path / "copy.db")

    assert not (tmp_path / "copy.db").exists()
