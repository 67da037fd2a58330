"""Which identifiers tell a card: they share its digits, or are a code or a digest of a secret.

A cuid is kept in the ledger and written in lists, so nothing may follow from it. It is judged with
its own row at hand, and must not have

* nine or more digits in a row that its card number has too, in either direction, whatever is
  between the digits and however they are spelled or coded;
* a digest of the number, of any CVV, or of the hash of one (`schemas.telling_codes`).

A random identifier shares nine digits with a number in two of ten million cases. In some portfolios
every cuid is a UUID, so whole columns of characters are judged at once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.digits import ENCODED, plain
from schemas.telling_codes import (
    SHORTEST_CODE,
    Chars,
    Flags,
    Identifiers,
    digits_in,
    is_code,
    may_be_digits,
)

SHARED = 9  # digits in a row that two numbers do not have by chance
ALL_BUT_LAST_4 = 12  # digits of a number
# A run of zeros is in many numbers, and in many cuids: `000012345` tells, `400000123` does not.
_MANY_ZEROS = "00000"
_OTHERS = re.compile("[^0-9]+")
# Lengths of texts that are judged together; longer ones are only searched for digits.
_WIDTHS = (SHARED - 1, 16, 24, 36, 48, 64, 128, 256)
# Every SHARED digits of a number have one of its groups of four that begin at these places. In
# neither direction is it one of the zeros that end a BIN and begin a numbered cuid.
_GROUP_STARTS = (5, 7)
_NO_GROUP = 0xFFFF  # a group is its digits in hexadecimal


def tells_card(identifier: pl.Expr, pan: pl.Expr) -> pl.Expr:
    """Return whether each identifier tells its row's card number, or any CVV."""
    return pl.map_batches(
        [identifier, pan], _tells_card, return_dtype=pl.Boolean, is_elementwise=True
    )


def _tells_card(cells: Sequence[pl.Series]) -> pl.Series:
    texts = _unescaped(cells[0])
    tells = np.zeros(len(texts), np.bool_)
    for width, rows in _by_width(texts):
        identifiers = _gathered(texts, rows)
        pans = _gathered(cells[1], rows)
        if width > _WIDTHS[-1]:
            tells[rows] = _shares(identifiers, pans)
        else:
            tells[rows] = _tells(Identifiers(identifiers, pans, width))
    return pl.Series(texts.name, tells)


def _by_width(texts: pl.Series) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield the rows of texts of about the same length, and the longest of these lengths.

    Texts that are too short to tell anything are left out.
    """
    lengths = texts.str.len_bytes().fill_null(0).to_numpy()
    classes = np.searchsorted(_WIDTHS, lengths)
    for number in np.flatnonzero(np.bincount(classes)):
        rows = np.flatnonzero(classes == number)
        if number:
            yield int(lengths[rows].max()), rows


def _gathered(column: pl.Series, rows: NDArray[np.intp]) -> pl.Series:
    return column if len(rows) == len(column) else column.gather(rows)


def _tells(identifiers: Identifiers) -> Flags:
    """Return whether identifiers tell their numbers, or any CVV."""
    tells = _shares_digits(identifiers)
    if identifiers.width < SHORTEST_CODE:
        return tells
    coded = may_be_digits(identifiers)
    digits = map(digits_in, identifiers.texts.gather(coded))
    tells[coded] |= _shares(digits, identifiers.pans.gather(coded))
    return tells | is_code(identifiers)


# Spellings
# --------------------------------------------------------------------------------------------------


def _unescaped(texts: pl.Series) -> pl.Series:
    """Return texts in ASCII, with escapes undone, and with the digits of every script as ours."""
    joined = texts.str.join("").item()
    if joined.isascii() and "%" not in joined and "&" not in joined:
        return texts
    text = pl.lit(texts)
    plain = pl.when(text.str.contains(ENCODED)).then(text).map_elements(_plain, pl.String)
    return pl.select(pl.coalesce(plain, text)).to_series()


def _plain(text: str) -> str:
    return plain(text).encode("ascii", "replace").decode()


# Digits that are shared
# --------------------------------------------------------------------------------------------------


def _shares_digits(identifiers: Identifiers) -> Flags:
    """Return whether identifiers share SHARED digits with their numbers."""
    shares: Flags = identifiers.is_digit.sum(axis=0, dtype=np.uint16) >= SHARED
    if shares.any():
        shares &= _shares_group(identifiers)
        near = np.flatnonzero(shares)
        shares[near] = _shares(identifiers.texts.gather(near), identifiers.pans.gather(near))
    return shares


def _shares_group(identifiers: Identifiers) -> Flags:
    """Return whether identifiers share a group of four digits with their numbers.

    True where the number is none of the usual length.
    """
    numbers = identifiers.numbers.T - ord("0")
    groups = [*_groups_of(numbers)]
    shares: Flags = numbers.max(axis=0) > 9
    is_group = np.empty_like(shares)
    last_four = np.full(len(shares), _NO_GROUP, np.uint16)
    following = np.empty_like(last_four)
    digits = identifiers.columns - ord("0")
    for digit, is_digit in zip(digits, identifiers.is_digit, strict=True):
        # with a mask, in place, this takes a third of the time of np.where
        np.left_shift(last_four, 4, out=following)
        following |= digit
        following ^= last_four
        following &= -is_digit.astype(np.int16).view(np.uint16)
        last_four ^= following
        for group in groups:
            np.equal(last_four, group, out=is_group)
            shares |= is_group
    return shares


def _groups_of(numbers: Chars) -> Iterator[NDArray[np.uint16]]:
    """Yield four groups of digits of numbers, given as columns: two in each direction."""
    digits = numbers.astype(np.uint16)
    for way in (digits, digits[::-1]):
        for start in _GROUP_STARTS:
            first, second, third, fourth = way[start : start + 4]
            yield first << 12 | second << 8 | third << 4 | fourth


def _shares(texts: Iterable[str], pans: Iterable[str | None]) -> Flags:
    """Return whether each text has SHARED digits of its number, in either direction."""
    pairs = zip(texts, pans, strict=True)
    shares = [_shares_with(_digits(text), _digits(pan or "")) for text, pan in pairs]
    return np.array(shares, np.bool_)


def _shares_with(digits: str, number: str) -> bool:
    if number and number[:ALL_BUT_LAST_4] in digits:
        return True  # the ledger has the others, whatever zeros are between
    return any(_has_window(digits, way) for way in (number, number[::-1]))


def _has_window(digits: str, number: str) -> bool:
    starts = range(len(number) - SHARED + 1)
    # each window has one of these middles
    middles = (number[start + 3 : start + SHARED] for start in starts[::4])
    if not any(middle in digits for middle in middles):
        return False
    windows = [number[start : start + SHARED] for start in starts]
    return any(window in digits for window in windows if _MANY_ZEROS not in window)


def _digits(text: str) -> str:
    return _OTHERS.sub("", text)
