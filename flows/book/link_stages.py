"""How far links came, in the database: deliveries, placements of each run, transaction reports.

Deliveries are rows already; the others are brought up to date as the book is (`upkeep.py`). Of
placements only the runs that were checked since are read again: each check marks its run before it
begins and when it has ended (`flows/runs/placements.py`). Of a check that has not ended the next
reader reads again.
"""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl
from sqlalchemy import Connection, Table, select, update

from flows.book.news import read_mark
from flows.book.stages import (
    DELIVERED_LINK,
    FOLLOWED,
    REPORTED_END,
    Stages,
    followed_links,
    reported_ends,
)
from flows.book.stored_book import delete_rows, insert_rows, of_turn, read_attempts
from flows.book.upkeep import BookOfRuns, tables
from flows.database.bulk import read_frame
from flows.extensions import hooks
from flows.runs.adapters import Adapters
from flows.runs.cards import ISSUE
from flows.runs.identity import digest
from flows.runs.keys import placements
from flows.runs.placements import check_marks, is_checked, read_placements
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.runs.transactions import reported
from schemas import database

_PLACED = [
    *("row", "opened", "opened_seen", "authenticated"),
    *("running", "termination_type", "settled", "seen", "moved"),
]


class _Update(NamedTuple):
    """What is to be written: `version` is that of the watermark it was worked out from.

    `checked`: the mark of the last check of each run whose `followed` links were read; "" where it
    has not ended. `reported`: a digest of the reports, and what they say; None where they are the
    same.
    """

    version: int
    checked: Mapping[str, str]
    followed: pl.DataFrame
    reported: tuple[str, pl.DataFrame] | None


class StagesOfLinks:
    """What is known of an issuer's links beyond that they came; a Projection (`upkeep.py`)."""

    def __init__(self, runs: StoredRuns) -> None:
        self._runs = runs
        self._store = runs.store
        self._issuer = runs.issuer

    def work_out(self, connection: Connection) -> _Update | None:
        """Return what is to be written, None where nothing came since."""
        mark = read_mark(connection, self._issuer)
        checked, followed = self._followed(self._runs.within(connection), connection)
        reports = self._reports()
        reported_now = None
        if reports != mark.reported:
            rows = reported(self._store, self._issuer, pl.lit(value=True))
            reported_now = reports, reported_ends(rows)
        if not checked and reported_now is None:
            return None
        return _Update(mark.version, checked, followed, reported_now)

    def write(self, connection: Connection, update: _Update) -> bool:
        """Write it; False where somebody else has written since it was worked out."""
        if read_mark(connection, self._issuer).version != update.version:
            return False
        for run, mark in update.checked.items():
            delete_rows(connection, database.PLACEMENT, self._issuer, run=run)
            self._set_check(connection, run, mark)
        insert_rows(connection, database.PLACEMENT, self._issuer, update.followed)
        values: dict[str, object] = {"version": update.version + 1}
        if update.reported is not None:
            values["reported"], ends = update.reported
            delete_rows(connection, database.REPORTED_END, self._issuer)
            insert_rows(
                connection, database.REPORTED_END, self._issuer, ends.with_row_index("place")
            )
        self._set_mark(connection, values)
        return True

    def _followed(
        self, runs: StoredRuns, connection: Connection
    ) -> tuple[dict[str, str], pl.DataFrame]:
        """Return the runs whose links were checked since, and what the service says of them."""
        table = database.READ_RUN
        query = select(table.c.run, table.c.turn, table.c.check_mark).where(
            table.c.issuer == self._issuer, table.c.turn.is_not(None)
        )
        marks = check_marks(self._store, self._issuer)
        turns = {
            run: turn
            for run, turn, mark in connection.execute(query)
            if marks.get(run, mark) != mark
        }
        changed = sorted(turns)
        attempts = [self._attempts(connection, turns[run]) for run in changed]
        frames = concurrently(
            lambda pair: self._links(runs, *pair), list(zip(changed, attempts, strict=True))
        )
        checked = {
            run: marks[run] if is_checked(self._store, self._issuer, run) else "" for run in changed
        }
        return checked, pl.concat([pl.DataFrame(schema=FOLLOWED), *frames])

    def _attempts(self, connection: Connection, turn: int) -> pl.DataFrame:
        return read_attempts(connection, self._issuer, ("run", "row", *ISSUE), of_turn(turn))

    def _links(self, runs: StoredRuns, run_id: str, attempts: pl.DataFrame) -> pl.DataFrame:
        run = StoredRun.by_id(runs.adapters, run_id)
        known = [read_placements(run, part, _PLACED) for part in run.committed().ledger]
        return followed_links(pl.concat(known), attempts)

    def _reports(self) -> str:
        """Return a digest of the transaction reports that are stored; "" where there are none."""
        prefix = f"{placements(self._issuer)}reports/"
        listed = [f"{entry.key} {entry.size} {entry.version}" for entry in self._store.keys(prefix)]
        return digest("\n".join(listed).encode()) if listed else ""

    def _set_check(self, connection: Connection, run: str, mark: str) -> None:
        table = database.READ_RUN
        is_run = (table.c.issuer == self._issuer) & (table.c.run == run)
        connection.execute(update(table).where(is_run).values(check_mark=mark))

    def _set_mark(self, connection: Connection, values: Mapping[str, object]) -> None:
        table = database.WATERMARK
        connection.execute(update(table).where(table.c.issuer == self._issuer).values(**values))


def read_stages(connection: Connection, issuer: str) -> Stages:
    """Return what is stored of links beyond that they came."""
    delivered = [links(connection, issuer) for links in hooks("delivered_links")]
    return Stages(
        delivered=pl.concat([pl.DataFrame(schema=DELIVERED_LINK), *delivered]),
        followed=_read(connection, database.PLACEMENT, issuer, FOLLOWED),
        reported=_read(connection, database.REPORTED_END, issuer, REPORTED_END),
    )


def _read(connection: Connection, table: Table, issuer: str, schema: pl.Schema) -> pl.DataFrame:
    columns = [table.c[name] for name in schema]
    query = select(*columns).where(table.c.issuer == issuer)
    return read_frame(connection, query.order_by(*table.primary_key), schema)


def stages_of(adapters: Adapters, runs: StoredRuns) -> Stages:
    """Return what is known of an issuer's links beyond that they came."""
    projections = BookOfRuns(runs), StagesOfLinks(runs)
    with tables(adapters, runs.issuer, *projections) as connection:
        return read_stages(connection, runs.issuer)
