"""Make foreign text safe to store (card numbers and CVVs masked) and to open in a spreadsheet."""

from __future__ import annotations

import re

import polars as pl

MASK = "[masked]"
LONGEST = 200  # characters of a message that are stored

# Up to three separators between digits: 4-4-4-4 with anything but letters between is still a card number, and so
# are digits left escaped (\u0034, \x34) in a text that is no JSON.
CARD_DIGITS = 13  # the fewest a card number has
CARD_NUMBER = r"\d(?:(?:\\+(?:u00|x)3|[^0-9A-Za-z]){0,3}\d){12,}"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?|^[1-3][0-9]{12}$"
_CARD_NUMBER = re.compile(CARD_NUMBER)
_CVV = re.compile(
    r"((?:cv[vcn]2?|csc|cid|security[ _-]?code|verification[ _-]?(?:value|code))[^0-9A-Za-z]{1,6}"
    r"(?:(?:is|was|of|value|code|got|received)[^0-9A-Za-z]{1,4}){0,3})\d{3,4}(?!\d)",
    re.IGNORECASE,
)
# SHA-256 as Base64 or hex: a table of all CVVs reverses it, so the hash of a CVV is a CVV.
_HASH = re.compile(r"[A-Za-z0-9+/_-]{43}=|(?<![0-9A-Fa-f])[0-9A-Fa-f]{64}(?![0-9A-Fa-f])")
_FORMULA = r"^[=+\-@\t\r]"


def mask(text: str) -> str:
    """Return `text` on one line, without card numbers, CVVs and hashes, at most 200 characters."""
    clean = _CVV.sub(rf"\g<1>{MASK}", _CARD_NUMBER.sub(MASK, _HASH.sub(MASK, printable(text))))
    flat = " ".join(clean.split())
    return flat if len(flat) <= LONGEST else flat[: LONGEST - 1] + "…"


def printable(text: str) -> str:
    """Return `text` without half surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def storable(column: str, where: pl.Expr | None = None) -> pl.Expr:
    """Return a column of foreign cells, null where one looks like a card number or `where` is false.

    At most 200 characters. A timestamp at the start of a cell (ISO, or epoch milliseconds) is no card number.
    """
    cell = pl.col(column) if where is None else pl.when(where).then(column)
    long = pl.when(cell.str.len_bytes() >= CARD_DIGITS).then(cell)  # nulls cost nothing to search
    holds_card = long.str.replace(_MOMENT, "").str.contains(CARD_NUMBER).fill_null(value=False)
    return pl.when(~holds_card).then(cell.str.slice(0, LONGEST)).alias(column)


def spreadsheet_safe(column: str) -> pl.Expr:
    """Return the column with `'` before cells that a spreadsheet would run as a formula; never for links.csv."""
    cell = pl.col(column)
    return pl.when(cell.str.contains(_FORMULA)).then("'" + cell).otherwise(cell).alias(column)
