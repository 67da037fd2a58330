"""The building blocks of the rules as polars expressions: shapes, Luhn, expiry, test cards. Null gives null."""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

PAN_SHAPE = "^[0-9]{16}$"
YEAR_SHAPE = "^[0-9]{2}$"
MONTH_SHAPE = "^(0[1-9]|1[0-2])$"
YYMM_SHAPE = "^[0-9]{2}(0[1-9]|1[0-2])$"
CVV_SHAPE = "^[0-9]{3,4}$"
HASH_SHAPE = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"  # of 32 bytes: the last letter ends in two zero bits
ZIP_SHAPE = "^[0-9]{5}(-[0-9]{4})?$"
CANADIAN_SHAPE = "^[ABCEGHJ-NPRSTVXY][0-9][ABCEGHJ-NPRSTV-Z] [0-9][ABCEGHJ-NPRSTV-Z][0-9]$"
EMAIL_SHAPE = r'^[^\s@,;:<>()"]+@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]$'
PHONE_SHAPE = r"^\+?\(?[0-9]([ ().-]*[0-9]){6,14}$"  # E.164 has at most 15 digits, a local number seven
FILLER_SHAPE = r"^(0{4,}|[xX]{3,}|[-.?*_]+)$"  # 0000, XXX, ---: typed when the value is unknown
SHORTEST_CARD = 13  # digits
LONG_NUMBER = "[0-9][0-9 ._/-]{11,}[0-9]"
CARD_SHAPE = "^[2-6][0-9]{12,18}$"

PUBLISHED = (
    "4242424242424242",
    "4111111111111111",
    "5555555555554444",
    "2223003122003222",
    "6011111111111117",
    "3566002020360505",
    "6200000000000005",
)
GENERATED = "400000"  # the BIN of generated samples: never issued


def _luhn_table() -> NDArray[np.uint16]:
    """Return the Luhn sum of every four-digit group, so that a card number takes five look-ups instead of nineteen."""
    digits = np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10
    doubled = digits[:, ::2] * 2
    digits[:, ::2] = doubled - 9 * (doubled > 9)
    sums: NDArray[np.uint16] = digits.sum(axis=1, dtype=np.uint16)
    return sums


LUHN = _luhn_table()


def luhn_holds(number: pl.Expr) -> pl.Expr:
    """Return whether the check digit of a text of up to 19 digits is right; true for texts that are not a number."""
    digits = number.cast(pl.UInt64, strict=False).fill_null(0)
    return digits.map_batches(_luhn_holds, return_dtype=pl.Boolean, is_elementwise=True)


def _luhn_holds(numbers: pl.Series) -> pl.Series:
    left, total = numbers.to_numpy(), np.zeros(len(numbers), np.uint16)
    for _ in range(5):
        left, group = np.divmod(left, 10_000)
        total += LUHN[group]
    return pl.Series(numbers.name, total % 10 == 0)


def holds_card(text: pl.Expr, pan: pl.Expr) -> pl.Expr:
    """Return whether a text contains the card number `pan`, or is a card number, with or without separators."""
    long = pl.when(text.str.len_bytes() >= SHORTEST_CARD).then(text)
    long = pl.when(long.str.contains(LONG_NUMBER)).then(long)  # null in almost every row: nulls cost nothing below
    bare = long.str.replace_many(dict.fromkeys(" ._/-", ""))  # faster than a regex
    return bare.str.contains(pan, literal=True) | (bare.str.contains(CARD_SHAPE) & luhn_holds(bare))


def expires(year: pl.Expr, month: pl.Expr) -> pl.Expr:
    """Return YYMM, which sorts as text; null if either is unreadable."""
    text = pl.concat_str(year, month)
    return pl.when(text.str.contains(YYMM_SHAPE)).then(text)


def yymm(as_of: date, months: int = 0) -> str:
    """Return the month of `as_of`, or the one `months` later, as YYMM."""
    count = as_of.year * 12 + as_of.month - 1 + months
    return f"{count // 12 % 100:02d}{count % 12 + 1:02d}"


def one_of(words: tuple[str, ...], shape: str) -> str:
    """Return a regex that matches exactly one of `words`, or `shape`."""
    literal = (re.escape(word).replace("\\ ", " ") for word in words)  # polars rejects an escaped space
    return f"^(?:{'|'.join(literal)})$|{shape}"


def is_test_card(pan: pl.Expr) -> pl.Expr:
    """Return whether a PAN is a generated or published test card."""
    return pan.str.starts_with(GENERATED) | pan.is_in(PUBLISHED)
