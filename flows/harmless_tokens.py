"""What a foreign text is made of: words, numbers, names, dates, links, and what lies between them.

Each part is a token. What is not known to be harmless already is its mark (`mark`); what the others
say together is judged by `flows.harmless`.
"""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from typing import Final, NamedTuple

from flows.vocabulary import UNSPACED, is_known

OWN: Final = "\ue000"  # for private use: no text that is read has it
MOST_UNNAMED: Final = 2  # digits of numbers of which nothing says what they are: a CVV has three
MOST_DATES: Final = 3

LINK = "[link]"
MAIL = "[e-mail address]"
# a mark, until those side by side are joined: its length and its kind
BEGIN = "\ue001"
_MARK = "\ue001{length} {kind}\ue002"


class Token(NamedTuple):
    """A part of a text that may stay, where the whole text lets it; `digits`: how many it uses."""

    text: str
    digits: int = 0
    is_settled: bool = False  # a mark, or a name, whose digits are no secret
    is_named: bool = False  # a number of which its form or a word beside it says what it is


def marked(text: str) -> str:
    """Return the mark for a text that is not kept."""
    if all(map(is_digit, text)):
        kind = "digits"
    elif _HEXADECIMAL.fullmatch(text):
        kind = "hexadecimal"
    elif _BASE64.fullmatch(text):
        kind = "Base64"
    elif text.isalpha():
        kind = "letters"
    else:
        kind = "characters"
    return _MARK.format(length=len(text), kind=kind)


def is_digit(char: str) -> bool:
    """Return whether a character stands for a number, in any script."""
    return unicodedata.numeric(char, None) is not None


_HEXADECIMAL = re.compile("[0-9A-Fa-f]{16,}")
_BASE64 = re.compile("[0-9A-Za-z+/_-]{16,}={0,2}")
UNITS = frozenset((
    "character", "characters", "char", "chars", "letter", "letters", "digit", "digits", "byte",
    "bytes", "kb", "mb", "row", "rows", "line", "lines", "time", "times", "ms", "millisecond",
    "milliseconds", "second", "seconds", "minute", "minutes", "hour", "hours", "day", "days",
    "attempt", "attempts", "field", "fields", "zeichen", "zeilen", "ziffern", "sekunden",
    "minuten", "caractères", "lignes", "caracteres", "líneas", "linhas", "caratteri", "righe",
    "tekens", "regels",
))  # fmt: skip
# of three digits and more only what limits usually are: any other may be a CVV
_LIMITS = "[125]000?|[346789]00|120|150|250|128|25[56]|512|1024|2048|4096"
_STATUS = "1(?:0[0-3])|20[0-8]|30[0-8]|4(?:0[0-9]|1[0-8]|2[1-9]|31|51)|50[0-8]|511"
_BEFORE_STATUS = "".join(
    f"|(?<={word}[ :=])|(?<={word}: )"
    for word in ("HTTP", "HTTP/1.1", "tatus", "tatusCode", "tatus_code", "ode", "rror", "esponse")
).removeprefix("|")
_TIME = "[0-2][0-9]:[0-5][0-9](?::[0-5][0-9])?"
_SCANNER = re.compile(
    # with escapes in it, whatever they are of
    r"(?P<escaped>(?<!\S)\S*?(?:&#x?[0-9a-fA-F]+;|%[0-9a-fA-F]{2}|\\[ux]\{?[0-9a-fA-F]{2})\S*)"
    rf"|(?P<own>{OWN})"
    r"|(?P<link>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>]+|\bwww\.[^\s\"'<>]+"
    r"|(?<![\w.-])[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}/[^\s\"'<>]+)"
    r"|(?P<mail>\b[^\s@<>\"'(),;:]{1,64}@[^\s@<>\"'(),;:]+)"
    # a digest of eight digits alone might be something else
    r"|(?P<run>(?<![\w-])(?:[a-z][a-z-]{0,63}-)?20[0-9]{6}-(?=[0-9]*[a-f])[0-9a-f]{8}"
    r"(?:-r[0-9]{1,2})?(?:-000[0-9]{2}(?:\.csv(?:\.pgp)?)?)?(?![\w-]))"
    r"|(?P<moment>(?<![\w.-])(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]"
    rf"(?:[T ]{_TIME}(?:\.[0-9]{{1,3}})?Z?)?(?![\w-]))"
    rf"|(?P<time>(?<![\w:.]){_TIME}(?![\w:]))"
    rf"|(?P<count>(?<![\w.])(?:(?:{_LIMITS})(?=\s(?:{'|'.join(UNITS)})\b)|10000?(?=\sallowed)))"
    rf"|(?P<status>(?:{_BEFORE_STATUS})(?:{_STATUS})(?!\w)"
    rf"|\A(?:{_STATUS})(?=\s[A-Z]))"
    r"|(?P<month>(?<![\w/.:-])(?:0[1-9]|1[0-2])/[0-9]{2}(?![\w/.:-]))"
    r"|(?P<version>(?:(?<=ersion )|(?<=HTTP/))[0-9](?:\.[0-9]{1,2}){1,2}(?![\w.]))"
    r"|(?P<listed>(?<![^\s\[(\"'])[A-Z](?=[,;.:)\]\"'-]|\s|$)|\bN/A\b)"
    r"|(?P<elided>(?<!\w)(?:[cdjlmnstCDJLMNST]|[Qq]u)['’](?=\w))"
    r"|(?P<coded>(?<![\w+/=])(?=[A-Za-z+/]*[0-9])[0-9A-Za-z+/]{16,}={0,2}(?![\w+/=]))"
    r"|(?P<word>\w+)"
    r"|(?P<space>\s+)"
    r"|(?P<points>[!-/:-@\[-`{-~“”„‘’‚«»¿¡…–—](?:\s*[!-/:-@\[-`{-~“”„‘’‚«»¿¡…–—])*)"
    r"|(?P<others>[^\w\s!-/:-@\[-`{-~“”„‘’‚«»¿¡…–—]+)"
)
_MOST_POINTS = 3  # between two words; more may be a code
_LETTERS = r"[^\W\d_]"
# v2, line4
_NUMBERED = re.compile(rf"({_LETTERS}{{2,}}|v)[0-9]{{1,2}}")
_MEASURED = re.compile("(?:0|[1-9][0-9]?)(?:s|ms|h|m|d|[kM]B|GB|px)")
_ORDINAL = re.compile("[0-9]{1,2}(?:st|nd|rd|th)", re.IGNORECASE)
_NAMES = frozenset(("address1", "address2", "last_4", "last4", "cvv2", "cvc2", "base64"))
# parts of one script, as Latin letters beside Japanese ones
_PARTS = re.compile(f"[{UNSPACED}]+|[^_{UNSPACED}]+")
# parts that stay, whose digits are a name's
_STAYING = frozenset(("own", "run", "listed", "elided"))
# numbers of which their form or a word beside them says what they are
_NAMED = frozenset(("time", "month", "version", "count", "status"))
_ALWAYS_MARKED = {"link": LINK, "mail": MAIL}


