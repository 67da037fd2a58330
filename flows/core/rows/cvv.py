"""The CVV hash: base64 of SHA-256 by a table of all 11,000 CVVs, and what an issuer's own hash really is of.

A hash is a CVV: all of them invert from this table in milliseconds. Treat both alike.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256

import polars as pl

from schemas.expressions import CVV_SHAPE, HASH_SHAPE
from schemas.portal import CVV, CVV_HASH

CVVS = [f"{n:03d}" for n in range(1_000)] + [f"{n:04d}" for n in range(10_000)]
NO_CVV = pl.lit(None, pl.String).alias(CVV)
FOUR_DIGITS_FROM = 1_000  # where the four-digit ones begin


def hash_cvv(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with an absent cvv_hash made from cvv, then no cvv; both absent stay so (interface.md 2.6)."""
    return rows.with_columns(pl.coalesce(CVV_HASH, _hash_of(pl.col(CVV))), NO_CVV)


def sent_hash(rows: pl.DataFrame) -> pl.Series:
    """Return the cvv_hash to send where there is no doubt about it: made, or given and of the row's CVV or some CVV."""
    given, made = pl.col(CVV_HASH), pl.col("made")
    known = given.is_in(_hashes().implode())
    sure = pl.when(pl.col(CVV).is_null()).then(known).otherwise(made == given)
    sent = pl.when(given.is_null()).then(made).when(sure).then(given).alias(CVV_HASH)
    return rows.select(CVV, CVV_HASH, made=_hash_of(pl.col(CVV))).select(sent).to_series()


def diagnose_hash(rows: pl.DataFrame) -> pl.DataFrame:
    """Return row, column, code of each issuer-supplied hash that opens no link, named by the mistake where it is known.

    Codes are `card.cvv_hash.` and: newline, utf16, lost_zero, empty (what was hashed); hex, base64_of_hex,
    base64url, unpadded (how it was written); mismatch (another CVV than the row's); unknown (no CVV at all).
    """
    given = rows.select("row", CVV_HASH, CVV).filter(rows[CVV_HASH].is_not_null())
    kinds = [_mistake(one, cvv) for one, cvv in zip(given[CVV_HASH], given[CVV], strict=True)]
    codes = pl.Series([kind and f"card.cvv_hash.{kind}" for kind in kinds], dtype=pl.String)
    return given.select("row", column=pl.lit(CVV_HASH), code=codes).drop_nulls()


def _mistake(given: str, cvv: str | None) -> str | None:
    """Return what is wrong with a hash that came with a CVV or none; None where that is told by its format."""
    own = _cvv_of().get(given)
    if own is None:
        return _mistakes().get(given) or ("unknown" if re.fullmatch(HASH_SHAPE, given) else None)
    return "mismatch" if cvv not in (own, None) and re.fullmatch(CVV_SHAPE, cvv) else None


def _hash_of(cvv: pl.Expr) -> pl.Expr:
    number = pl.when(cvv.str.contains(CVV_SHAPE)).then(cvv).str.to_integer(dtype=pl.UInt32, strict=False)
    return pl.lit(_hashes()).gather(number + pl.when(cvv.str.len_bytes() == 4).then(FOUR_DIGITS_FROM).otherwise(0))


@cache
def _hashes() -> pl.Series:
    """Return the hash of every CVV, in the order of CVVS."""
    return pl.Series([b64encode(sha256(cvv.encode()).digest()).decode() for cvv in CVVS])


@cache
def _cvv_of() -> dict[str, str]:
    """Return what each hash is the hash of."""
    return dict(zip(_hashes(), CVVS, strict=True))


@cache
def _mistakes() -> dict[str, str]:
    """Return the kind of every wrong hash we can name; 320,000, made when the first is met."""
    return dict(_wrong_hashes())


def _wrong_hashes() -> Iterator[tuple[str, str]]:
    for text, kind in _wrong_texts():
        digest = sha256(text).digest()
        yield from ((written, kind) for written, _ in [(b64encode(digest).decode(), ""), *_wrong_writings(digest)])
    for cvv in CVVS:
        yield from _wrong_writings(sha256(cvv.encode()).digest())


def _wrong_texts() -> Iterator[tuple[bytes, str]]:
    yield b"", "empty"
    yield from ((str(n).encode(), "lost_zero") for n in range(100))
    for cvv in CVVS:
        yield f"{cvv}\n".encode(), "newline"
        yield f"{cvv}\r\n".encode(), "newline"
        yield cvv.encode("utf-16-le"), "utf16"


def _wrong_writings(digest: bytes) -> Iterator[tuple[str, str]]:
    base64, url, hexed = b64encode(digest).decode(), urlsafe_b64encode(digest).decode(), digest.hex()
    yield base64.rstrip("="), "unpadded"
    if url != base64:  # else there is nothing wrong with it
        yield url, "base64url"
        yield url.rstrip("="), "base64url"
    yield from ((text, "hex") for text in (hexed, hexed.upper()))
    yield from ((b64encode(text.encode()).decode(), "base64_of_hex") for text in (hexed, hexed.upper()))
