"""Rebuild a run's report from its ledger and the outcomes of its result files; it may be deleted at any time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import polars as pl

from flows.core import tables
from flows.core.balance import Balance, balance
from flows.core.names import RunKeys
from flows.core.planning import canonical
from flows.core.ports import Store
from flows.core.reconcile import Reconciled, reconcile
from flows.core.summary import summarise
from flows.steps.edges import IssuerEdges
from flows.steps.outcomes import kept
from flows.steps.runs import UnknownRunError, keys_of, read_ledger, read_manifest
from schemas import ledger
from schemas.breaks import Break
from schemas.manifest import LedgerPart, Manifest

CSV_ROWS = 50_000  # rows turned to text at a time
SENT = ["row", "cuid", "last_4", "fate", "chunk", "position"]


class RunReport(NamedTuple):
    """A run's balance, its breaks, and the facts of summary.json."""

    balance: Balance
    breaks: tuple[Break, ...]
    summary: dict[str, Any]


def rebuild(edges: IssuerEdges, run: str) -> RunReport:
    """Reconcile a committed run with all its outcomes and write its report anew, each file atomically."""
    store, keys = edges.edges.store, keys_of(run)
    manifest = read_manifest(store, keys)
    if manifest is None:
        raise UnknownRunError(run)
    sent = pl.concat(part.filter(fate=ledger.SUBMITTED) for part in read_ledger(store, keys, manifest.ledger, SENT))
    outcomes = kept(store, keys)
    named = sent.with_columns(pl.lit(run).alias("run"))
    settled = reconcile(named, outcomes, edges.edges.now().date())
    books = balance(manifest, settled)
    summary = summarise(manifest, settled, books, edges.issuer.limits, [one.digest for one in outcomes])
    write_rejects(store, keys, manifest.ledger)
    _write_tables(store, keys, manifest, settled)
    store.replace(keys.report("summary.json"), [canonical(summary)])
    return RunReport(books, settled.breaks, summary)


def write_rejects(store: Store, keys: RunKeys, parts: Iterable[LedgerPart]) -> None:
    """Write rejects.csv from the ledger, part by part."""
    columns = ["row", "cuid", "last_4", "fate", "reasons"]
    frames = (tables.rejects(part) for part in read_ledger(store, keys, parts, columns))
    store.replace(keys.report("rejects.csv"), _csv(frames, tables.REFUSAL))


def _write_tables(store: Store, keys: RunKeys, manifest: Manifest, settled: Reconciled) -> None:
    chunks = tables.chunks(manifest, settled.chunks)
    errors = tables.errors(settled.rows)
    links = tables.links(settled.rows)
    for name, frame in (("chunks.csv", chunks), ("errors.csv", errors), ("links.csv", links)):
        store.replace(keys.report(name), _csv([frame], frame.columns))


def _csv(frames: Iterable[pl.DataFrame], columns: list[str]) -> Iterator[bytes]:
    """Yield a CSV in pieces: the header, then the rows."""
    yield (",".join(columns) + "\n").encode()
    for frame in frames:
        for piece in frame.iter_slices(CSV_ROWS):
            yield piece.write_csv(include_header=False).encode()
