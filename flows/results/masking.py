"""Make foreign text safe to store: card numbers and CVVs masked."""

import re

import polars as pl

from flows.redaction import redact

LONGEST = 200  # characters of a message that are stored
CARD_DIGITS = 13  # the fewest a card number has
_NUMBER = r"\d(?:[^0-9A-Za-z]{0,12}\d){12,}"
_ENCODED = r"[^ -~]|[\\%&<]"
_SUSPECT = rf"{_NUMBER}|{_ENCODED}|(?i:cv[vcnd]|code)"  # may hold what the redactor finds
_CODED = "[0-9A-Za-z+/_-]{40}"
# ISO, or epoch milliseconds
_MOMENT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?"
    r"|^[1-3][0-9]{12}$"
)


def mask(text: str) -> str:
    """Return a foreign `text` on one line, redacted, at most 200 characters."""
    flat = " ".join(redact(printable(text), foreign=True).split())
    if len(flat) > LONGEST:
        return flat[: LONGEST - 1] + "…"
    return flat


def printable(text: str) -> str:
    """Return `text` without half surrogates, which no file can hold."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def storable(column: str, where: pl.Expr | None = None) -> pl.Expr:
    """Return a column of foreign cells, null where one looks like a card number.

    Also null where `where` is false. At most 200 characters. A timestamp at the start of a cell
    (ISO, or epoch milliseconds) is no card number.
    """
    cell = pl.col(column) if where is None else pl.when(where).then(column)
    long = pl.when(cell.str.len_bytes() >= CARD_DIGITS).then(cell)  # nulls cost nothing to search
    holds_card = long.str.replace(_MOMENT, "").str.contains(_NUMBER).fill_null(value=False)
    suspect = pl.when(~holds_card & cell.str.contains(f"{_SUSPECT}|{_CODED}")).then(cell)
    clean = suspect.map_elements(_clean, pl.Boolean).fill_null(value=True)
    return pl.when(~holds_card & clean).then(cell.str.slice(0, LONGEST)).alias(column)


def _clean(cell: str) -> bool:
    return cell == redact(cell, foreign=re.search(_ENCODED, cell) is not None)
