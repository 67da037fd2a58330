"""What is kept of the rows of small closed runs: digests of whose they are, and of their links.

So who looks for one cardholder, or for the links that were not delivered yet, reads the runs that
can have them, instead of all. A name that two share costs a read: nothing is decided by it. Links
that have one digest, of 64 bits, are taken for the same.
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
KNOWN_ROWS = pl.Schema(
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "name": pl.UInt32(),  # 32 bits of a digest of the cuid
        "link": pl.UInt64(),  # of its URL, null without a link
    }
)
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
    name = pl.DataFrame({"cuid": [cuid]}).select(_name()).item()
    return set(rows.filter(name=name)["run"])


def _rows_of(run: StoredRun) -> pl.DataFrame:
    cuids = pl.concat(run.ledger(["row", "cuid"])).drop_nulls("cuid")
    links = pl.concat(run.rows(["row", "url"], pl.col("url").is_not_null()))
    rows = cuids.join(links, on="row", how="left", maintain_order="left")
    names = rows.select("row", run=pl.lit(run.id), name=_name(), link=link_digest(pl.col("url")))
    return names.select(*KNOWN_ROWS).cast(KNOWN_ROWS)


def _name() -> pl.Expr:
    return (pl.col("cuid").hash(0) & 0xFFFFFFFF).cast(pl.UInt32)


def link_digest(url: pl.Expr) -> pl.Expr:
    """Return the digest by which a link is known: the same in this version of polars only."""
    return pl.when(url.is_not_null()).then(url.hash(0))


def _key(issuer: str) -> str:
    return f"{book(issuer)}rows.parquet"
