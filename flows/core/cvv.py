"""The CVV hash: base64 of SHA-256 by a table of all 11,000 CVVs, and what an issuer's own hash really is.

A hash is a CVV: all of them invert from this table in milliseconds. Treat both alike.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256

import polars as pl

from schemas.portal import CVV, CVV_HASH

SHAPE = r"^[0-9]{3,4}$"


def hash_cvv(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with cvv_hash filled from cvv where absent, and cvv emptied; what is missing stays so (interface.md 2.6)."""
    return rows.with_columns(pl.coalesce(CVV_HASH, _hash_of(pl.col(CVV))), pl.lit(None, pl.String).alias(CVV))


def diagnose_hash(rows: pl.DataFrame) -> pl.DataFrame:
    """Return row, column, code of each issuer-supplied hash that is no CVV's, or another CVV's than the row's own."""
    given = rows.filter(pl.col(CVV_HASH).is_not_null())
    code = (
        pl.when(~pl.col(CVV_HASH).is_in(_hashes().implode())).then(pl.lit("card.cvv_hash.unknown"))
        .when(_hash_of(pl.col(CVV)) != pl.col(CVV_HASH)).then(pl.lit("card.cvv_hash.mismatch"))
    )  # fmt: skip
    return given.select("row", pl.lit(CVV_HASH).alias("column"), code.alias("code")).drop_nulls("code")


def _hash_of(cvv: pl.Expr) -> pl.Expr:
    number = pl.when(cvv.str.contains(SHAPE)).then(cvv).str.to_integer(strict=False)
    index = number + pl.when(cvv.str.len_bytes() == 4).then(1000).otherwise(0)
    return pl.lit(_hashes()).gather(index.cast(pl.UInt32))


@cache
def _hashes() -> pl.Series:
    """Return the hashes of 000 to 999, then of 0000 to 9999."""
    return pl.Series([_sha256(text) for text in _cvvs()])


def _cvvs() -> list[str]:
    return [f"{n:03d}" for n in range(1000)] + [f"{n:04d}" for n in range(10_000)]


def _sha256(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
