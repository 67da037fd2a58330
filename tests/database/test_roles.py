"""The workers' role of a PostgreSQL does everything but change the journal, and that of analysts
reads views.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from flows.database.connection import Database
from flows.operations.audit import verify
from flows.runs.journal import Act, enter, entries
from schemas.database import METADATA
from schemas.views import VIEWS
from tests.memory import MemoryStore
from tests.night import BANK, edges
from tests.servers import PostgresqlServer

DEPLOY = Path(__file__).parents[2] / "deploy"
RIGHTS = {"workers": "postgresql.sql", "analysts": "postgresql-analysts.sql"}


@pytest.fixture(params=["workers"])
def addresses(
    request: pytest.FixtureRequest, postgresql_server: PostgresqlServer
) -> Iterator[tuple[str, str]]:
    """The address of a database for its owner, and for the workers, or the analysts."""
    role = f"{request.param}_{uuid4().hex}"
    rights = (DEPLOY / RIGHTS[request.param]).read_text()
    with postgresql_server.database() as address:
        edges(MemoryStore(), Database(address)).store.create(
            f"{BANK}/deliveries/000001/links.csv", b"{}"
        )
        with psycopg.connect(address, autocommit=True) as owner:
            owner.execute(f"CREATE ROLE {role} LOGIN")
            owner.execute(rights.replace(f':"{request.param}"', role).encode())
        yield address, f"{address}&user={role}"
        with psycopg.connect(address, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


def test_workers_make_entries_and_cannot_change_or_remove_them(addresses: tuple[str, str]) -> None:
    _, workers = addresses
    adapters = edges(MemoryStore(), Database(workers))

    def note(act: Act) -> None:
        act.facts["number"] = 1

    enter(adapters, BANK, "noted", note)

    assert [1, 2, 3] == [entry.number for entry in entries(adapters, BANK)]
    assert 3 == verify(adapters, BANK).entries
    changes = ("UPDATE journal SET reason = ''", "DELETE FROM journal", "TRUNCATE journal")
    with psycopg.connect(workers, autocommit=True) as connection:
        for change in changes:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(change)


@pytest.mark.parametrize("addresses", ["analysts"], indirect=True)
def test_analysts_read_each_view_and_no_table(addresses: tuple[str, str]) -> None:
    with psycopg.connect(addresses[1], autocommit=True) as connection:
        for view in VIEWS:
            assert [] == connection.execute(f"SELECT * FROM {view.name}").fetchall()
        for table in METADATA.tables:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f'SELECT * FROM "{table}"')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (x integer)")
