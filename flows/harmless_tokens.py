"""What a foreign text is made of: words, numbers, names, dates, links, and what lies between them.

Each part is a token. What is not known to be harmless already is its mark (`mark`); what the others
say together is judged by `flows.harmless`.
"""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from itertools import product
from typing import Final, NamedTuple

from flows.vocabulary import is_known

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
    is_id: bool = False  # of a request: kept unless its text is about a secret
    is_length: bool = False  # of a card number or a CVV: `16 digits`, `3 or 4 digits`
    carries_on: bool = True  # what stands beside the mark may be of the same name
    is_capital: bool = False  # the mark of what begins with a capital, as names do
    is_code: bool = False  # letters and up to four digits, or such digits behind "code"

    @property
    def is_unnamed(self) -> bool:
        """Whether it is a number of which nothing says what it is."""
        return self.digits > 0 and not self.is_named and not self.is_code


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
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[147][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_ID_GAP = r"[\s:=#(\[\"'._-]{1,3}"
_ID_WORD = (
    r"(?i:(?:(?:x-)?(?:request|trace|correlation|session|event|log|error)[ _-]?id"
    r"|ref(?:erence)?|incident|ticket|request|trace|req))"
)
# behind such a word: letters and digits
_ID = "(?=[0-9A-Za-z_-]{0,39}[0-9])(?=[0-9_-]{0,39}[A-Za-z])[0-9A-Za-z_-]{6,40}(?![0-9A-Za-z_-])"
# E4017, ERR-1042; longer words are known ones
_CODE = r"(?:[A-Z]{1,2}|[A-Z]{3,12}(?:_[A-Z]{2,12}){0,4})[-_]?[0-9]{1,4}"
_BEFORE_CODE = "|".join(
    f"(?<={word}{gap})"
    for word, gap in product(
        ("ode", "CODE", "rror", "ERROR", "ehler", "rreur", "ehlercode"),
        (" ", ": ", "=", " #", ":"),
    )
)
_ID_SPLIT = re.compile(rf"({_ID_WORD})({_ID_GAP})({_ID})")
_LENGTH = "(?:[34]|1[2-9])"
_OR = "or|to|and|-|–|oder|bis|und|ou|à|et|o|a|y|e"
_OF_LENGTH = (
    "digits?|characters?|numbers|numeric|Ziffern|Stellen|Zeichen|chiffres|caractères|dígitos"
    "|caracteres|cifre|tekens"
)
_CODES = frozenset(("ERR", "ERRNO", "REQ", "VAL", "SQLSTATE", "STATUS", "EC", "RC"))
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
    rf"|(?P<uuid>(?<![\w-]){_UUID}(?![\w-]))"
    rf"|(?P<length>(?<![\w.,-]){_LENGTH}(?:\s?(?:{_OR})\s?{_LENGTH})?(?=[ -](?:{_OF_LENGTH})\b))"
    rf"|(?P<identified>(?<![A-Za-z]){_ID_WORD}{_ID_GAP}{_ID})"
    rf"|(?P<code>(?<![\w+/=-]){_CODE}(?![\w+/=-]|\.\w))"
    rf"|(?P<time>(?<![\w:.]){_TIME}(?![\w:]))"
    rf"|(?P<count>(?<![\w.])(?:(?:{_LIMITS})(?=\s(?:{'|'.join(UNITS)})\b)|10000?(?=\sallowed)))"
    rf"|(?P<status>(?:{_BEFORE_STATUS})(?:{_STATUS})(?!\w)"
    rf"|\A(?:{_STATUS})(?=\s[A-Z]))"
    r"|(?P<month>(?<![\w/.:-])(?:0[1-9]|1[0-2])/[0-9]{2}(?![\w/.:-]))"
    r"|(?P<version>(?:(?<=ersion )|(?<=HTTP/))[0-9](?:\.[0-9]{1,2}){1,2}(?![\w.]))"
    rf"|(?P<numbered_code>(?:{_BEFORE_CODE})[0-9]{{4}}(?![\w.,-]))"
    r"|(?P<listed>\bN/A\b)"
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
_PARTS = re.compile("[^_]+")
_LONG_RUN = re.compile("[A-Za-z]{4}|[0-9]{5}")  # in a row; names and numbers are longer
_MOST_DIGITS_OF_ID = 8
_MIXED = 5  # letters of a UUID: a number has none
# parts that stay, whose digits are a name's
_STAYING = frozenset(("own", "run", "listed", "elided"))
# numbers of which their form or a word beside them says what they are
_NAMED = frozenset(("time", "month", "version", "count", "status"))
_ALWAYS_MARKED = {"link": LINK, "mail": MAIL}


def tokens_of(text: str) -> Iterator[Token]:
    """Yield what a text is made of, what is not known to be harmless already as its mark."""
    dates = 0
    lengths = 0
    for part in _SCANNER.finditer(text):
        is_day = part.lastgroup == "moment" and is_date(part[0][:10])
        dates += is_day
        if is_day and dates <= MOST_DATES:
            yield Token(part[0])
        elif part.lastgroup == "length":
            lengths += 1
            digits = sum(map(str.isdecimal, part[0]))
            yield Token(part[0], digits, is_named=True, is_length=lengths == 1)
        elif part.lastgroup == "identified":
            yield from _identified(part[0])
        else:
            yield _token(part.lastgroup or "", part[0])


def _token(kind: str, text: str) -> Token:
    if kind in _STAYING:
        return Token(text)
    if kind == "space":
        return Token(" ")
    if kind in _ALWAYS_MARKED:
        return Token(_ALWAYS_MARKED[kind], is_settled=True)
    if kind == "word":
        return _word(text)
    return _shaped(kind, text) or mark(text)


def _shaped(kind: str, text: str) -> Token | None:
    """Return a token that its form allows; None for any other."""
    if kind == "uuid" and sum(map(str.isalpha, text)) >= _MIXED:
        return Token(text, is_id=True)
    if kind in ("code", "numbered_code") and _is_code(text):
        return Token(text, sum(map(str.isdecimal, text)), is_code=True)
    if kind in _NAMED:
        return Token(text, sum(map(str.isdecimal, text)), is_named=True)
    if kind == "points" and len("".join(text.split())) <= _MOST_POINTS:
        return Token(text)
    return None


def _is_code(text: str) -> bool:
    """Return whether letters before digits are one or two, or known words."""
    letters = [letters for letters in re.split("[^A-Z]+", text) if letters]
    return all(len(part) <= 2 or is_known(part) or part in _CODES for part in letters)


def _identified(text: str) -> Iterator[Token]:
    """Yield the word for an id, and the id where it can be nothing else."""
    split = _ID_SPLIT.fullmatch(text)
    if split is None:
        yield mark(text)
        return
    words, gap, id_ = split.groups()
    for word in re.split(r"([ _-]+)", words):
        yield _word(word) if word.isalpha() else Token(word)
    yield Token(gap)
    yield Token(id_, is_id=True) if _is_id(id_) else mark(id_)


def _is_id(text: str) -> bool:
    """Return whether letters and digits are too mixed for a name, and digits too few for a card."""
    if re.fullmatch(_UUID, text):
        return True
    is_short = not _LONG_RUN.search(text.removeprefix("req_").removeprefix("trace_"))
    return is_short and sum(map(str.isdecimal, text)) <= _MOST_DIGITS_OF_ID


def mark(text: str) -> Token:
    """Return the mark for a text of which nothing is kept but kind and length."""
    is_capital = text[:1].isupper() or not (text.islower() or text.isupper())
    return Token(marked(text), is_settled=True, is_capital=is_capital)


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
