"""The tables of a database are those of `schemas/database.py`, or it is not used."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from flows.database.connection import Database
from flows.database.errors import DatabaseRevisionError
from flows.database.migrate import newest, stored_revision
from schemas.database import METADATA


def set_revision(database: Database, revision: str) -> None:
    statement = text("UPDATE alembic_version SET version_num = :revision")
    database.act("bank", lambda connection: connection.execute(statement, {"revision": revision}))


def test_the_migrations_make_the_tables_of_the_metadata(database: Database) -> None:
    with database.snapshot() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, METADATA)

    assert [] == differences


def test_an_empty_database_is_brought_to_the_newest_revision(database: Database) -> None:
    with database.snapshot() as connection:
        revision = stored_revision(connection)

    assert newest() == revision


def test_a_database_of_a_newer_cardlink_is_refused(
    database: Database, database_address: str
) -> None:
    set_revision(database, "9999")
    reopened = Database(database_address)

    with pytest.raises(DatabaseRevisionError) as in_use:
        database.act("bank", lambda _: None)
    with pytest.raises(DatabaseRevisionError) as at_first_use, reopened.snapshot():
        pass

    assert str(at_first_use.value) == str(in_use.value)
    assert "revision 9999" in str(in_use.value)
    reopened.close()
