"""The book in the database, brought up to date with what the store has.

It is derived: who reads it first adds what came since, and what is deleted of it is worked out
anew. Nothing else is decided by it.

**What may have changed** since it was written: the runs that were committed since, and those that
the journal names since, as it does before and after anything of a run is changed. Of each of these
the objects are listed, and where they are others than those that its attempts were read from, they
are read again.

**Who writes**: the store is read first, then what is new is written in one transaction, unless
somebody else has written meanwhile; then it is worked out again. In a dry run the transaction is
rolled back once it was read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import polars as pl
from sqlalchemy import Connection, func, select

from flows.book.attempts import ATTEMPT, UNKNOWN_CONTENT, attempts_of, in_order, is_set_aside
from flows.book.departures import (
    FOLLOWED,
    WholeExtract,
    departures,
    later_namings,
    namings,
    order,
    whole_extract,
)
from flows.book.known_runs import closed_among, ledger_rows
from flows.book.news import Mark, News, news_since, read_mark
from flows.book.opening import opening_balance
from flows.book.stored_book import (
    ReadRun,
    as_judged,
    delete_rows,
    forget_rows,
    insert_rows,
    of_turn,
    read_attempts,
    read_departed,
    read_runs,
    replace_row,
)
from flows.runs.adapters import Adapters
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.overlay import Overlay
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas import database
from schemas.manifest import Manifest

TOGETHER = 16  # runs whose figures are judged together


class Update(NamedTuple):
    """What is to be written: `version` is that of the mark it was worked out from.

    `is_anew`: everything that is stored of the issuer goes. `attempts`: by turn.
    `without_attempts`: runs that have none any more, with their turns. `rows_of`: by run
    (LEDGER_ROWS).
    """

    version: int
    is_anew: bool
    mark: Mark
    runs: Mapping[str, ReadRun]
    attempts: Mapping[int, pl.DataFrame]
    without_attempts: frozenset[tuple[str, int]]
    departed: pl.DataFrame | None
    rows_of: Mapping[str, pl.DataFrame]


class Projection(Protocol):
    """What of the database follows from the store."""

    def work_out(self, connection: Connection) -> Any:
        """Return what is to be written, None where nothing came since."""

    def write(self, connection: Connection, update: Any) -> bool:
        """Write it; False where somebody else has written since it was worked out."""


@contextmanager
def tables(adapters: Adapters, issuer: str, *projections: Projection) -> Iterator[Connection]:
    """Yield a view of the database in which these are as everything that is recorded says."""
    where = adapters.database
    if isinstance(adapters.store, Overlay):
        with where.rehearsal(issuer) as connection:
            for projection in projections:
                news = projection.work_out(connection)
                if news is not None:
                    projection.write(connection, news)
            yield connection
        return
    for projection in projections:
        _bring_up_to_date(adapters, issuer, projection)
    with where.snapshot() as connection:
        yield connection


def _bring_up_to_date(adapters: Adapters, issuer: str, projection: Projection) -> None:
    is_written = False
    while not is_written:
        with adapters.database.snapshot() as connection:
            news = projection.work_out(connection)
        if news is None:
            return

        def write(connection: Connection, news: Any = news) -> bool:
            return projection.write(connection, news)

        is_written = adapters.database.act(issuer, write)


class BookOfRuns:
    """The attempts of an issuer's runs, who left, and the figures of closed runs; a Projection."""

    def __init__(self, runs: StoredRuns) -> None:
        self._runs = runs

    def work_out(self, connection: Connection) -> Update | None:
        """Return what is to be written, None where nothing came since."""
        runs = self._runs.within(connection)
        before = read_mark(connection, runs.issuer)
        mark = before if before.is_believed else Mark()
        news = news_since(connection, runs.store, runs.issuer, mark)
        if before.is_believed and not news.is_any_after(mark):
            return None
        return _News(runs, connection, before, news).update()

    def write(self, connection: Connection, update: Update) -> bool:
        """Write it; False where somebody else has written since it was worked out."""
        issuer = self._runs.issuer
        if read_mark(connection, issuer).version != update.version:
            return False
        if update.is_anew:
            forget_rows(connection, issuer)
        replace_row(connection, database.WATERMARK, update.mark.row(issuer))
        for row in update.runs.values():
            replace_row(connection, database.READ_RUN, {"issuer": issuer, **row._asdict()})
        for run, turn in update.without_attempts:
            delete_rows(connection, database.ATTEMPT, issuer, turn=turn)
            delete_rows(connection, database.LEDGER_ROW, issuer, run=run)
        for turn, attempts in update.attempts.items():
            delete_rows(connection, database.ATTEMPT, issuer, turn=turn)
            insert_rows(connection, database.ATTEMPT, issuer, attempts.with_row_index("place"))
        for run, row in update.runs.items():
            if row.judged is None:  # somebody may have been erased since
                delete_rows(connection, database.LEDGER_ROW, issuer, run=run)
        for run, rows in update.rows_of.items():
            delete_rows(connection, database.LEDGER_ROW, issuer, run=run)
            insert_rows(connection, database.LEDGER_ROW, issuer, rows)
        if update.departed is not None:
            delete_rows(connection, database.DEPARTURE, issuer)
            insert_rows(connection, database.DEPARTURE, issuer, update.departed)
        return True


