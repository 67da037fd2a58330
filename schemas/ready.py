"""Rows that are ready as they come: shapes of cells that need no trimming and break no rule of `schemas.portal`.

The shapes are narrower than the rules: a cell that has its column's shape is accepted by every rule that looks at that
cell alone (placeholders apart); one that has not may still be a good one, and is asked rule by rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from schemas.expressions import FILLER_SHAPE
from schemas.places import CANADA, US
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CUSTOMER_KEY,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)

NEEDED = (NAME_ON_CARD, ADDRESS1, CITY, FIRST_NAME, LAST_NAME)
FREE = (NAME_ON_CARD, CUSTOMER_KEY, NICKNAME, ADDRESS1, ADDRESS2, CITY, FIRST_NAME, LAST_NAME)  # may hold commas
_SEEN = r"!#-+\--~¡-ſ"  # what is seen of ASCII without comma and quote, and of the Latin letters and signs after it
_NO_DIGIT = r"!#-+\-./:-~¡-ſ"
_LETTER = "A-Za-zÀ-ÖØ-öø-ÿ"

WORDS = {COUNTRY: (US, CANADA), IS_PRIMARY: ("TRUE", "FALSE")}  # all that these may hold

_HASH = "[A-Za-z0-9+/]{43}="
_CVV = "[0-9]{3,4}"
_CELLS = {
    # Never thirteen digits in a row, whatever parts them: it cannot hold a card number.
    CUID: r"(?:[0-9._/-]{0,12}[!#-+:-^`-~])*[0-9._/-]{0,12}",
    PAN: "[1-9][0-9]{15}",
    YEAR: "[0-9]{2}",
    MONTH: "(?:0[1-9]|1[0-2])",
    CVV_HASH: "[A-Za-z0-9+/=]+",  # made here, or found among those of all CVVs
    CVV: "",
    SUBNATIONAL: "[A-Z]{2}",
    COUNTRY: f"(?:{'|'.join(WORDS[COUNTRY])})",
    POSTAL_CODE: "(?:[0-9]{5}|[A-Z][0-9][A-Z] [0-9][A-Z][0-9])",
    EMAIL: r"(?:[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9])?",
    PHONE: r"(?:\+?\(?[0-9](?:[ ().-]*[0-9]){6,14})?",
    IS_PRIMARY: f"(?:{'|'.join(WORDS[IS_PRIMARY])})",
}


def ready_line(order: Sequence[str], *, quotes: bool) -> str:
    """Return the regex of a row's line in the upload file, columns in the portal's `order`, some quoted or none."""
    return f"^{','.join(_cell(name, quotes) for name in order)}$"


def plain_line(order: Sequence[str], head: Collection[str], *, fill_name: bool) -> str:
    """Return the regex of a line that is ready in an extract of the portal's own form, but for its CVV and name.

    No cell of `head` is quoted. Where `fill_name` and there is no name on the card, first and last name make one.
    """
    cells = {CVV_HASH: f"(?:{_HASH})?", CVV: f"(?:{_CVV})?"}
    if fill_name:
        first, last = (_free(name not in head, named=True) for name in (FIRST_NAME, LAST_NAME))
        cells |= {FIRST_NAME: first, LAST_NAME: last, NAME_ON_CARD: f"(?:{_cell(NAME_ON_CARD, quotes=False)})?"}
    return f"^{','.join(cells.get(name) or _cell(name, name not in head) for name in order)}$"


def is_secret(word: str) -> bool:
    """Return whether a word could be a CVV or a CVV hash."""
    return re.fullmatch(f"{_HASH}|{_CVV}", word) is not None


def may_be(name: str, placeholder: str) -> bool:
    """Return whether a cell of a column's shape could be a placeholder, given as a regex."""
    return name not in WORDS or any(re.search(placeholder, word) for word in WORDS[name])


def placeholder_between_commas(words: Iterable[str]) -> str:
    """Return the regex that finds a whole field of an upload file's line that stands for nothing, the ends apart."""
    whole = "|".join(re.escape(_quoted(word)).replace("\\ ", " ") for word in words)
    return f",(?:{whole}|{FILLER_SHAPE.strip('^$')}),"


def _cell(name: str, quotes: bool) -> str:
    if name not in FREE:
        return _CELLS[name]
    cell = _free(quotes, named=name == NAME_ON_CARD)
    return cell if name in NEEDED else f"(?:{cell})?"


def _free(quotes: bool, *, named: bool) -> str:
    """Return the regex of a free text; `named` as the name on a card, `quotes` where it needs them and only there."""
    first, more = (f"[{_LETTER}]", _NO_DIGIT) if named else (f"[{_SEEN}]", _SEEN)
    cell = f"{first}(?:[ {more}]*[{more}])?"
    if not quotes:
        return cell
    inside = f'(?:[,{more}]|"")'
    begin = f"{first}[ {more}]*" if named else f"(?:{first}[ {more}]*)?"
    return f'(?:{cell}|"{begin}(?:,|"")(?:(?: |{inside})*{inside})?")'


def _quoted(word: str) -> str:
    return '"{}"'.format(word.replace('"', '""')) if re.search('[",]', word) else word
