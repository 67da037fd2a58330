"""The book as the database has it: rows of its tables, written and read.

Put here what a row is and how it is asked for; keep out how the tables are brought up to date
(`upkeep.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, true, update

from flows.book.attempts import ATTEMPT
from flows.book.departures import DEPARTED, WholeExtract
from flows.book.known_runs import LEDGER_ROWS, ClosedRun, KnownPlan, KnownRuns, read_plans
from flows.book.news import news_since, read_mark
from flows.database.bulk import insert_frame, read_frame
from flows.runs.adapters import Adapters
from flows.runs.stored_runs import StoredRuns
from schemas import database

MOST_NAMED = 10_000  # cardholders that a query names; a database takes 32,766 values


class ReadRun(NamedTuple):
    """A row of the table `read_run`."""

    run: str
    turn: int | None = None
    content: int | None = None
    objects: str | None = None
    has_twins: bool = False
    is_renewal: bool = False
    extract_day: date | None = None
    is_full: bool = False
    closes: bool = False
    excludes: bool = False
    has_departures: bool = False
    judged: str | None = None
    figures: Mapping[str, Any] | None = None

    @property
    def extract(self) -> WholeExtract | None:
        """Its whole extract; None for a selection."""
        if self.extract_day is None or self.turn is None:
            return None
        return WholeExtract(
            day=self.extract_day,
            turn=self.turn,
            full=self.is_full,
            closes=self.closes,
            excludes=self.excludes,
        )

    @property
    def closed(self) -> ClosedRun | None:
        """Its figures, where nothing about it is open."""
        return ClosedRun.model_validate(self.figures) if self.figures is not None else None

    def with_extract(self, extract: WholeExtract | None) -> "ReadRun":
        """Return it with the extract that it is of."""
        if extract is None:
            return self._replace(extract_day=None)
        return self._replace(
            extract_day=extract.day,
            is_full=extract.full,
            closes=extract.closes,
            excludes=extract.excludes,
        )

    @property
    def without_attempts(self) -> "ReadRun":
        """It without its attempts, which went with its ledger."""
        return self._replace(turn=None, content=None, objects=None, extract_day=None)


# What is written
# --------------------------------------------------------------------------------------------------


def replace_row(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Write a row, over the columns that it has of an earlier one with its key."""
    key = [column == row[column.name] for column in table.primary_key]
    changed = connection.execute(update(table).where(*key).values(row))
    if not changed.rowcount:
        connection.execute(insert(table).values(row))


def delete_rows(connection: Connection, table: Table, issuer: str, **key: object) -> None:
    """Delete the rows of an issuer that have these values."""
    is_of_key = [table.c[name] == value for name, value in key.items()]
    connection.execute(delete(table).where(table.c.issuer == issuer, *is_of_key))


def insert_rows(connection: Connection, table: Table, issuer: str, rows: pl.DataFrame) -> None:
    """Insert rows of an issuer."""
    insert_frame(connection, table, rows.with_columns(issuer=pl.lit(issuer)))


def forget_rows(connection: Connection, issuer: str) -> None:
    """Delete everything that is derived of an issuer."""
    for table in database.DERIVED:
        delete_rows(connection, table, issuer)


# What is read
# --------------------------------------------------------------------------------------------------


def read_runs(connection: Connection, issuer: str) -> dict[str, ReadRun]:
    """Return what was read of each committed run, by run."""
    columns = [database.READ_RUN.c[name] for name in ReadRun._fields]
    rows = connection.execute(select(*columns).where(database.READ_RUN.c.issuer == issuer))
    return {row.run: ReadRun(*row) for row in rows}


def of_turn(turn: int) -> ColumnElement[bool]:
    """Return which attempts are those of one run."""
    return database.ATTEMPT.c.turn == turn


def of_cuid(issuer: str, cuid: str) -> ColumnElement[bool]:
    """Return which attempts are of the cardholders who were ever named by a cuid."""
    named = database.ATTEMPT.alias("named")
    holders = select(named.c.holder).where(named.c.issuer == issuer, named.c.cuid == cuid)
    return database.ATTEMPT.c.holder.in_(holders)


def of_holders(holders: pl.Series) -> ColumnElement[bool]:
    """Return which attempts are of these cardholders; all, where so many are asked for that reading
    all costs no more.
    """
    names = holders.unique().to_list()
    return database.ATTEMPT.c.holder.in_(names) if len(names) <= MOST_NAMED else true()


