"""All runs of an issuer.

By business date, planned, committed, with their ledger, refused. Put here what needs a look at
several runs. A run is a `StoredRun`; none is kept here, so that what was read of it is freed with
it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime
from itertools import chain
from typing import NamedTuple, Self

import polars as pl
from sqlalchemy import ColumnElement, Connection, select

from flows.runs.adapters import Adapters
from flows.runs.decisions import EXTRACT, standing_subjects
from flows.runs.events import refusals
from flows.runs.frames import from_parquets
from flows.runs.keys import RunId, RunKeys
from flows.runs.purges import purged_runs
from flows.runs.read_once import read_once
from flows.runs.run_records import records_where
from flows.runs.run_status import RunStatus
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from schemas.database import JOURNAL, RUN
from schemas.manifest import LedgerPart, Manifest, Profile

RUNS_TOGETHER = 64  # runs that are read at once
PARTS_TOGETHER = 32  # parts that are decoded at once
ROWS_TOGETHER = 20_000
HABIT = 14  # runs that show the usual pattern


class Night(NamedTuple):
    """What later extracts are compared with.

    The business date, row count, profile, column names and lines set aside of a whole extract.
    """

    day: date
    read: int
    profile: Profile | None
    header: tuple[str, ...] = ()  # where its file names the columns
    set_aside: dict[str, int] | None = None  # its lines that are no rows, by kind


class StoredRuns:
    """The runs of an issuer; which there are is read once, when it is first asked for.

    Each call gives runs of which nothing was read before.
    """

    def __init__(self, adapters: Adapters, issuer: str, same: Self | None = None) -> None:
        self._same = same  # which may have been listed already
        self.adapters = adapters
        self.store = adapters.store
        self.issuer = issuer

    def within(self, connection: Connection) -> Self:
        """Return the same runs as an open transaction sees them: none begins within another."""
        return type(self)(self.adapters.within(connection), self.issuer, self)

    @read_once
    def ids(self) -> list[RunId]:
        """The ids of the runs, by business date."""
        if self._same is not None:
            return self._same.ids
        return self._ids()

    def _ids(self, *which: ColumnElement[bool]) -> list[RunId]:
        query = select(RUN.c.run).where(RUN.c.issuer == self.issuer, *which)
        with self.adapters.database.snapshot() as connection:
            named = map(RunId.parse, connection.execute(query).scalars())
            return sorted((run for run in named if run is not None), key=lambda run: run.age)

    @read_once
    def without_ledger(self) -> frozenset[str]:
        """The ids of the runs whose ledger was purged."""
        return purged_runs(self.adapters, self.issuer, "ledger")

    def run(self, run: RunId) -> StoredRun:
        """Return one of the runs."""
        return StoredRun(self.adapters, RunKeys(run))

    def __iter__(self) -> Iterator[StoredRun]:
        """Yield every run, by business date."""
        return map(self.run, self.ids)

    def committed(self, apart: Collection[str] = ()) -> Iterator[StoredRun]:
        """Yield the committed runs, `apart` from some, by business date."""
        ids = [run for run in map(str, self._ids(RUN.c.turn.is_not(None))) if run not in apart]
        for start in range(0, len(ids), RUNS_TOGETHER):
            several = ids[start : start + RUNS_TOGETHER]
            with self.adapters.database.snapshot() as connection:
                records = records_where(connection, self.issuer, RUN.c.run.in_(several))
            by_run = {record.run: record for record in records}
            yield from (StoredRun.recorded(self.adapters, by_run[run]) for run in several)

    def manifests(self, apart: Collection[str] = ()) -> Iterator[Manifest]:
        """Yield the manifests of the committed runs, `apart` from some, by business date."""
        return (run.committed() for run in self.committed(apart))

    def with_ledger(self) -> Iterator[StoredRun]:
        """Yield the committed runs whose ledger is not purged, by business date."""
        return self.committed(self.without_ledger)

    def statuses(self) -> list[RunStatus]:
        """Return the status of every run, newest first."""
        return concurrently(lambda run: self.run(run).status, self.ids[::-1])

    def refused(
        self, committed: Collection[str], committed_extracts: Collection[str]
    ) -> dict[str, datetime]:
        """Return when the runs were refused about which nobody has decided since, by id.

        Decided: committed under that name, abandoned, planned anew, or the extract dismissed.
        `committed`: ids of the committed runs; `committed_extracts`: keys of the extracts of which
        all rows were committed. Of several refused under one name, the file that was refused last
        took the place of the others.
        """
        dismissed = standing_subjects(self.adapters, self.issuer, EXTRACT)

        def is_decided(run: StoredRun) -> bool:
            source = run.planned().source
            if source.key in committed_extracts or source.sha256 in dismissed:
                return True
            return run.end is not None or run.is_replaced

        is_uncommitted = (RUN.c.issuer == self.issuer) & RUN.c.turn.is_(None)
        of_uncommitted = JOURNAL.c.run.in_(select(RUN.c.run).where(is_uncommitted))
        refused = {
            StoredRun.by_id(self.adapters, run): refusal.at
            for run, refusal in refusals(self.adapters, self.issuer, of_uncommitted).items()
            if run not in committed
        }
        last = {run.planned().source.key: run for run in sorted(refused, key=refused.__getitem__)}
        return {run.id: refused[run] for run in last.values() if not is_decided(run)}

    def nights_before(self, run: RunId) -> list[Night]:
        """Return the whole extracts among the 14 runs before this one."""
        earlier = [other for other in self.ids if other.day < run.day][-HABIT:]
        manifests = (self.run(other).manifest for other in earlier)
        return [
            Night(
                manifest.as_of,
                manifest.counts.read,
                manifest.profile,
                _header(manifest),
                manifest.counts.set_aside,
            )
            for manifest in manifests
            if manifest is not None and manifest.selection is None
        ]


def _header(manifest: Manifest) -> tuple[str, ...]:
    return manifest.layout.header if manifest.layout else ()


# Rows of many runs
# --------------------------------------------------------------------------------------------------


def rows_of(runs: Sequence[StoredRun], columns: list[str], only: pl.Expr) -> list[pl.DataFrame]:
    """Return the reconciled rows of committed runs that `only` keeps, in order.

    Those of many small runs are decoded at once. Raises as `StoredRun.rows`.
    """
    parts = chain.from_iterable(concurrently(_parts_of, runs))

    def decoded(group: Sequence[tuple[StoredRun, LedgerPart]]) -> pl.DataFrame:
        contents = [read(run.store, run.rows_key(part)) for run, part in group]
        return from_parquets(contents, columns, only)

    return concurrently(decoded, list(_together(parts)))


def _parts_of(run: StoredRun) -> list[tuple[StoredRun, LedgerPart]]:
    return [(run, part) for part in run.committed().ledger]


def _together(
    parts: Iterable[tuple[StoredRun, LedgerPart]],
) -> Iterator[list[tuple[StoredRun, LedgerPart]]]:
    """Yield parts that are decoded at once: so many, of so many rows at most, or a single one."""
    group: list[tuple[StoredRun, LedgerPart]] = []
    rows = 0
    for run, part in parts:
        if group and (len(group) == PARTS_TOGETHER or rows + part.rows > ROWS_TOGETHER):
            yield group
            group = []
            rows = 0
        group.append((run, part))
        rows += part.rows
    if group:
        yield group
