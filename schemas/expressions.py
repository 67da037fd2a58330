"""The building blocks of the rules as polars expressions: shapes, Luhn, expiry, test cards.

Null gives null.
"""

from collections.abc import Sequence
from datetime import date
from string import ascii_letters

import numpy as np
import polars as pl

from schemas.digits import BETWEEN, ENCODED, long_number, plain
from schemas.patterns import escaped

# What mapping could not read, since no text begins like this; a rule of its column rejects it.
UNREADABLE = "\ufdd3unreadable"
PAN_SHAPE = "^[0-9]{16}$"
YEAR_SHAPE = "^[0-9]{2}$"
MONTH_SHAPE = "^(0[1-9]|1[0-2])$"
CVV_SHAPE = "^[0-9]{3,4}$"
# of 32 bytes: the last letter ends in two zero bits
HASH_SHAPE = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"
ZIP_SHAPE = "^[0-9]{5}(-[0-9]{4})?$"
CANADIAN_SHAPE = "^[ABCEGHJ-NPRSTVXY][0-9][ABCEGHJ-NPRSTV-Z] [0-9][ABCEGHJ-NPRSTV-Z][0-9]$"
EMAIL_SHAPE = (
    r'^[^\s\p{Cf}\x{FFFD}@,;:<>()"]+@'
    r"([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]$"
)
# E.164 has at most 15 digits, a local number seven
PHONE_SHAPE = r"^\+?\(?[0-9]([ ().-]*[0-9]){6,14}$"
FILLER_SHAPE = r"^(0{4,}|[xX]{3,}|[-.?*_]+)$"  # 0000, XXX, ---: typed when the value is unknown
INVISIBLE_SHAPE = (
    r"[\x{AD}\x{180E}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}"
    r"\x{FEFF}\x{E0000}-\x{E007F}]"
)
DIRECTION_SHAPE = r"[\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]"
REPLACED_SHAPE = r"\x{FFFD}"
# A byte that follows a lead byte of UTF-8, as cp1252 and latin-1 read it.
_FOLLOWING = r"[\x{80}-\x{BF}€‚ƒ„…†‡ˆ‰‹‘’“”•–—˜™›ŠšŒœŽžŸ]"
# UTF-8 read as cp1252: a lead byte, then what a following byte is there; a control character or a
# no-break space is a blank by now. Read as cp437 or cp850 a lead byte is a line of a box, as Mac
# Roman a root.
GARBLED_SHAPE = (
    rf"\x{{E2}}\x{{20AC}}|\x{{EF}}[\x{{BB}}\x{{BF}}]|[\x{{C2}}-\x{{C5}}]{_FOLLOWING}|"
    r"\p{Ll}\x{C3}(?: |$)|(?:^| )\x{C3} \p{Ll}|[├┬]|√."
)
# The same twice: both bytes of a letter became two.
GARBLED_TWICE_SHAPE = (
    r"\x{C3}[\x{82}-\x{85}‚ƒ„…][\x{C2}\x{C5}\x{C6}\x{CB}\x{E2}]|"
    r"\x{C3} \x{C2}(?:[\P{L}ªµº]|$)|\x{C3}\x{A2}\x{E2}"
)
# a card number of which others may see the beginning and the end
MASKED_SHAPE = r"^[0-9][0-9 -]*[Xx*#•.]{2}|[Xx*#•.]{2}[ -]*[0-9]{2,}$"
BIN = 6  # the first digits of a card number, which name the bank
PAN_DIGITS = 16
_FEWEST_DIGITS = 14  # of a card number
LONG_NUMBER = long_number(_FEWEST_DIGITS)
# a phone number has at most 15 digits
LONGEST_PHONE = r"(?:\p{N}[^\p{N}A-Za-z]*){16}"
CARD_SHAPE = "^[2-6][0-9]{13,18}$"  # of 13 digits there are none left
# a number beside others, in a text with one space for all that is between digits
_CARD_GROUPS = (
    "[2-6][0-9]{3}(?: ?[0-9]{4}){3}",
    "[2-6][0-9]{3} [0-9]{6} [0-9]{4,5}",
    "[2-6][0-9]{7} [0-9]{8}",
    "[2-6][0-9](?: [0-9]{2}){7}",
    "[2-6](?: [0-9]){15}",
)
_CARD_WITHIN = rf"(?:^|[^0-9])0*({'|'.join(_CARD_GROUPS)})(?:[^0-9]|$)"
_MADE_CUID = "^cl-[0-9a-f]{12}-[0-9]+$"  # a cuid that is made for a row without one
_DIGEST_SHAPE = "^[0-9A-Fa-f]{32,}$"  # it may begin and end with any digits

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

_DIGITS = np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10
_DOUBLED = _DIGITS[:, ::2] * 2
# The Luhn sum of every four-digit group, so that a card number takes five look-ups instead of
# nineteen.
LUHN = (_DIGITS[:, 1::2] + _DOUBLED - 9 * (_DOUBLED > 9)).sum(axis=1, dtype=np.uint16)


