r"""Digits, and what may be between two digits of one number: for texts, cuids, links and messages.

A digit is any character that stands for one, in whatever script: `4`, `４`, `٤`, `४`, `⁴`, `④`.
Between two digits of a number may be anything but ASCII letters, at most MOST_BETWEEN characters:
blanks and dashes of every kind, dots, what is invisible. Both are looked for in a plain text, where
digits are those of ASCII, and nothing is percent or HTML encoded.

>>> plain("card ٤٤&nbsp;४４")
'card 44 44'
"""

import html
import re
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

MOST_BETWEEN: Final = 12
BETWEEN: Final = rf"[^0-9A-Za-z]{{1,{MOST_BETWEEN}}}"  # two digits of a number, in a plain text
# a text that has this may not be plain
ENCODED: Final = r"[^\x00-\x7f]|[%&]"

_ENCODING = r"&#?[0-9A-Za-z]{2,8};|%[0-9A-Fa-f]{2}"
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def number_shape(digits: int) -> str:
    """Return the pattern of as many digits in a plain text, with anything that may be between."""
    return rf"[0-9](?:(?:{BETWEEN})?[0-9]){{{digits - 1}}}"


def long_number(digits: int) -> str:
    """Return the shape, for polars, of a text that may have as many digits, plain or not."""
    digit = rf"(?:\p{{N}}|{_ENCODING})"
    return rf"{digit}(?:[^A-Za-z]|{_ENCODING}){{{digits - 2},}}{digit}"


def plain(text: str) -> str:
    """Return a text with digits and letters in ASCII where they have such a form."""
    decoded = html.unescape(unquote(text))
    return _NOT_ASCII.sub(lambda char: plain_char(char[0]), decoded)


@lru_cache(4096)
def plain_char(char: str) -> str:
    """Return the ASCII of a digit of any script or a full-width letter; '' for invisible ones."""
    if unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return ""
    number = unicodedata.numeric(char, -1)
    if number in range(10):
        return str(int(number))
    compatible = unicodedata.normalize("NFKC", char)
    return compatible if compatible.isascii() else char
