"""Read a run's source again, row by number: find the very bytes it was made of, and keep which rows go out again."""

from __future__ import annotations

from io import BytesIO

import polars as pl

from flows.core.errors import OperatorError
from flows.core.names import RunKeys
from flows.core.ports import Entry
from flows.core.rows.picked import PICK
from flows.core.run.planning import digest
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.edges import IssuerEdges, write_once
from flows.steps.night.plan import identify
from schemas.manifest import SourceIdentity


class SourceGoneError(OperatorError):
    """The extract a run was made of is not there any more, or holds other bytes now."""

    message = "{extract}, the extract of run {run}, is gone or has changed: its rows cannot be read again."
    next_step = "Put the same file back, or name a newer extract with --extract."


def source_again(edges: IssuerEdges, run: str, source: SourceIdentity) -> tuple[Entry, SourceIdentity]:
    """Return a run's source as it lies there now, known by its digest; SourceGoneError."""
    store = edges.edges.store
    try:
        with store.open(source.key) as stream:
            entry = stream.entry
        same = source if entry.version == source.version else identify(store, entry)
    except ObjectMissingError:
        raise SourceGoneError(extract=source.key, run=run) from None
    if same.sha256 != source.sha256:
        raise SourceGoneError(extract=source.key, run=run)
    return entry, same


def selection_bytes(rows: pl.DataFrame) -> bytes:
    """Return the rows of a run (row, origin) as they are kept: the same rows are the same bytes."""
    out = BytesIO()
    rows.select(pl.col(name).cast(kind) for name, kind in PICK.items()).sort("row").write_parquet(out)
    return out.getvalue()


def rows_digest(rows: pl.DataFrame) -> str:
    """Return the SHA-256 of the rows asked for (row, origin), in any order."""
    ordered = rows.select(pl.col(name).cast(kind) for name, kind in PICK.items()).sort("row")
    return digest(ordered.write_csv().encode())


def keep_selection(edges: IssuerEdges, keys: RunKeys, rows: pl.DataFrame) -> None:
    """Write which rows (row, origin) of its source a run is of."""
    write_once(edges.edges.store, keys.selection, selection_bytes(rows))