def forget_book(adapters: Adapters, issuer: str) -> None:
    """Remove everything that is derived of an issuer: the next reader works it out anew.

    The mark stays, with a later version and of no code, so that whoever read the store before
    writes nothing of it.
    """

    def forget(connection: Connection) -> None:
        version = read_mark(connection, issuer).version
        forget_rows(connection, issuer)
        mark = Mark(version=version + 1, code="")
        replace_row(connection, database.WATERMARK, mark.row(issuer))

    adapters.database.act(issuer, forget)


class _News:
    """What came to an issuer's runs since the database was written, read from the store."""

    def __init__(self, runs: StoredRuns, connection: Connection, before: Mark, news: News) -> None:
        self._news = news
        self._stored = runs
        self._store: Store = runs.store
        self._issuer = runs.issuer
        self._connection = connection
        self._before = before
        self._is_anew = not before.is_believed
        self._mark = Mark() if self._is_anew else before
        self._known = {} if self._is_anew else read_runs(connection, runs.issuer)
        self._rows = dict(self._known)
        self._attempts: dict[int, pl.DataFrame] = {}
        self._without_attempts: set[tuple[str, int]] = set()
        self._purged = runs.without_ledger

    def update(self) -> Update:
        """Return what is to be written."""
        for run in self._purged.intersection(self._pages):
            self._lose_attempts(run)
        self._read_attempts(self._news)
        departed = self._departed()
        rows_of = self._judge(self._news)
        return Update(
            self._before.version,
            self._is_anew,
            self._new_mark(self._news)._replace(version=self._before.version + 1),
            self._changed,
            self._attempts,
            frozenset(self._without_attempts),
            departed,
            rows_of,
        )

    @property
    def _changed(self) -> dict[str, ReadRun]:
        """The rows of runs that are others than those that are stored."""
        return {run: row for run, row in self._rows.items() if self._known.get(run) != row}

    @property
    def _pages(self) -> dict[str, ReadRun]:
        """The runs whose attempts count."""
        return {run: row for run, row in self._rows.items() if row.turn is not None}

    def _new_mark(self, news: News) -> Mark:
        manifests = [commit.manifest for commit in news.committed]
        days = [manifest.as_of for manifest in manifests if manifest.selection is None]
        turns = [commit.turn for commit in news.committed]
        return self._mark._replace(
            turn=max(turns, default=self._mark.turn),
            newest=max(days, default=self._mark.newest),
            journal=news.journal,
            removed=opening_balance(self._stored.adapters, self._issuer, self._mark.removed),
        )

    def _lose_attempts(self, run: str) -> None:
        row = self._rows[run]
        if row.turn is not None:
            self._without_attempts.add((run, row.turn))
        self._rows[run] = row.without_attempts

    # Attempts

    def _read_attempts(self, news: News) -> None:
        """Read the attempts of the runs whose objects are others than those they were read from."""
        pages = self._pages
        turns = {run: row.turn for run, row in pages.items() if row.turn is not None}
        turns |= {commit.manifest.run: commit.turn for commit in news.committed}
        for run in turns.keys() & self._purged:
            self._rows.setdefault(run, ReadRun(run))
        candidates = news.runs | (turns.keys() - pages.keys())
        looked_at = sorted(candidates & (turns.keys() - self._purged))
        entered = self._last_entries(looked_at)
        listed = {
            run: f"{objects} {entered.get(run, 0)}"
            for run, objects in zip(looked_at, concurrently(self._objects, looked_at), strict=True)
        }
        stale = [run for run in looked_at if not self._fits(run, listed[run])]
        for run in sorted(stale, key=lambda run: turns[run]):
            self._read_run(run, turns[run], listed[run])
        self._leave_out_known()

    def _leave_out_known(self) -> None:
        """Leave the rows out that were set aside and say nothing new: their cardholder is known."""
        if not any(frame.select(is_set_aside().any()).item() for frame in self._attempts.values()):
            return
        named = self._all_attempts(("turn", "holder")).drop_nulls("holder")
        first = named.group_by("holder").agg(first=pl.col("turn").min())
        for turn, frame in self._attempts.items():
            others = frame.filter(~is_set_aside())
            new = first.filter(first=turn)["holder"]
            new = new.filter(~new.is_in(others["holder"].implode()))
            is_new = pl.col("holder").is_in(new.implode()).fill_null(value=False)
            self._attempts[turn] = frame.filter(~is_set_aside() | is_new)

    def _last_entries(self, runs: Collection[str]) -> dict[str, int]:
        """Return the number of the last journal entry about each of these runs that has one."""
        entry = database.JOURNAL.c
        query = select(entry.run, func.max(entry.number)).where(entry.issuer == self._issuer)
        of_them = query.where(entry.run.in_(list(runs))).group_by(entry.run)
        return {row[0]: row[1] for row in self._connection.execute(of_them)}

    def _fits(self, run: str, objects: str) -> bool:
        """Return whether the attempts of a run were read from these objects."""
        row = self._rows.get(run)
        return row is not None and row.turn is not None and row.objects == objects

    def _objects(self, run: str) -> str:
        """Return a digest of the stored objects that the attempts of a run are read from."""
        rows = self._store.keys(keys_of(run).report("rows/"))
        listed = [f"{entry.key} {entry.size} {entry.version}" for entry in rows]
        return digest("\n".join(listed).encode())

    def _read_run(self, run: str, turn: int, objects: str) -> None:
        """Read the attempts of a run from its ledger and what came of its rows."""
        stored = self._stored_run(run)
        manifest = stored.committed()
        content = self._content(manifest, turn)
        attempts = self._as_repeated(attempts_of(stored, turn, content), manifest)
        row = self._rows.get(run, ReadRun(run))._replace(
            turn=turn,
            content=content,
            objects=objects,
            has_twins=bool((attempts["twin"] > 0).any()),
            is_renewal=bool(attempts["renewal"].any()),
        )
        self._attempts[turn] = attempts
        self._rows[run] = row.with_extract(whole_extract(stored, turn))

    def _content(self, manifest: Manifest, turn: int) -> int:
        """Return the number of the commit of the extract that a run's rows are of."""
        if manifest.selection is None:
            return turn
        repeated = self._pages.get(manifest.selection.of)
        if repeated is None or repeated.content is None:
            return UNKNOWN_CONTENT
        return repeated.content

    def _as_repeated(self, attempts: pl.DataFrame, manifest: Manifest) -> pl.DataFrame:
        """Give the attempts of a selection what they share with those that they repeat.

        That is the numbers of cards that look the same, and whether they replace living links.
        """
        if manifest.selection is None:
            return attempts
        repeated = self._pages.get(manifest.selection.of)
        if repeated is None:
            return attempts
        if repeated.has_twins and repeated.turn is not None:
            attempts = with_twins_of(attempts, self._attempts_of(repeated.turn))
        if repeated.is_renewal:
            attempts = attempts.with_columns(renewal=pl.lit(value=True))
        return attempts

    def _attempts_of(self, turn: int) -> pl.DataFrame:
        """Return the attempts of a run: as they were just read, or as they are stored."""
        if turn in self._attempts:
            return self._attempts[turn]
        return read_attempts(self._connection, self._issuer, ATTEMPT.names(), of_turn(turn))

    # Departures

    def _departed(self) -> pl.DataFrame | None:
        """Return who has left, where an extract came or went; None where that is as it was."""
        extracts = {run: row.extract for run, row in self._rows.items() if row.extract is not None}
        later = {run: each for run, each in extracts.items() if not self._rows[run].has_departures}
        had_left = any(row.has_departures for row in self._known.values())
        can_leave = any(extract.decides for extract in extracts.values())
        if not (later if had_left else can_leave):
            return None
        departed = self._departed_by(extracts, later)
        for run in extracts:
            self._rows[run] = self._rows[run]._replace(has_departures=True)
        return departed

    def _departed_by(
        self, extracts: Mapping[str, WholeExtract], later: Mapping[str, WholeExtract]
    ) -> pl.DataFrame:
        """Return the cards that have left: as it is stored, by what came later; else by all.

        What was decided by extracts that retention has removed since stays as it was.
        """
        attempts = self._all_attempts(FOLLOWED)
        before = [order(extract) for run, extract in extracts.items() if run not in later]
        last = max(before, default=None)
        if last is None or any(order(extract) <= last for extract in later.values()):
            return departures(attempts, namings(self._stored.adapters, extracts))
        stored = read_departed(self._connection, self._issuer)
        return departures(attempts, later_namings(self._stored.adapters, later), stored)

    def _all_attempts(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return all attempts as they will be written, in order."""
        gone = self._attempts.keys() | {turn for _, turn in self._without_attempts}
        frames = [frame.select(columns) for frame in self._attempts.values()]
        if not self._is_anew:
            stored = read_attempts(self._connection, self._issuer, columns)
            frames.insert(0, stored.filter(~pl.col("turn").is_in(list(gone))))
        return in_order(frames)

    # Figures

    def _judge(self, news: News) -> dict[str, pl.DataFrame]:
        """Note the figures of the runs that were closed since; return the rows of small ones."""
        for run, row in self._rows.items():
            self._rows[run] = as_judged(row, self._stored, news.runs)
        to_judge = [run for run, row in self._rows.items() if row.judged is None]
        if len(to_judge) < TOGETHER or isinstance(self._store, Overlay):
            return {}
        return self._with_figures(to_judge)

    def _with_figures(self, to_judge: Sequence[str]) -> dict[str, pl.DataFrame]:
        """Note the figures of those that are closed; return the rows of small ones."""
        closed = closed_among(self._stored, to_judge)
        for run in to_judge:
            figures = closed[run].model_dump(mode="json") if run in closed else None
            self._rows[run] = self._rows[run]._replace(judged=self._form(run), figures=figures)
        with_rows = [run for run, figures in closed.items() if figures.has_rows]
        rows = concurrently(lambda run: ledger_rows(self._stored_run(run)), with_rows)
        return dict(zip(with_rows, rows, strict=True))

    def _stored_run(self, run: str) -> StoredRun:
        return StoredRun.by_id(self._stored.adapters, run)

    def _form(self, run: str) -> str:
        return "purged" if run in self._purged else "whole"


def with_twins_of(attempts: pl.DataFrame, repeated: pl.DataFrame) -> pl.DataFrame:
    """Give each attempt the number that the row it repeats has among cards that look the same."""
    rows = repeated.select(origin="row", of_origin="twin").unique("origin", keep="last")
    joined = attempts.join(rows, on="origin", how="left", maintain_order="left")
    return joined.with_columns(twin=pl.coalesce("of_origin", "twin")).select(*ATTEMPT)
