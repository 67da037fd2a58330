"""Rows of an extract that several workers read: repeats across their parts are found from keys, before any is sent.

A key is a keyed hash, under a secret that lives as long as the run's process does: no card number can be found from it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

import numpy as np
import polars as pl

from flows.core.rows.duplicates import keyed
from flows.core.rows.split import Splitter
from schemas.portal import CUID, PAN

KEYS: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,  # within the part, from 1
    "key": pl.UInt64,  # 48 bits of the card's, 16 of the whole content's
    "tag": pl.UInt32,  # of the cuid the issuer gave
    "cuid": pl.UInt64,  # of the cuid that is sent
}
VERDICT: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32, "column": pl.String, "code": pl.String, "severity": pl.String
}  # fmt: skip


class Repeats(Protocol):
    """Who tells which rows an extract holds more than once."""

    def keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return accepted rows (row, cuid_made, the 20 columns) with the key and tag that `mark` knows them by."""
        ...

    def mark(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return verdicts (row, column, code, severity) on the accepted rows of a block."""
        ...


class Keeping:
    """Marks nothing, and keeps the keys of the rows it is shown: the first look at a part."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._frames = [pl.DataFrame(schema=KEYS)]

    def keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with key and tag."""
        return keyed(rows, self._hashed(rows[PAN]))

    def mark(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Keep the keys of a block's accepted rows."""
        frame = rows.select("row", "key", "tag").with_columns(rows.select(CUID).hash_rows().alias("cuid"))
        self._frames.append(frame)
        return pl.DataFrame(schema=VERDICT)

    def keys(self) -> pl.DataFrame:
        """Return the keys of all rows shown (KEYS)."""
        return pl.concat(self._frames)

    def _hashed(self, cells: pl.Series) -> np.typing.NDArray[np.uint64]:
        key = self._secret
        digests = b"".join(blake2b(cell, key=key, digest_size=8).digest() for cell in cells.cast(pl.Binary))
        return np.frombuffer(digests, np.uint64)


class Foretold:
    """Knows the verdicts on the rows of a part from before (columns of VERDICT, rows of the whole extract)."""

    def __init__(self, verdicts: pl.DataFrame) -> None:
        self._verdicts = verdicts

    def keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with a key and tag that mean nothing: their numbers are enough."""
        return rows.with_columns(pl.lit(0, pl.UInt64).alias("key"), pl.lit(0, pl.UInt32).alias("tag"))

    def mark(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the verdicts on a block's rows."""
        return self._verdicts.join(rows.select("row"), on="row", how="semi", maintain_order="left")


def chunk_count(keys: pl.DataFrame, verdicts: pl.DataFrame, limit: int) -> int:
    """Return how many chunks the rows of a part will make; `verdicts` of the same numbering as `keys`."""
    rejected = verdicts.filter(severity="reject").select("row")
    sent = keys.join(rejected, on="row", how="anti", maintain_order="left").select(pl.col("cuid").alias(CUID))
    splitter = Splitter(limit)
    return sum(1 for _ in splitter.add(sent)) + sum(1 for _ in splitter.finish())
