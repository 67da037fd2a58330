"""Codes and digests in identifiers: of the row's card number, of any CVV, of the hash of any CVV.

An identifier is read as hexadecimal where it has, or ends in, such digits, and else as Base64,
whatever is between. A card number is found as its characters, as an integer and as a digest of any
of DIGESTS, a CVV as a digest of which the beginning is enough. Of digests, eight bytes are
compared.
"""

import hashlib
from base64 import b32decode, b64decode
from binascii import a2b_base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.cvv import CVVS, all_hashes
from schemas.expressions import PAN_DIGITS

DIGESTS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
SHORTEST_CODE = 12  # characters of nine digits in Base64

Chars = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Integers = NDArray[np.uint64]
Rows = NDArray[np.intp]

_SIZES = {hashlib.new(name, usedforsecurity=False).digest_size: name for name in DIGESTS}
_PREFIX = 7  # hexadecimal digits that may be before a digest, as in `C-`
_BEGINNING = 20  # characters of a code of a CVV from which on it is found
_INTEGER = 13  # the last hexadecimal digits of a number, of 13 or 14, which are compared
_COMPARED = 8  # bytes
_SIEVE_BITS = 20  # by which it is looked up whether a digest can be one of a CVV
_SIEVED_BITS = np.uint64(8 * _COMPARED - _SIEVE_BITS)
_PLAIN_BASE64 = bytes.maketrans(b"-_", b"+/")
_DIGIT_LETTERS = (  # of digits in hexadecimal, with separators, in Base64 and Base32; and where
    ("3", (0, 2, 4)),
    ("3", (0, 3, 6)),
    ("MN", (0, 4, 8)),
    ("GHgh", (0, 8)),
)


class Identifiers:
    """Identifiers in ASCII that have about the same length, and the card numbers of their rows."""

    def __init__(self, texts: pl.Series, pans: pl.Series, width: int) -> None:
        self.texts = texts
        self.pans = pans
        self.width = width

    @cached_property
    def chars(self) -> Chars:
        """A row of characters for each identifier, with spaces behind it."""
        return _characters(self.texts, self.width)

    @cached_property
    def columns(self) -> Chars:
        """The same as columns: the first characters of all identifiers, the second, and so on."""
        return np.ascontiguousarray(self.chars.T)

    @cached_property
    def is_digit(self) -> Flags:
        """Which characters, as columns, are digits."""
        return self.columns - ord("0") < 10

    @cached_property
    def numbers(self) -> Chars:
        """A row of digits for each card number; one of another length is a row of spaces."""
        is_other = self.pans.str.len_bytes().fill_null(0) != PAN_DIGITS
        pans = self.pans
        if is_other.any():
            pans = pans.set(is_other, " " * PAN_DIGITS)
        return _characters(pans, PAN_DIGITS)


def _characters(texts: pl.Series, width: int) -> Chars:
    joined = texts.str.join("").item()
    if len(joined) < len(texts) * width:
        joined = texts.str.pad_end(width, " ").str.join("").item()
    return np.frombuffer(joined.encode(), np.uint8).reshape(-1, width)


# Digits in codes
# --------------------------------------------------------------------------------------------------


def may_be_digits(identifiers: Identifiers) -> Rows:
    """Return the rows of identifiers that may be a code of digits."""
    may_be = np.zeros(len(identifiers.texts), np.bool_)
    for letters, places in _DIGIT_LETTERS:
        is_like = np.ones_like(may_be)
        for place in places:
            is_like &= _is_one_of(letters)[identifiers.columns[place]]
        may_be |= is_like
    return np.flatnonzero(may_be)


@cache
def _is_one_of(letters: str) -> Flags:
    """Return for every byte whether it is one of these letters."""
    return np.isin(np.arange(256), [ord(letter) for letter in letters])


def digits_in(text: str) -> str:
    """Return the digits that an identifier is a code of, or nothing."""
    letters = "".join(filter(str.isalnum, text))
    for decode, code in ((bytes.fromhex, letters), (_base32, letters), (_base64, text.rstrip("="))):
        with suppress(ValueError):
            content = decode(code)
            if content.isdigit():
                return content.decode()
    return ""


def _base32(text: str) -> bytes:
    return b32decode(text + "=" * (-len(text) % 8), casefold=True)


