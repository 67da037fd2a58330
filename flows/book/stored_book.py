"""The book as the database has it: rows of its tables, written and read.

Put here what a row is and how it is asked for; keep out how the tables are brought up to date
(`upkeep.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, true, update

from flows.book.attempts import ATTEMPT
from flows.book.departures import DEPARTED, WholeExtract
from flows.book.known_runs import LEDGER_ROWS, ClosedRun, End, KnownPlan, KnownRuns, read_plans
from flows.book.news import is_believed, journaled_since, news_since, read_mark
from flows.database.bulk import insert_frame, read_frame
from flows.runs.adapters import Adapters
from flows.runs.stored_runs import StoredRuns
from schemas import database

MOST_NAMED = 10_000  # cardholders that a query names; a database takes 32,766 values


class RunRow(NamedTuple):
    """A row of the table `run`."""

    run: str
    source_key: str | None = None
    source_version: str | None = None
    source_size: int | None = None
    source_sha256: str | None = None
    as_of: date | None = None
    is_whole: bool | None = None
    end: End | None = None
    committed_at: datetime | None = None
    turn: int | None = None
    content: int | None = None
    objects: str | None = None
    is_committed: bool = False
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
    def plan(self) -> KnownPlan | None:
        """Its plan; None where it has not ended as far as is known."""
        if not self.end:
            return None
        return KnownPlan(
            run=self.run,
            key=self.source_key or "",
            version=self.source_version or "",
            size=self.source_size or 0,
            sha256=self.source_sha256 or "",
            as_of=self.as_of or date.min,
            is_whole=bool(self.is_whole),
            end=self.end,
            committed_at=self.committed_at,
        )

    @property
    def extract(self) -> WholeExtract | None:
        """Its committed whole extract; None for a selection, and before the commit."""
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
    def is_unjudged(self) -> bool:
        """Whether it is committed, and nobody has looked whether something about it is open."""
        return self.end == "committed" and self.judged is None

    @property
    def closed(self) -> ClosedRun | None:
        """Its figures, where nothing about it is open."""
        return ClosedRun.model_validate(self.figures) if self.figures is not None else None

    def with_plan(self, plan: KnownPlan) -> "RunRow":
        """Return it with the plan of a run that has ended."""
        return self._replace(
            source_key=plan.key,
            source_version=plan.version,
            source_size=plan.size,
            source_sha256=plan.sha256,
            as_of=plan.as_of,
            is_whole=plan.is_whole,
            end=plan.end or None,
            committed_at=plan.committed_at,
        )

    def with_extract(self, extract: WholeExtract | None) -> "RunRow":
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
    def without_attempts(self) -> "RunRow":
        """It without its attempts, which are gone: its ledger was purged, or it was abandoned."""
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


def read_runs(connection: Connection, issuer: str) -> dict[str, RunRow]:
    """Return what is known of each run, by run."""
    columns = [database.RUN.c[name] for name in RunRow._fields]
    rows = connection.execute(select(*columns).where(database.RUN.c.issuer == issuer))
    return {row.run: RunRow(*row) for row in rows}


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
    """Return what is known of an issuer's runs, also where the book cannot be read.

    The plans of the runs that have not ended are read, and so are those that the database lacks.
    """
    store = runs.store
    with adapters.database.snapshot() as connection:
        mark = read_mark(connection, runs.issuer)
        rows = read_runs(connection, runs.issuer)
        journaled = journaled_since(connection, runs.issuer, mark)
    if not is_believed(mark, store, runs.issuer):
        return known_runs_of(adapters, runs, {})
    pending = [run for run, row in rows.items() if row.turn is not None and not row.is_committed]
    news = news_since(store, runs.issuer, mark, pending, journaled)
    current = {run: as_judged(row, runs, news.runs) for run, row in rows.items()}
    return known_runs_of(adapters, runs, current)


def as_judged(row: RunRow, runs: StoredRuns, changed: Collection[str]) -> RunRow:
    """Return a row without its figures where its run may be another than when it was judged."""
    form = "purged" if row.run in runs.without_ledger else "whole"
    if row.judged == form and row.run not in changed:
        return row
    return row._replace(judged=None, figures=None)


def known_runs_of(adapters: Adapters, runs: StoredRuns, rows: Mapping[str, RunRow]) -> KnownRuns:
    """Return what is known of an issuer's runs, of which these rows are stored."""
    plans = {run: row.plan for run, row in rows.items()}
    ended = {run: plan for run, plan in plans.items() if plan is not None}
    closed = {run: row.closed for run, row in rows.items()}
    return KnownRuns(
        read_plans(runs, ended),
        {run: figures for run, figures in closed.items() if figures is not None},
        lambda cuid: _runs_with(adapters, runs.issuer, cuid),
        lambda: _links(adapters, runs.issuer),
    )


def known_plans(adapters: Adapters, runs: StoredRuns) -> list[KnownPlan]:
    """Return what is known of the plan of each run that has one, by business date."""
    return list(known_runs(adapters, runs).plans.values())


def closed_runs(adapters: Adapters, runs: StoredRuns) -> Collection[str]:
    """Return the ids of the runs about which nothing is open, as far as that is known."""
    return known_runs(adapters, runs).closed.keys()


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
