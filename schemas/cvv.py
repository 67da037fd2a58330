"""The CVV hash, base64(sha256(digits)) (interface.md 2.6): make it, recognise it, and name an issuer's usual mistakes.

There are only 11,000 CVVs, so every hash can be looked up in milliseconds: protect a hash like the CVV itself.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256

import polars as pl

from schemas.expressions import CVV_SHAPE
from schemas.portal import CVV, CVV_HASH

CVVS = [f"{n:03d}" for n in range(1_000)] + [f"{n:04d}" for n in range(10_000)]
FOUR_DIGITS_FROM = 1_000  # index of the first four-digit CVV


def hash_cvv(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with cvv_hash made from cvv where it is absent, and cvv emptied (interface.md 2.6)."""
    return rows.with_columns(pl.coalesce(CVV_HASH, hash_of(pl.col(CVV))), pl.lit(None, pl.String).alias(CVV))


def hash_of(cvv: pl.Expr) -> pl.Expr:
    """Return the hash of each CVV, null where a text is not a CVV."""
    number = pl.when(cvv.str.contains(CVV_SHAPE)).then(cvv).str.to_integer(dtype=pl.UInt32, strict=False)
    return pl.lit(_hashes()).gather(number + pl.when(cvv.str.len_bytes() == 4).then(FOUR_DIGITS_FROM).otherwise(0))


def is_known(cvv_hash: pl.Expr) -> pl.Expr:
    """Return whether each text is the correctly written hash of a CVV."""
    return cvv_hash.is_in(_hashes().implode())


def mistake(cvv_hash: pl.Expr) -> pl.Expr:
    """Return the mistake in each hash (a key of `WRONG_TEXTS` or `WRONG_ENCODINGS`), null if right or unknown."""
    return cvv_hash.map_batches(_mistakes_of, return_dtype=pl.String, is_elementwise=True)


def hashed(text: str) -> str:
    """Return base64(sha256(text)), which is the CVV hash if the text is a CVV."""
    return _base64(text.encode())


def mistaken(kind: str, cvv: str = "007") -> str:
    """Return the hash of a CVV with the mistake `kind`, or with a salt for "unknown"; KeyError for no such kind."""
    if kind == "unknown":
        return hashed(f"salt{cvv}")
    if kind in WRONG_TEXTS:
        return _base64(WRONG_TEXTS[kind](cvv)[0])
    return WRONG_ENCODINGS[kind](sha256(cvv.encode()).digest())[0]


def _mistakes_of(hashes: pl.Series) -> pl.Series:
    found = hashes.drop_nulls().unique()
    strange = found.filter(~found.is_in(_hashes().implode()))
    kinds = {one: _mistakes().get(one) for one in strange}  # built on first need
    return pl.Series(hashes.name, [kinds.get(one) for one in hashes], pl.String)


@cache
def _hashes() -> pl.Series:
    """Return the hash of every CVV, in the order of CVVS."""
    return pl.Series([hashed(cvv) for cvv in CVVS])


@cache
def _mistakes() -> dict[str, str]:
    """Return the kind of every wrong hash we can name, about 320,000."""
    texts = {text: kind for kind, wrong in WRONG_TEXTS.items() for cvv in CVVS for text in wrong(cvv)}
    encoded = {_base64(text): kind for text, kind in texts.items()}
    encoded |= {wrong: kind for text, kind in texts.items() for _, wrong in _wrong_encodings(text)}
    return encoded | {wrong: kind for cvv in CVVS for kind, wrong in _wrong_encodings(cvv.encode())}


def _wrong_encodings(text: bytes) -> list[tuple[str, str]]:
    digest = sha256(text).digest()
    return [(kind, wrong) for kind, encodings in WRONG_ENCODINGS.items() for wrong in encodings(digest)]


def _hex(digest: bytes) -> list[str]:
    return [digest.hex(), digest.hex().upper()]


def _base64(text: bytes) -> str:
    return b64encode(sha256(text).digest()).decode()


def _without_zeros(cvv: str) -> list[bytes]:
    short = str(int(cvv))
    return [short.encode()] if len(short) < 3 else []  # 0123 without its zero is a CVV itself


def _for_urls(digest: bytes) -> list[str]:
    url = urlsafe_b64encode(digest).decode()
    return [url, url.rstrip("=")] if url != b64encode(digest).decode() else []  # both alphabets may give the same text


# What was hashed instead of the digits, and how the right digest was written wrongly: the texts of each mistake.
WRONG_TEXTS: dict[str, Callable[[str], list[bytes]]] = {
    "newline": lambda cvv: [f"{cvv}\n".encode(), f"{cvv}\r\n".encode()],
    "utf16": lambda cvv: [cvv.encode("utf-16-le")],
    "lost_zero": _without_zeros,
    "empty": lambda _: [b""],
}
WRONG_ENCODINGS: dict[str, Callable[[bytes], list[str]]] = {
    "unpadded": lambda digest: [b64encode(digest).decode().rstrip("=")],
    "base64url": _for_urls,
    "hex": _hex,
    "base64_of_hex": lambda digest: [b64encode(text.encode()).decode() for text in _hex(digest)],
}
