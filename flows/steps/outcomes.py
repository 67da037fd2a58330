"""Attributed result rows of a run, kept as one Parquet object per result file so that a report reads them back.

They are derived: result files and ledger make them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import polars as pl

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.results.attribution import OUTCOME, Attributed
from flows.core.run.planning import digest
from flows.steps.edges import read

READERS = 16  # objects fetched at a time

FILE: dict[str, pl.DataType | type[pl.DataType]] = {
    "file_digest": pl.String,
    "file_name": pl.String,
    "file_received": pl.Date,
    "file_problems": pl.List(pl.String),
    "file_run": pl.String,  # run and chunk its name speaks of
    "file_chunk": pl.UInt32,
}


def keep(store: Store, keys: RunKeys, result: str, one: Attributed, rows: pl.DataFrame) -> str:
    """Write the rows of the result file of that key that belong to a run, each with the facts of its file.

    Named after the file and not its content: a file that was taken up half written is answered by the whole one.
    Returns the key written.
    """
    run, chunk = one.named or (None, None)
    facts = pl.DataFrame([(one.digest, one.name, one.received, list(one.problems), run, chunk)], FILE, orient="row")
    marked = rows.join(facts, how="cross")
    out = BytesIO()
    marked.write_parquet(out, compression="zstd")
    key = f"{keys.outcomes}{digest(result.encode())[:24]}.parquet"
    store.replace(key, [out.getvalue()])
    return key


def chunks_answered(store: Store, keys: RunKeys) -> dict[str, frozenset[int]]:
    """Return which chunks each kept result file speaks of, by the key it is kept under."""
    entries = list(store.keys(keys.outcomes))
    with ThreadPoolExecutor(READERS) as readers:
        found = readers.map(lambda entry: _chunks(read(store, entry.key)), entries)
        return {entry.key: chunks for entry, chunks in zip(entries, found, strict=True)}


def kept(store: Store, wanted: Collection[str]) -> Iterator[Attributed]:
    """Yield the attributed result files kept under these keys."""
    with ThreadPoolExecutor(READERS) as readers:
        yield from readers.map(lambda key: _restore(pl.read_parquet(BytesIO(read(store, key)))), wanted)


def _chunks(content: bytes) -> frozenset[int]:
    return frozenset(pl.read_parquet(BytesIO(content), columns=["chunk"])["chunk"].drop_nulls().unique())


def _restore(rows: pl.DataFrame) -> Attributed:
    content, name, received, problems, run, chunk = rows.select(*FILE).row(0)
    named = (run, chunk) if run is not None else None
    return Attributed(content, name, received, tuple(problems), rows.select(*OUTCOME), named)
