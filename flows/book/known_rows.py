"""What is kept of the rows of small closed runs: digests of whose they are, and of their links.

So who looks for one cardholder, or for the links that were not delivered yet, reads the runs that
can have them, instead of all. A digest that two share costs a read: nothing is decided by it.
"""

from collections.abc import Collection
from io import BytesIO

import polars as pl

from flows.runs.identity import digest
from flows.runs.keys import book
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from schemas.tables import parquet

LARGEST = 2000  # rows read; a larger run has an object of its own to look into: its ledger
# `name`: 32 bits of a digest of the cuid
KNOWN_ROWS = pl.Schema({"run": pl.String(), "name": pl.UInt32()})
NO_ROWS = pl.DataFrame(schema=KNOWN_ROWS)


def read_known_rows(store: Store, issuer: str, sha256: str) -> pl.DataFrame:
    """Return what is kept (KNOWN_ROWS), nothing where that has other bytes than these."""
    content = read_if_stored(store, _key(issuer)) if sha256 else None
    if content is None or digest(content) != sha256:
        return NO_ROWS
    return pl.read_parquet(BytesIO(content)).cast(KNOWN_ROWS)


def write_known_rows(
    store: Store, issuer: str, kept: pl.DataFrame, runs: Collection[str], new: Collection[str]
) -> str:
    """Write the rows of these runs, as they are `kept`, and read anew of the `new` ones.

    Returns their SHA-256.
    """
    stay = kept.filter(pl.col("run").is_in(set(runs).difference(new)))
    frames = concurrently(lambda run: _rows_of(StoredRun.by_id(store, run)), new)
    content = parquet(pl.concat([stay, *frames]), compression="zstd", compression_level=1)
    store.replace(_key(issuer), [content])
    return digest(content)


def runs_with(rows: pl.DataFrame, cuid: str) -> set[str]:
    """Return the runs that can have a row with this cuid."""
    name = pl.select(_name(pl.lit(cuid))).item()
    return set(rows.filter(name=name)["run"])


def _rows_of(run: StoredRun) -> pl.DataFrame:
    cuids = pl.concat(run.ledger(["cuid"])).drop_nulls()
    names = cuids.select(run=pl.lit(run.id), name=_name(pl.col("cuid")))
    return names.unique(maintain_order=True).cast(KNOWN_ROWS)


def _name(cuid: pl.Expr) -> pl.Expr:
    return (cuid.hash(0) & 0xFFFFFFFF).cast(pl.UInt32)


def _key(issuer: str) -> str:
    return f"{book(issuer)}rows.parquet"
