"""Make foreign text safe to store: card numbers and CVVs masked."""

import re

import polars as pl

from flows.redaction import cvv_hashes, redact, shows_card

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


def showing_cards(rows: pl.DataFrame) -> pl.Series:
    """Return the `result_row` of the rows whose `url` shows a card number or a CVV hash.

    `rows`: result_row, url, last_4_sent (the digits of whom the URL is for).
    """
    url = pl.col("url")
    suspect = rows.filter(url.str.contains(_SUSPECT))  # nearly none
    coded = rows.filter(url.str.contains(_CODED)).select("result_row", "url", "last_4_sent")
    if coded.height:  # looking for them all takes 30 ms, and each by itself too long for 200,000
        spellings = pl.concat_str(
            url.str.replace_many({"-": "+", "_": "/"}), url.str.to_lowercase()
        )
        beginnings = list({beginning[:8] for beginning in cvv_hashes()})
        coded = coded.filter(spellings.str.contains_any(beginnings))
    candidates = pl.concat([suspect.select(coded.columns), coded])
    showing = [row for row, link, last_4 in candidates.iter_rows() if shows_card(link, last_4)]
    return pl.Series("result_row", showing, rows["result_row"].dtype)
