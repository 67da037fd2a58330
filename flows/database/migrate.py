"""Bring the tables of a database to the newest revision that this cardlink knows, and its views."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select, text

from flows.database.errors import DatabaseRevisionError
from schemas.views import VIEWS

FOLDER: Final = Path(__file__).parent / "migrations"
VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String(32)))
LOCK: Final = 0x63617264  # PostgreSQL's number of the lock that migrations take; any, and the same


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions that this cardlink knows, the newest last."""
    return tuple(sorted(file.name[:4] for file in FOLDER.glob("versions/[0-9]*.py")))


def newest() -> str:
    """Return the newest revision that this cardlink knows."""
    return revisions()[-1]


def stored_revision(connection: Connection) -> str:
    """Return the revision of a database, "" of an empty one."""
    if not inspect(connection).has_table(VERSION.name):
        return ""
    return connection.scalar(select(VERSION.c.version_num)) or ""


def migrate(connection: Connection, place: str) -> None:
    """Run the migrations that a database lacks, in the transaction of a connection, alone.

    Raises DatabaseRevisionError for a revision that this cardlink does not know.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
    revision = stored_revision(connection)
    if revision and revision not in revisions():
        raise DatabaseRevisionError(place=place, revision=revision, newest=newest())
    if revision != newest():
        _run_migrations(connection)


def _run_migrations(connection: Connection) -> None:
    # they take a third of a second to import, which most commands do not need
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(FOLDER))

    def missing(revision: Any, _: MigrationContext) -> Iterable[Any]:
        return scripts._upgrade_revs("head", revision)  # as Alembic's cookbook does

    context = MigrationContext.configure(connection, opts={"fn": missing})
    _drop_views(connection)  # PostgreSQL changes no column that a view has
    with Operations.context(context):
        context.run_migrations()
    _make_views(connection)


def _drop_views(connection: Connection) -> None:
    for view in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {view.name}")


def _make_views(connection: Connection) -> None:
    for view in VIEWS:
        for statement in view.statements(connection.dialect.name):
            connection.execute(text(statement))
