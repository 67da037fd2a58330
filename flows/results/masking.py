"""Make foreign cells safe to store: what is not known to be harmless is a mark, or is left out."""

import re
from functools import lru_cache

import polars as pl

from flows.harmless import harmless, known_text
from flows.harmless_names import harmless_name
from flows.redaction import redact

LONGEST = 200  # characters of a message that are stored
# Cells that need no reading: a date, and a short name with a short number.
_PLAIN = r"^(?:(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]|[A-Za-z]{0,12}[-_.]?[0-9]{1,8})$"
_ABBREVIATION = r"(?i)cv[vcnd]|csc|cid"  # beside which no number is stored
_SHOP = re.compile(r"[^\W\d_]+(?:(?: | & |-|'|’)[^\W\d_]+){0,2}")  # a few words
_HOST = re.compile(r"(?:[a-z-]+[0-9]{0,4}[a-z-]*\.){1,5}[a-z]{2,24}", re.IGNORECASE)


@lru_cache(4096)
def mask(text: str, *, secret: bool = False, known: tuple[str, ...] = ()) -> str:
    """Return what is kept of a foreign text, at most 200 characters.

    `secret`: it is about a CVV or a security answer. `known`: texts that are kept (`known_text`).
    """
    whole = printable(text)
    kept = None if secret else known_text(whole, known)
    if kept is None:
        kept = harmless(whole, secret=secret)
    if len(kept) > LONGEST:
        return kept[: LONGEST - 1] + "…"
    return kept


def mask_key(key: str) -> str:
    """Return what is kept of the key of a dropped file: its folders and its name."""
    kept = "/".join(map(harmless_name, printable(key).split("/")))
    return redact(kept)


def mask_host(text: str) -> str:
    """Return the name of a host, or of a shop; of any other text what is kept of it."""
    if len(text) <= LONGEST and _HOST.fullmatch(text):
        return text
    return harmless_name(text) if _SHOP.fullmatch(text) else mask(text)


def printable(text: str) -> str:
    """Return `text` without half surrogates, which no file can hold."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def storable(column: str, where: pl.Expr | None = None) -> pl.Expr:
    """Return a column of foreign cells, each as what is kept of it; null where `where` is false.

    Dates stay, and names with a number of at most eight digits.
    """
    cell = pl.col(column) if where is None else pl.when(where).then(column)
    names_secret = cell.str.contains(_ABBREVIATION)
    is_plain = (cell.str.contains(_PLAIN) & ~names_secret).fill_null(value=True)
    # few are not plain, and nulls cost nothing
    read = pl.when(~is_plain).then(cell).map_elements(mask, pl.String)
    return pl.when(is_plain).then(cell).otherwise(read).alias(column)