def _base64(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


# Integers and digests
# --------------------------------------------------------------------------------------------------


class _Read(NamedTuple):
    """The identifiers that have `length` characters of an alphabet: their rows, and only these."""

    length: int
    rows: Rows
    chars: Chars


def is_code(identifiers: Identifiers) -> Flags:
    """Return which identifiers are an integer or a digest of their number, or a digest of a CVV."""
    codes = np.zeros(len(identifiers.texts), np.bool_)
    lower = identifiers.columns | 0x20
    is_letter = lower - ord("a") < 26
    is_hexadecimal = identifiers.is_digit | (lower - ord("a") < 6)
    _begin_after_last(is_letter & ~is_hexadecimal, is_hexadecimal)
    for read in _read(identifiers, is_hexadecimal, _INTEGER):
        codes[read.rows] |= _is_hexadecimal_code(read, identifiers.numbers)
    is_other = is_hexadecimal.sum(axis=0, dtype=np.uint16) < _BEGINNING
    if is_other.any() and identifiers.width >= _BEGINNING:
        is_base64 = identifiers.is_digit | is_letter
        for char in "+/-_":
            is_base64 |= identifiers.columns == ord(char)
        for read in _read(identifiers, is_base64 & is_other, _BEGINNING):
            codes[read.rows] |= _is_base64_code(read, identifiers.numbers)
    return codes


def _begin_after_last(is_other: Flags, is_kept: Flags) -> None:
    """Keep of each identifier only what comes after the last of the other characters."""
    is_after = np.ones(is_kept.shape[1], np.bool_)
    for is_other_here, is_kept_here in zip(is_other[::-1], is_kept[::-1], strict=True):
        is_after &= ~is_other_here
        is_kept_here &= is_after


def _read(identifiers: Identifiers, is_kept: Flags, shortest: int) -> Iterator[_Read]:
    """Yield the identifiers by how many characters are kept of them; they are in columns."""
    lengths = is_kept.sum(axis=0, dtype=np.uint16)
    for length in np.flatnonzero(np.bincount(lengths)):
        if length < shortest:
            continue
        rows = np.flatnonzero(lengths == length)
        is_kept_here = is_kept if len(rows) == len(lengths) else is_kept[:, rows]
        in_all = is_kept_here.all(axis=1)
        chars = identifiers.chars if len(rows) == len(lengths) else identifiers.chars[rows]
        if in_all.sum() == length:  # twice as fast as the other way
            chars = chars[:, in_all]
        else:
            chars = chars[is_kept_here.T].reshape(-1, length)
        yield _Read(int(length), rows, chars)


def _is_hexadecimal_code(read: _Read, numbers: Chars) -> Flags:
    length, rows, chars = read
    if length < _BEGINNING:
        ending = _from_hexadecimal(chars[:, -_INTEGER:])
        is_number: Flags = ending == _from_decimal(numbers[rows]) % 16**_INTEGER
        return is_number
    codes = _begins_as_cvv(_from_hexadecimal(chars))
    for size in _SIZES:
        if 2 * size <= length <= 2 * size + _PREFIX:
            digest = _from_hexadecimal(chars[:, -2 * size :])
            codes |= digest == _digests(size, numbers[rows])
            if length > 2 * size:
                codes |= _begins_as_cvv(digest)
    return codes


def _is_base64_code(read: _Read, numbers: Chars) -> Flags:
    length, rows, chars = read
    compared = chars[:, :12].tobytes().translate(_PLAIN_BASE64)
    digest = _beginning(a2b_base64(compared), 9)
    codes = _begins_as_cvv(digest)
    for size in _SIZES:
        if length == -(-size * 4 // 3):
            codes |= digest == _digests(size, numbers[rows])
    return codes


def _from_hexadecimal(chars: Chars) -> Integers:
    """Return the integer that the first 16 hexadecimal digits of each row are."""
    digits = np.full((len(chars), 2 * _COMPARED), ord("0"), np.uint8)
    first = chars[:, : 2 * _COMPARED]
    digits[:, -first.shape[1] :] = first
    return _beginning(bytes.fromhex(digits.tobytes().decode()), _COMPARED)


def _from_decimal(chars: Chars) -> Integers:
    integers = np.zeros(len(chars), np.uint64)
    for digit in (chars - ord("0")).T:
        integers = integers * np.uint64(10) + digit
    return integers


def _beginning(content: bytes, size: int) -> Integers:
    """Return the first bytes of each `size` as an integer."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, size)
    return np.ascontiguousarray(rows[:, :_COMPARED]).view(">u8").ravel().astype(np.uint64)


def _digests(size: int, numbers: Chars) -> Integers:
    """Return how the digests of this size of each number begin."""
    texts = numbers.tobytes()
    starts = range(0, len(texts), PAN_DIGITS)
    return _digests_of(_SIZES[size], (texts[start : start + PAN_DIGITS] for start in starts))


def _digests_of(name: str, texts: Iterable[bytes]) -> Integers:
    """Return how the digests of texts begin."""
    digest = getattr(hashlib, name)  # half the time of hashlib.new
    digests = [digest(text, usedforsecurity=False).digest()[:_COMPARED] for text in texts]
    return _beginning(b"".join(digests), _COMPARED)


class _Known(NamedTuple):
    """Beginnings of digests, sorted, and which of their first bits any of them has."""

    beginnings: Integers
    sieve: Flags


def _begins_as_cvv(digests: Integers) -> Flags:
    known = _codes_of_cvvs()
    is_code: Flags = known.sieve[digests >> _SIEVED_BITS]
    candidates = digests[is_code]
    places = np.searchsorted(known.beginnings, candidates)
    is_code[is_code] = known.beginnings[places] == candidates
    return is_code


@cache
def _codes_of_cvvs() -> _Known:
    """Return how the digests of every CVV and of its hash begin."""
    secrets = "\n".join((*CVVS, *all_hashes())).encode().split()
    beginnings = np.concatenate([_digests_of(name, secrets) for name in DIGESTS])
    sieve = np.zeros(1 << _SIEVE_BITS, np.bool_)
    sieve[beginnings >> _SIEVED_BITS] = True
    last = np.uint64(2**64 - 1)  # so that each integer has its place before one of these
    return _Known(np.sort(np.append(beginnings, last)), sieve)
