"""The CVV hash, base64(sha256(digits)) (interface.md 2.6): make it, recognise it, and name an
issuer's usual mistakes.

There are only 11,000 CVVs, so every hash can be looked up in milliseconds: protect a hash like the
CVV itself.
"""

from base64 import b64encode, urlsafe_b64encode
from functools import cache
from hashlib import sha256

import polars as pl

from schemas.expressions import CVV_SHAPE
from schemas.portal import CVV, CVV_HASH

# so the four-digit ones from 1,000
CVVS = [f"{n:03d}" for n in range(1_000)] + [f"{n:04d}" for n in range(10_000)]


def hash_cvv(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with cvv_hash made from cvv where it is absent, and cvv emptied (interface.md
    2.6).
    """
    return rows.with_columns(
        pl.coalesce(CVV_HASH, hash_of(pl.col(CVV))), pl.lit(None, pl.String).alias(CVV)
    )


def hash_of(cvv: pl.Expr) -> pl.Expr:
    """Return the hash of each CVV, null where a text is not a CVV."""
    number = (
        pl.when(cvv.str.contains(CVV_SHAPE)).then(cvv).str.to_integer(dtype=pl.UInt32, strict=False)
    )
    return pl.lit(hashes()).gather(
        number + pl.when(cvv.str.len_bytes() == 4).then(1_000).otherwise(0)
    )


def mistake(cvv_hash: pl.Expr) -> pl.Expr:
    """Return the mistake in each hash (of `_wrong_texts` or `_writings`), null if right or
    unknown.
    """
    return cvv_hash.map_batches(_mistakes_of, return_dtype=pl.String, is_elementwise=True)


def hashed(text: str) -> str:
    """Return base64(sha256(text)), which is the CVV hash if the text is a CVV."""
    return _writings(text.encode())[""][0]


def mistaken(kind: str, cvv: str = "007") -> str:
    """Return the hash of a CVV with the mistake `kind`, or with a salt for "unknown"; KeyError for
    no such kind.
    """
    if kind == "unknown":
        return hashed(f"salt{cvv}")
    texts = _wrong_texts(cvv)
    return _writings(texts[kind][0])[""][0] if kind in texts else _writings(cvv.encode())[kind][0]


def _mistakes_of(cells: pl.Series) -> pl.Series:
    strange = set(cells) - _right() - {None}
    kinds = {one: _mistakes().get(one) for one in strange}  # built on first need
    return pl.Series(cells.name, [kinds.get(one) for one in cells], pl.String)


@cache
def _right() -> frozenset[str]:
    return frozenset(hashes())


@cache
def hashes() -> pl.Series:
    """Return the hash of every CVV, in the order of CVVS."""
    return pl.Series([hashed(cvv) for cvv in CVVS])


@cache
def _mistakes() -> dict[str, str]:
    """Return the kind of every wrong hash we can name, about 320,000."""
    texts = {
        text: kind for cvv in CVVS for kind, wrong in _wrong_texts(cvv).items() for text in wrong
    }
    found = {
        one: kind
        for text, kind in texts.items()
        for written in _writings(text).values()
        for one in written
    }
    wrong = {
        one: kind
        for cvv in CVVS
        for kind, written in _writings(cvv.encode()).items()
        for one in written
        if kind
    }
    return found | wrong


def _wrong_texts(cvv: str) -> dict[str, list[bytes]]:
    """Return what is hashed by mistake instead of the digits; 0123 without its zero is a CVV
    itself.
    """
    short = str(int(cvv)).encode()
    return {
        "newline": [f"{cvv}\n".encode(), f"{cvv}\r\n".encode()],
        "utf16": [cvv.encode("utf-16-le")],
        "lost_zero": [short] if len(short) < 3 else [],
        "empty": [b""],
    }


def _writings(text: bytes) -> dict[str, list[str]]:
    """Return how the digest of a text is written: rightly, and by mistake; both alphabets may give
    the same text.
    """
    digest = sha256(text).digest()
    right, url, digits = (
        b64encode(digest).decode(),
        urlsafe_b64encode(digest).decode(),
        digest.hex(),
    )
    return {
        "": [right],
        "unpadded": [right.rstrip("=")],
        "base64url": [url, url.rstrip("=")] if url != right else [],
        "hex": [digits, digits.upper()],
        "base64_of_hex": [b64encode(one.encode()).decode() for one in (digits, digits.upper())],
    }