def read_attempts(
    connection: Connection,
    issuer: str,
    columns: Sequence[str],
    which: ColumnElement[bool] | None = None,
) -> pl.DataFrame:
    """Return these columns of all attempts, or of `which`, in the order of the commits."""
    table = database.ATTEMPT
    query = select(*(table.c[name] for name in columns)).where(table.c.issuer == issuer)
    if which is not None:
        query = query.where(which)
    schema = pl.Schema({name: ATTEMPT[name] for name in columns})
    return read_frame(connection, query.order_by(table.c.turn, table.c.place), schema)


def read_departed(connection: Connection, issuer: str) -> pl.DataFrame:
    """Return the cards that have left or are left out (DEPARTED)."""
    table = database.DEPARTURE
    query = select(*(table.c[name] for name in DEPARTED)).where(table.c.issuer == issuer)
    return read_frame(connection, query.order_by(table.c.holder, table.c.last_4), DEPARTED)


def known_runs(adapters: Adapters, runs: StoredRuns) -> KnownRuns:
    """Return what is known of an issuer's runs, also where the book cannot be read."""
    with adapters.database.snapshot() as connection:
        mark = read_mark(connection, runs.issuer)
        rows = read_runs(connection, runs.issuer)
        news = news_since(connection, runs.store, runs.issuer, mark)
    if not mark.is_believed:
        return known_runs_of(adapters, runs, {})
    current = {run: as_judged(row, runs, news.runs) for run, row in rows.items()}
    return known_runs_of(adapters, runs, current)


def as_judged(row: ReadRun, runs: StoredRuns, changed: Collection[str]) -> ReadRun:
    """Return a row without its figures where its run may be another than when it was judged."""
    form = "purged" if row.run in runs.without_ledger else "whole"
    if row.judged == form and row.run not in changed:
        return row
    return row._replace(judged=None, figures=None)


def known_runs_of(adapters: Adapters, runs: StoredRuns, rows: Mapping[str, ReadRun]) -> KnownRuns:
    """Return what is known of an issuer's runs, of which these rows are stored."""
    with adapters.database.snapshot() as connection:
        plans = read_plans(connection, runs.issuer)
    closed = {run: row.closed for run, row in rows.items()}
    return KnownRuns(
        plans,
        {run: figures for run, figures in closed.items() if figures is not None},
        lambda cuid: _runs_with(adapters, runs.issuer, cuid),
        lambda: _links(adapters, runs.issuer),
    )


def known_plans(adapters: Adapters, runs: StoredRuns) -> list[KnownPlan]:
    """Return what is known of each run that was planned, by business date."""
    with adapters.database.snapshot() as connection:
        return list(read_plans(connection, runs.issuer).values())


def closed_runs(adapters: Adapters, runs: StoredRuns) -> set[str]:
    """Return the ids of the runs about which nothing is open, as far as that is known."""
    with adapters.database.snapshot() as connection:
        mark = read_mark(connection, runs.issuer)
        if not mark.is_believed:
            return set()
        row = database.READ_RUN.c
        query = select(row.run).where(row.issuer == runs.issuer, row.figures.is_not(None))
        closed = set(connection.scalars(query))
        return closed - news_since(connection, runs.store, runs.issuer, mark).runs


def open_runs(adapters: Adapters, runs: StoredRuns) -> list[str]:
    """Return the ids of the committed runs about which something may be open, by their turn."""
    table = database.RUN.c
    committed = (table.issuer == runs.issuer) & table.turn.is_not(None)
    query = select(table.run).where(committed).order_by(table.turn)
    closed = closed_runs(adapters, runs)
    with adapters.database.snapshot() as connection:
        return [run for run in connection.scalars(query) if run not in closed]


def _runs_with(adapters: Adapters, issuer: str, cuid: str) -> set[str]:
    """Return the closed runs that have a row with a cuid, of those whose rows are kept."""
    table = database.LEDGER_ROW
    query = select(table.c.run).distinct().where(table.c.issuer == issuer, table.c.cuid == cuid)
    with adapters.database.snapshot() as connection:
        return set(connection.execute(query).scalars())


def _links(adapters: Adapters, issuer: str) -> pl.DataFrame:
    """Return the links of the closed runs whose rows are kept (LEDGER_ROWS)."""
    table = database.LEDGER_ROW
    query = select(*(table.c[name] for name in LEDGER_ROWS)).where(
        table.c.issuer == issuer, table.c.link.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        return read_frame(connection, query.order_by(table.c.run, table.c.row), LEDGER_ROWS)
