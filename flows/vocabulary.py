"""The words that are known to be harmless in a text that somebody else wrote, and those for digits.

They stand in `words.txt`: English, the trade's and programs' terms, and what usual error messages
are made of in other languages. A word that is not there may be a code or a digit in a language that
nobody here speaks, so that nothing is kept of it but its length.
"""

import re
import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

_FILE = Path(__file__).with_name("words.txt")

# Every word of `words.txt` that is one for a digit, in any language.
DIGIT_WORDS: Final = frozenset((
    "cinco", "cinque", "cuatro", "cztery", "deux", "dois", "dos", "duas", "dwie", "dziewięć",
    "een", "eight", "ein", "eine", "ett", "five", "four", "jeden", "negen", "nine", "nueve",
    "one", "osiem", "quatre", "quatro", "quattro", "sechs", "sette", "seven", "sieben", "siedem",
    "siete", "six", "sju", "sześć", "third", "three", "trois", "três", "två", "twee", "two", "um",
    "uma", "un", "una", "une", "uno", "zero", "zeven", "zwei", "восемь", "две", "девять", "один",
    "четыре", "шесть",
))  # fmt: skip
# Those that mean something else more often: they are digits beside one of the words above.
ALSO_DIGITS: Final = frozenset((
    "do", "du", "due", "en", "et", "fire", "first", "hat", "no", "null", "ok", "rua", "second",
    "sei", "sep", "set", "sia", "to", "too",
))  # fmt: skip

# a word that is neither in lower case nor in capitals may be several, as in postalCode
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHORTEST_HUMP = 2
# the letters of scripts without spaces between words: Japanese and Chinese
UNSPACED: Final = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff々ー"
_UNSPACED = re.compile(f"[{UNSPACED}]+")


@cache
def words() -> frozenset[str]:
    """Return the words of `words.txt`; of Japanese and Chinese, the pairs of letters in words."""
    text = re.sub("^#.*", "", _FILE.read_text("utf-8"), flags=re.MULTILINE)
    return frozenset(text.split())


@lru_cache(4096)
def is_known(text: str) -> bool:
    """Return whether letters are a known word, or several written as one (`postalCode`)."""
    if not text.isalpha() or any(map(_is_numeric, text)):
        return False
    if _UNSPACED.fullmatch(text):
        return all(pair in words() for pair in _neighbours(text))
    if _is_one_word(text):
        return text in words() or (len(text) > 1 and text.lower() in words())
    humps = _HUMPS.findall(text)
    return "".join(humps) == text and all(map(_is_hump, humps))


def _neighbours(text: str) -> list[str]:
    return [text[place : place + 2] for place in range(max(len(text) - 1, 1))]


def _is_one_word(text: str) -> bool:
    return text.islower() or text.isupper() or text.istitle()


def _is_hump(hump: str) -> bool:
    return len(hump) >= _SHORTEST_HUMP and hump.lower() in words()


def _is_numeric(char: str) -> bool:
    return unicodedata.numeric(char, None) is not None
