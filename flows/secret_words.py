"""The names of secrets in a text that somebody else wrote: of a CVV, a card number, an answer.

A name is found in snake, kebab, camel or Pascal case, in capitals or small letters, in one word,
and with its characters spelled otherwise (`flows.spellings`): words are split where the case
changes, and at digits, blanks, dashes, dots and slashes.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from flows.spellings import readings

_GAP = "[ _-]?"
_ENGLISH_ORDER = (
    r"(?:verification|security|validation|karten(?:prue?f)?|prue?f|sicherheits|kontroll"
    r"|verifikations|verifizierungs|validierungs|beveiligings|veiligheids|controle)"
    rf"{_GAP}(?:code|value|digits?|wert|ziffern?|zahl)"
    rf"|(?<!dis)(?:card|kaart){_GAP}(?:code|digits?)"
    rf"|(?:verification|security|validation|prue?f|sicherheits|kontroll){_GAP}(?:number|nummer)"
)
_ROMANCE_ORDER = (
    r"(?:code|codigo|codice|numero|valeur|valor|chiffres?|cifras?)"
    rf"(?:{_GAP}(?:de|da|do|di|d)(?:{_GAP}(?:la|el))?{_GAP}"
    r"(?:verifica|validation|validacion|validacao|convalida|control|carte|tarjeta|cartao|carta)"
    # without a preposition it is English, unless it is one word
    r"|[_-]?(?:verifica|validation|validacion|validacao|control)"
    rf"|{_GAP}(?:(?:de|da|do|di){_GAP})?(?:la{_GAP})?(?:securite|seguridad|seguranca|sicurezza))"
    r"|[ck]r[yi]ptogram"
)
# How a card's verification code is called, apart from its abbreviations, without accents.
CVV_NAMES: Final = f"{_ENGLISH_ORDER}|{_ROMANCE_ORDER}"
# Cheap to look for: every name of such a code has one of these.
CVV_SIGNS: Final = (
    "cv", "csc", "cid", "cod", "value", "num", "wert", "ziffer", "zahl", "digit", "valeur", "valor",
    "chiffre", "cifra", "ptogram",
)  # fmt: skip
_CVV = re.compile(
    "cv[vcnd]|(?<![a-z])(?:csc|cid|cav|pin)(?![a-z])"
    rf"|(?:security|sicherheits){_GAP}(?:answer|question|antwort|frage)|{CVV_NAMES}"
)
_CARD_NUMBER = re.compile(
    rf"(?<![a-z])pans?(?![a-z])|(?:card|karten|kaart){_GAP}(?:number|num|no|nr|nummer)(?![a-z])"
    rf"|numero{_GAP}(?:de|da|do|di|della){_GAP}(?:la{_GAP})?(?:carte|tarjeta|cartao|carta)"
)
_CASE_CHANGE = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN_WORDS = re.compile(r"[\s\d_./\u2010-\u2015-]+")


def speaks_of_secret(text: str) -> bool:
    """Return whether a text mentions a CVV, a card number or a security answer, in any spelling."""
    return speaks_of_cvv(text) or _speaks(_CARD_NUMBER, text)


def speaks_of_cvv(text: str) -> bool:
    """Return whether a text mentions a CVV, a PIN or a security answer, in any spelling."""
    return _speaks(_CVV, text)


@lru_cache(2048)
def _speaks(secret: re.Pattern[str], text: str) -> bool:
    texts = (without_accents(reading.text) for reading in readings(text))
    return any(_names(secret, unaccented) for unaccented in texts)


def without_accents(text: str) -> str:
    """Return a text of the same length, with plain Latin letters in the place of accented ones."""
    if text.isascii():
        return text
    return "".join(unicodedata.normalize("NFD", char)[0] for char in text)


def _names(secret: re.Pattern[str], text: str) -> bool:
    """Return whether the words of a text, or its letters as they are, name a secret."""
    in_words = _BETWEEN_WORDS.sub(" ", _CASE_CHANGE.sub(" ", text))
    return any(secret.search(form.lower()) for form in (in_words, text))