def tokens_of(text: str) -> Iterator[Token]:
    """Yield what a text is made of, what is not known to be harmless already as its mark."""
    dates = 0
    for part in _SCANNER.finditer(text):
        is_day = part.lastgroup == "moment" and is_date(part[0][:10])
        dates += is_day
        if is_day and dates <= MOST_DATES:
            yield Token(part[0])
        else:
            yield _token(part.lastgroup or "", part[0])


def _token(kind: str, text: str) -> Token:
    if kind in _STAYING:
        return Token(text)
    if kind in _ALWAYS_MARKED:
        return Token(_ALWAYS_MARKED[kind], is_settled=True)
    if kind in _NAMED:
        return Token(text, sum(map(str.isdecimal, text)), is_named=True)
    if kind == "word":
        return _word(text)
    if kind == "space":
        return Token(" ")
    if kind == "points" and len("".join(text.split())) <= _MOST_POINTS:
        return Token(text)
    return mark(text)


def mark(text: str) -> Token:
    """Return the mark for a text of which nothing is kept but kind and length."""
    return Token(marked(text), is_settled=True)


def is_date(text: str) -> bool:
    """Return whether a text such as 2026-11-20 is a day of the calendar."""
    with suppress(ValueError):
        date.fromisoformat(text)
        return True
    return False


def _word(text: str) -> Token:
    """Return a run of letters, digits and underscores as it is kept."""
    digits = sum(map(str.isdecimal, text))
    if text.lower() in _NAMES:
        return Token(text, is_settled=True)
    if digits == len(text) <= MOST_UNNAMED and text.isascii():
        return Token(text, digits)
    if _MEASURED.fullmatch(text):
        return Token(text, digits, is_named=True)
    numbered = _NUMBERED.fullmatch(text)
    if _ORDINAL.fullmatch(text) or (numbered and (numbered[1] == "v" or is_known(numbered[1]))):
        return Token(text, digits)
    if all(map(is_known, _PARTS.findall(text))):
        return Token(text)
    return mark(text)
