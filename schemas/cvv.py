"""The CVV hash, base64(sha256(digits)) (interface.md 2.6): made, recognised, and an issuer's usual mistakes named.

There are 11,000 CVVs, so every hash inverts from a table in milliseconds: a hash is a CVV. Treat both alike.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256

import polars as pl

from schemas.expressions import CVV_SHAPE
from schemas.portal import CVV, CVV_HASH

CVVS = [f"{n:03d}" for n in range(1_000)] + [f"{n:04d}" for n in range(10_000)]
FOUR_DIGITS_FROM = 1_000  # where the four-digit ones begin


def hash_cvv(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with an absent cvv_hash made from cvv, then no cvv; both absent stay so (interface.md 2.6)."""
    return rows.with_columns(pl.coalesce(CVV_HASH, hash_of(pl.col(CVV))), pl.lit(None, pl.String).alias(CVV))


def hash_of(cvv: pl.Expr) -> pl.Expr:
    """Return the hash of each CVV, null where a text is no CVV."""
    number = pl.when(cvv.str.contains(CVV_SHAPE)).then(cvv).str.to_integer(dtype=pl.UInt32, strict=False)
    return pl.lit(_hashes()).gather(number + pl.when(cvv.str.len_bytes() == 4).then(FOUR_DIGITS_FROM).otherwise(0))


def is_known(cvv_hash: pl.Expr) -> pl.Expr:
    """Return whether each text is the hash of a CVV, as it should be written."""
    return cvv_hash.is_in(_hashes().implode())


def mistake(cvv_hash: pl.Expr) -> pl.Expr:
    """Return how each hash was got wrong, null where it is right or nobody can say.

    newline, utf16, lost_zero, empty: what was hashed; hex, base64_of_hex, base64url, unpadded: how it was written.
    """
    return cvv_hash.map_batches(_mistakes_of, return_dtype=pl.String, is_elementwise=True)


def hashed(text: str) -> str:
    """Return base64(sha256(text)), which is the CVV hash where the text is a CVV."""
    return b64encode(sha256(text.encode()).digest()).decode()


def mistaken(kind: str, cvv: str = "007") -> str:
    """Return the hash of a CVV as an issuer writes it who makes the mistake `kind`; KeyError for no such kind."""
    digest = sha256(cvv.encode()).digest()
    return {
        "newline": hashed(f"{cvv}\n"),
        "utf16": b64encode(sha256(cvv.encode("utf-16-le")).digest()).decode(),
        "lost_zero": hashed(cvv.lstrip("0")),
        "empty": hashed(""),
        "hex": digest.hex(),
        "base64_of_hex": b64encode(digest.hex().encode()).decode(),
        "base64url": urlsafe_b64encode(digest).decode(),
        "unpadded": hashed(cvv).rstrip("="),
        "unknown": hashed(f"salt{cvv}"),
    }[kind]


def _mistakes_of(hashes: pl.Series) -> pl.Series:
    known = _known_hashes()
    strange = [one for one in hashes.drop_nulls().unique() if one not in known]
    kinds = {one: _mistakes().get(one) for one in strange} if strange else {}  # the table is made when one is met
    return pl.Series(hashes.name, [kinds.get(one) for one in hashes], pl.String)


@cache
def _hashes() -> pl.Series:
    """Return the hash of every CVV, in the order of CVVS."""
    return pl.Series([hashed(cvv) for cvv in CVVS])


@cache
def _known_hashes() -> frozenset[str]:
    return frozenset(_hashes())


@cache
def _mistakes() -> dict[str, str]:
    """Return the kind of every wrong hash we can name, 320,000."""
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
