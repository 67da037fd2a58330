"""Default deny for names: what is kept of the name of a file that somebody else chose.

It is read as texts are (`flows.harmless`), but for what names are made of: letters as words have
them, whether known or not, runs and chunks, dates as `20261120`, numbers of up to eight digits,
UUIDs.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from flows.harmless import READ, kept_text
from flows.harmless_tokens import MOST_DATES, Token, is_date, is_digit, mark
from flows.secret_words import speaks_of_secret, without_accents
from flows.vocabulary import DIGIT_WORDS

LONGEST_WORD = 24
LONGEST_CAPITALS = 14  # Base32 has no other case


@lru_cache(4096)  # a file is named several times, its folder once for each file
def harmless_name(name: str) -> str:
    """Return what is kept of a file's name that somebody else chose: most names are, whole."""
    tokens = _tokens(unicodedata.normalize("NFC", name[:READ]))
    return kept_text(tokens, about_secret=speaks_of_secret(name))


_CASED = re.compile(
    r"[A-Z]?[a-z]+|[A-Z]+|(?:[A-Z]{2,5}(?=[A-Z][a-z])|[A-Z]?[a-z]{2,})"
    r"(?:[A-Z][a-z]{2,}|[A-Z]{2,4}(?=$|[A-Z][a-z]{2}))+"
)
_VOWEL = re.compile("[aeiouy]", re.IGNORECASE)
_CONSONANTS = re.compile("[bcdfghjklmnpqrstvwxz]{7}", re.IGNORECASE)
_SCANNER = re.compile(
    r"(?P<run>(?<![a-z0-9])20[0-9]{6}-[0-9a-f]{8}(?:-r[0-9]{1,2})?(?:-00[0-9]{3})?(?![0-9A-Za-z]))"
    r"|(?P<uuid>(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z]))"
    r"|(?P<day>(?<![0-9])(?:19|20)[0-9]{2}(?P<dash>[-_.]?)[01][0-9](?P=dash)[0-3][0-9]"
    r"(?P<clock>[0-2][0-9][0-5][0-9][0-5][0-9])?(?![0-9]))"
    r"|(?P<coded>(?<![0-9A-Za-z])(?=[A-Za-z]*[0-9])[0-9a-fA-F]{12,}(?![0-9A-Za-z]))"
    r"|(?P<number>(?<![0-9])[0-9]{1,8}(?![0-9]))"
    r"|(?P<letters>[^\W\d_]+)"
    r"|(?P<points>[ ._()\[\]+,&#@!'~-]{1,3})"
    r"|(?P<others>.)",
    re.DOTALL,
)


def _tokens(name: str) -> Iterator[Token]:
    """Yield what a file's name is made of, what is not known to be harmless as its mark."""
    days = 0
    for part in _SCANNER.finditer(name):
        is_day = part["day"] is not None and is_date(_digits_as_date(part[0]))
        days += is_day
        if is_day and days <= MOST_DATES:
            yield Token(part[0], len(part["clock"] or ""))
        else:
            yield _token(part.lastgroup or "", part[0])


def _token(kind: str, text: str) -> Token:
    if kind == "run":
        digest = text[9:17]
        return Token(text, len(digest) if digest.isdecimal() else 0)
    if kind == "number" and text.isascii():
        return Token(text, len(text))
    if kind == "letters" and _is_word(text):
        return Token(text, text.lower() in DIGIT_WORDS)
    is_mixed = kind == "uuid" and len(_LETTERS_OF_HEX.findall(text)) >= _MIXED
    return Token(text) if is_mixed or kind == "points" else mark(text)


_LETTERS_OF_HEX = re.compile("[a-fA-F]")
_MIXED = 5  # letters of a UUID: hardly one in ten thousand has fewer, and a number has none


def _digits_as_date(text: str) -> str:
    digits = "".join(filter(str.isdecimal, text))
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"


@lru_cache(4096)
def _is_word(text: str) -> bool:
    """Return whether letters are a word: of usual length and case, with vowels.

    Of a script without cases any letters are.
    """
    if not text.isalpha() or len(text) > LONGEST_WORD or any(map(is_digit, text)):
        return False
    plain = without_accents(text)
    if not plain.isascii():
        return True
    if plain.isupper() and len(plain) > LONGEST_CAPITALS:
        return False
    if not _CASED.fullmatch(plain) or _CONSONANTS.search(plain):
        return False
    return len(plain) <= 5 or _VOWEL.search(plain) is not None
