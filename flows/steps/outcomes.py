"""Attributed result rows of a run, kept as one Parquet object per result file so that a report reads them back.

They are derived: result files and ledger make them again.
"""

from __future__ import annotations

from io import BytesIO

import polars as pl

from flows.core.attribution import OUTCOME, Attributed
from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.steps.edges import read

FILE: dict[str, pl.DataType | type[pl.DataType]] = {
    "file_digest": pl.String,
    "file_name": pl.String,
    "file_received": pl.Date,
    "file_problems": pl.List(pl.String),
    "file_run": pl.String,  # run and chunk its name speaks of
    "file_chunk": pl.UInt32,
}


def keep(store: Store, keys: RunKeys, one: Attributed, rows: pl.DataFrame) -> None:
    """Write the rows of one result file that belong to a run, each with the facts of its file."""
    run, chunk = one.named or (None, None)
    facts = pl.DataFrame([(one.digest, one.name, one.received, list(one.problems), run, chunk)], FILE, orient="row")
    marked = rows.join(facts, how="cross")
    out = BytesIO()
    marked.write_parquet(out, compression="zstd")
    store.replace(f"{keys.outcomes}{one.digest[:16]}.parquet", [out.getvalue()])


def kept(store: Store, keys: RunKeys) -> list[Attributed]:
    """Return the attributed result files of a run."""
    entries = list(store.keys(keys.outcomes))
    return [_restore(pl.read_parquet(BytesIO(read(store, entry.key)))) for entry in entries]


def _restore(rows: pl.DataFrame) -> Attributed:
    digest, name, received, problems, run, chunk = rows.select(*FILE).row(0)
    named = (run, chunk) if run is not None else None
    return Attributed(digest, name, received, tuple(problems), rows.select(*OUTCOME), named)
