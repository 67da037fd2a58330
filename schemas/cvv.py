"""The CVV hash, base64(sha256(digits)) (interface.md 2.6): made, recognised, its mistakes named.

There are only 11,000 CVVs, so every hash can be looked up in milliseconds: protect a hash like the
CVV itself.

`replace_cvvs` turns the CVVs of rows into hashes, `hash_of_each` is the expression for a column,
`hash_text` hashes one text, and `all_hashes` are those of every CVV. `mistake` names what is wrong
with a hash, and `mistaken` makes such a hash.
"""

from base64 import b64encode, urlsafe_b64encode
from functools import cache
from hashlib import sha256
from itertools import chain

import polars as pl

from schemas.expressions import CVV_SHAPE
from schemas.portal import CVV, CVV_HASH

# four-digit CVVs begin at index 1,000
CVVS = [f"{n:03d}" for n in range(1_000)] + [f"{n:04d}" for n in range(10_000)]


def replace_cvvs(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with cvv_hash made from cvv where it is absent, and cvv emptied (2.6)."""
    return rows.with_columns(
        pl.coalesce(CVV_HASH, hash_of_each(pl.col(CVV))), pl.lit(None, pl.String).alias(CVV)
    )


def hash_of_each(cvv: pl.Expr) -> pl.Expr:
    """Return the expression of the hash of each CVV, null where a text is not a CVV."""
    number = (
        pl.when(cvv.str.contains(CVV_SHAPE)).then(cvv).str.to_integer(dtype=pl.UInt32, strict=False)
    )
    return pl.lit(all_hashes()).gather(
        number + pl.when(cvv.str.len_bytes() == 4).then(1_000).otherwise(0)
    )


def mistake(cvv_hash: pl.Expr) -> pl.Expr:
    """Return the expression of the mistake in each hash, null if right or unknown.

    Mistakes are those of `_wrong_texts` and `_writings`.
    """
    return cvv_hash.map_batches(_mistakes_of, return_dtype=pl.String, is_elementwise=True)


def hash_text(text: str) -> str:
    """Return base64(sha256(text)), which is the CVV hash if the text is a CVV."""
    return _base64_of_sha256(text.encode())


def _base64_of_sha256(text: bytes) -> str:
    return b64encode(sha256(text).digest()).decode()


def mistaken(kind: str, cvv: str = "007") -> str:
    """Return the hash of a CVV with the mistake `kind`, or with a salt for "unknown".

    Raises KeyError where there is no such kind.
    """
    if kind == "unknown":
        return hash_text(f"salt{cvv}")
    texts = _wrong_texts(cvv)
    if kind in texts:
        return _base64_of_sha256(texts[kind][0])
    return _writings(cvv.encode())[kind][0]


def _mistakes_of(cells: pl.Series) -> pl.Series:
    wrong = set(cells) - _right() - {None}
    kinds = {cell: _mistakes().get(cell) for cell in wrong}  # built on first need
    return pl.Series(cells.name, [kinds.get(cell) for cell in cells], pl.String)


@cache
def _right() -> frozenset[str]:
    return frozenset(all_hashes())


@cache
def all_hashes() -> pl.Series:
    """Return the hash of every CVV, in the order of CVVS."""
    return pl.Series([hash_text(cvv) for cvv in CVVS])


@cache
def _mistakes() -> dict[str, str]:
    """Return the kind of every wrong hash we can name, about 320,000."""
    kind_of_text: dict[bytes, str] = {}
    for cvv in CVVS:
        for kind, texts in _wrong_texts(cvv).items():
            kind_of_text |= dict.fromkeys(texts, kind)
    kinds: dict[str, str] = {}
    for text, kind in kind_of_text.items():
        kinds |= dict.fromkeys(chain(*_writings(text).values()), kind)
    for cvv in CVVS:  # these go before the others
        wrong = _writings(cvv.encode())
        del wrong[""]
        for kind, writings in wrong.items():
            kinds |= dict.fromkeys(writings, kind)
    return kinds


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
    right = b64encode(digest).decode()
    for_urls = urlsafe_b64encode(digest).decode()
    digits = digest.hex()
    spellings = (digits, digits.upper())
    return {
        "": [right],
        "unpadded": [right.rstrip("=")],
        "base64url": [for_urls, for_urls.rstrip("=")] if for_urls != right else [],
        "hex": [*spellings],
        "base64_of_hex": [b64encode(spelling.encode()).decode() for spelling in spellings],
    }
