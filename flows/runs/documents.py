"""Documents of runs for functions that are given a store and keys; see `stored_run.py`."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from flows.runs.keys import RunKeys
from flows.runs.run_status import Refusal, RunStatus
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import LedgerPart, Manifest


def read_manifest(store: Store, keys: RunKeys) -> Manifest | None:
    """Return a run's manifest, None before its commit and where it was abandoned."""
    return StoredRun(store, keys).manifest


def committed(store: Store, run: str) -> Manifest:
    """Return the manifest of a committed run; UnknownRunError, AbandonedError."""
    return StoredRun.by_id(store, run).committed()


def manifests(store: Store, issuer: str, apart: Collection[str] = ()) -> Iterator[Manifest]:
    """Yield the manifests of an issuer's committed runs, `apart` from some, by business date."""
    return StoredRuns(store, issuer).manifests(apart)


def without_ledger(store: Store, issuer: str) -> frozenset[str]:
    """Return the ids of the runs whose ledger was purged, by one listing."""
    return StoredRuns(store, issuer).without_ledger


def refuse_purged(store: Store, keys: RunKeys) -> None:
    """Raise LedgerPurgedError where the ledger of a run was purged."""
    StoredRun(store, keys).refuse_purged()


def read_summary(store: Store, keys: RunKeys) -> Mapping[str, Any] | None:
    """Return the facts of a run's report, None where it has none."""
    return StoredRun(store, keys).summary


def refusal(store: Store, keys: RunKeys) -> Refusal | None:
    """Return what refused a run, None where nothing did."""
    return StoredRun(store, keys).refusal


def read_ledger(
    store: Store,
    keys: RunKeys,
    parts: Iterable[LedgerPart],
    columns: list[str] | None = None,
    only: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the parts of a run's ledger; `only` filters the records."""
    for part in parts:
        yield StoredRun(store, keys).ledger_part(part, columns, only)


def run_statuses(store: Store, issuer: str) -> list[RunStatus]:
    """Return the status of every run of an issuer, newest first."""
    return StoredRuns(store, issuer).statuses()


def read_rows(
    store: Store,
    keys: RunKeys,
    parts: Iterable[LedgerPart],
    columns: list[str] | None,
    only: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield these columns of a run's reconciled rows, part by part; `only` filters the rows."""
    for part in parts:
        yield StoredRun(store, keys).rows_part(part, columns, only)