def is_present(column: str) -> pl.Expr:
    """Return whether a cell is there."""
    return pl.col(column).is_not_null()


def matches(column: str, shape: str) -> pl.Expr:
    """Return whether a cell contains a shape, a regular expression."""
    return pl.col(column).str.contains(shape)


def lacks(column: str, shape: str) -> pl.Expr:
    """Return whether a cell does not contain a shape."""
    return ~matches(column, shape)


def lacks_all(column: str, shapes: Sequence[str]) -> pl.Expr:
    """Return whether a cell contains none of these shapes; a null cell does not, so never null."""
    if not shapes:
        return pl.lit(value=True)
    any_shape = "|".join(dict.fromkeys(shapes))
    return ~matches(column, any_shape).fill_null(False)


def luhn_holds(number: pl.Expr) -> pl.Expr:
    """Return whether the check digit of a text of up to 19 digits is right.

    True for texts that are not a number.
    """
    digits = number.cast(pl.UInt64, strict=False).fill_null(0)
    return digits.map_batches(_luhn_holds, return_dtype=pl.Boolean, is_elementwise=True)


def _luhn_holds(numbers: pl.Series) -> pl.Series:
    left = numbers.to_numpy()
    total = np.zeros(len(numbers), np.uint16)
    for _ in range(5):
        left, group = np.divmod(left, 10_000)
        total += LUHN[group]
    return pl.Series(numbers.name, total % 10 == 0)


def holds_card(text: pl.Expr, pan: pl.Expr) -> pl.Expr:
    """Return whether a text contains a card number, with or without separators.

    Anywhere, the number `pan` or one of its BIN; any other, where its digits begin and end.
    """
    return pl.map_batches([text, pan], _holds_card, return_dtype=pl.Boolean, is_elementwise=True)


def _holds_card(cells: Sequence[pl.Series]) -> pl.Series:
    """Judge the few texts that have as many digits as a card, without a letter between."""
    texts, pans = cells
    suspect = texts.str.len_bytes() >= _FEWEST_DIGITS
    if suspect.any():  # so short identifiers cost nothing
        suspect = texts.str.contains(LONG_NUMBER)
    if not suspect.any():  # the usual block
        return suspect
    rows = pl.select(texts.alias("text"), pans.alias("pan")).with_row_index().filter(suspect)
    holding = _rows_with_card(rows)["index"]
    return suspect & pl.int_range(len(suspect), eager=True).is_in(holding.implode())


def _rows_with_card(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows (index, text, pan) whose text contains a card number."""
    text = pl.col("text")
    pan = pl.col("pan")
    bare = pl.col("bare")  # the text without what may be between digits
    unseparated = text.str.len_bytes() == bare.str.len_bytes()
    own_bin = bare.str.find(pan.str.slice(0, BIN), literal=True)
    candidates = (
        bare.str.strip_chars(ascii_letters).str.strip_chars_start("0"),
        _bare(pl.when(~unseparated).then(text).str.extract(_CARD_WITHIN)),
        pl.when(bare.str.len_bytes() > PAN_DIGITS).then(bare.str.slice(own_bin, PAN_DIGITS)),
    )
    is_card = [number.str.contains(CARD_SHAPE) & luhn_holds(number) for number in candidates]
    is_own = bare.str.contains(pan, literal=True).fill_null(value=False)
    is_digest = bare.str.contains(_DIGEST_SHAPE) & bare.str.contains("[A-Fa-f]")
    is_generated = text.str.contains(_MADE_CUID)
    return (
        rows.with_columns(_spaced(text), is_generated.alias("is_generated"))
        .with_columns(_bare(text).alias("bare"))
        .filter(is_own | ~is_digest & ~pl.col("is_generated") & pl.any_horizontal(is_card))
    )


def _spaced(text: pl.Expr) -> pl.Expr:
    """Return plain texts with one space for whatever is between digits or words."""
    encoded = pl.when(text.str.contains(ENCODED)).then(text)
    plain_text = pl.coalesce(encoded.map_elements(plain, pl.String), text)
    return plain_text.str.replace_all(BETWEEN, " ")


def _bare(spaced: pl.Expr) -> pl.Expr:
    return spaced.str.replace_all(" ", "", literal=True)


def yymm(as_of: date, months: int = 0) -> str:
    """Return the month of `as_of`, or the one `months` later, as YYMM."""
    count = as_of.year * 12 + as_of.month - 1 + months
    return f"{count // 12 % 100:02d}{count % 12 + 1:02d}"


def one_of(words: tuple[str, ...], shape: str) -> str:
    """Return a regex that matches exactly one of `words`, or `shape`."""
    return f"^(?:{'|'.join(map(escaped, words))})$|{shape}"


def is_test_card(pan: pl.Expr) -> pl.Expr:
    """Return whether a PAN is a generated or published test card."""
    return pan.str.starts_with(GENERATED) | pan.is_in(PUBLISHED)
