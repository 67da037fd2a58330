"""Default deny: what is kept of a text that somebody else wrote.

A search for card numbers finds those that somebody thought of. So a foreign text is read the other
way round: what is known to be harmless stays, and everything else is a mark of its kind and length,
such as `[16 digits]` or `[44 Base64]`. Harmless are

* words: letters as words have them, of usual length (`_is_word`);
* numbers of at most two digits, counts of a unit (`200 characters`) and status codes, as long as
  all of them together have fewer digits than anybody could use (MOST_DIGITS), no more than two
  stand side by side without a word between them, which would be pieces of one, and no more than two
  are of one digit (MOST_ALONE), which would be a CVV digit by digit;
* dates and times of day of the last century and this one, at most three;
* the names of our runs and chunks, and of properties;
* the cuid of the row that the text is about. OWN stands for it, until it is known whether it is the
  one that we sent (`with_cuid`).

The name of a file (`harmless_name`) is read in the same way, but for what names are made of: runs
and chunks, dates as `20261120`, numbers of up to eight digits, UUIDs.

A text about a CVV, a card number or a security answer keeps no digit at all. Links and e-mail
addresses are marks of their own.

A digit is whatever stands for one: those of every script, fractions, circled digits, Chinese
numerals; and the words for digits in the usual languages, of which no more are kept than of digits.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

OWN: Final = "\ue000"  # for private use: no text that is read has it
CUID: Final = "[cuid]"
READ: Final = 2_000  # characters of a text that are read
MOST_DIGITS: Final = 8  # in all numbers that are kept of a text
MOST_DATES: Final = 3
MOST_SIDE_BY_SIDE: Final = 2  # numbers without a word between them; more are pieces of one number
SHORTEST_NUMBER: Final = 13  # digits of a card number: as many, kept or not, are one in pieces
MOST_ALONE: Final = 2  # numbers of one digit: a CVV has three
MOST_OF_PIECES: Final = 3  # digits that are kept of a text with so many
LONGEST_WORD: Final = 24
LONGEST_CAPITALS: Final = 14  # Base32 has no other case

CODED = 3  # marks in a text that may be a code written in groups
LONGEST_PIECE = 8  # letters of a group that may look like a word
SHORT_PIECE = 5
TINY_PIECE = 2
MANY_PIECES = 8

LINK = "[link]"
MAIL = "[e-mail address]"
# a mark, until those side by side are joined: its length and its kind
_BEGIN = "\ue001"
_MARK = "\ue001{length} {kind}\ue002"
_SIDE_BY_SIDE = re.compile("\ue001([0-9]+) ([a-zA-Z0-9]+)\ue002(?:[ ./-]?\ue001[0-9]+ \\2\ue002)*")
_LENGTHS = re.compile("\ue001([0-9]+)")
_PRIVATE = re.compile("[\ue000-\ue002]")


class _Token(NamedTuple):
    """A part of a text that may stay, where the whole text lets it; `digits`: how many it uses."""

    text: str
    digits: int = 0
    is_settled: bool = False  # a mark, or a name, whose digits are no secret
    is_named: bool = False  # a number of which the word beside it says what it is


_END = _Token("end", is_settled=True)


def harmless(text: str, *, secret: bool = False) -> str:
    """Return what is kept of a foreign text: one line, without controls.

    `secret`: it is about a CVV, a card number or a security answer, though it need not say so.
    """
    about_secret = secret or speaks_of_secret(text)
    tokens = list(_tokens(unicodedata.normalize("NFC", text[:READ])))
    too_many = _has_too_many_digits(tokens)
    parts = [_kept(token, about_secret, too_many) for token in _without_split_numbers(tokens)]
    kept = "".join(_without_pieces(parts))
    return " ".join(_SIDE_BY_SIDE.sub(_joined, kept).split())


def harmless_name(name: str) -> str:
    """Return what is kept of a file's name that somebody else chose: most names are, whole."""
    tokens = list(_name_tokens(unicodedata.normalize("NFC", name[:READ])))
    about_secret = speaks_of_secret(_BETWEEN_WORDS.sub(" ", name))
    too_many = sum(token.digits for token in tokens) > MOST_DIGITS
    kept = "".join(_kept(token, about_secret, too_many) for token in tokens)
    return _SIDE_BY_SIDE.sub(_joined, kept)


def without_own(text: str) -> str:
    """Return a text in which nothing stands for a cuid yet."""
    return _PRIVATE.sub("\ufffd", text)


def about(text: str, cuid: str | None) -> str:
    """Return a text with OWN wherever it has the cuid."""
    if not cuid or cuid not in text:  # as most often: a pattern for each cuid takes time
        return text
    return re.sub(rf"(?<!\w){re.escape(cuid)}(?!\w)", OWN, text)


def with_cuid(kept: str, cuid: str | None) -> str:
    """Return what was kept of a text about the row with this cuid; None: that is not known."""
    return kept.replace(OWN, cuid or CUID)


def speaks_of_secret(text: str) -> bool:
    """Return whether a text mentions a CVV, a card number or a security answer."""
    return _SECRET_WORDS.search(text) is not None


def _kept(token: _Token, about_secret: bool, too_many: bool) -> str:
    """Return a token, or the mark for it where its text keeps no such digits."""
    if token.is_settled:
        return token.text
    if about_secret and any(map(_is_digit, token.text)):
        return _marked(token.text)
    if too_many and token.digits:
        return _marked(token.text)
    return token.text


def _has_too_many_digits(tokens: Sequence[_Token]) -> bool:
    """Return whether a text has more digits than are kept, or those of a number in pieces."""
    kept = sum(token.digits for token in tokens)
    marked = sum(_length(token.text) for token in tokens if _is_digits_mark(token))
    alone = sum(token.text.isdigit() and len(token.text) == 1 for token in tokens)
    in_pieces = kept > MOST_OF_PIECES and kept + marked >= SHORTEST_NUMBER
    return kept > MOST_DIGITS or alone > MOST_ALONE or in_pieces


def _without_split_numbers(tokens: Sequence[_Token]) -> list[_Token]:
    """Return tokens without the numbers that stand side by side as the pieces of one."""
    kept = list(tokens)
    if sum(map(_is_number, tokens)) <= 1:  # as most often
        return kept
    places: list[int] = []
    for place, token in enumerate([*tokens, _END]):
        if _is_number(token):
            places.append(place)
        elif any(map(_is_said, token.text)) and "characters\ue002" not in token.text:
            for split in places if _are_pieces([tokens[each] for each in places]) else ():
                kept[split] = _split_off(tokens[split])
            places = []
    return kept


def _is_digits_mark(token: _Token) -> bool:
    return token.text.startswith(_BEGIN) and token.text.endswith(" digits\ue002")


def _split_off(piece: _Token) -> _Token:
    return piece if piece.is_settled else _mark(piece.text)


def _is_number(token: _Token) -> bool:
    if token.is_named:
        return False
    return token.digits > 0 or token.text[:1].isdigit() or _is_digits_mark(token)


def _are_pieces(numbers: Sequence[_Token]) -> bool:
    """Return whether these numbers, with no word between them, are pieces of a longer one."""
    is_cut = any(map(_is_digits_mark, numbers))
    return len(numbers) > (1 if is_cut else MOST_SIDE_BY_SIDE)


def _without_pieces(parts: Sequence[str]) -> list[str]:
    """Return the parts of a text without the words and numbers that are pieces of a code in it.

    A digest that is written in groups has some that look like words. A text with so many marks
    (CODED), or that is mostly of single letters, keeps none of five letters or fewer beside a mark,
    nor a longer one between two.
    """
    kept = list(parts)
    spoken = [place for place, part in enumerate(parts) if part == OWN or any(map(_is_said, part))]
    tiny = [place for place in spoken if _length(parts[place]) <= TINY_PIECE]
    if len(tiny) >= MANY_PIECES and 2 * len(tiny) > len(spoken):
        for place in tiny:
            kept[place] = parts[place] if parts[place].startswith(_BEGIN) else _marked(parts[place])
    elif sum(_is_of_code(parts[place]) for place in spoken) < CODED:
        return kept
    for order in (spoken, spoken[::-1]):
        for before, place, after in zip([None, *order], order, [*order[1:], None], strict=False):
            if _is_piece(kept, before, place, after):
                kept[place] = _marked(kept[place])
    return kept


def _length(part: str) -> int:
    """Return how long a part was in the text."""
    mark = _LENGTHS.match(part)
    return int(mark[1]) if mark else len(part)


def _is_of_code(part: str) -> bool:
    """Return whether a part is a mark, and not one of digits, which are often written in groups."""
    return part.startswith(_BEGIN) and " digits" not in part


def _is_said(char: str) -> bool:
    return char.isalnum()


def _is_piece(parts: Sequence[str], before: int | None, place: int, after: int | None) -> bool:
    """Return whether a word is a piece of a code: `before` and `after` are the places beside it."""
    part = parts[place]
    if part.startswith((_BEGIN, "[")) or part == OWN or len(part) > LONGEST_PIECE:
        return False
    beside = [other is None or parts[other].startswith(_BEGIN) for other in (before, after)]
    return all(beside) or (any(beside) and len(part) <= SHORT_PIECE)


def _joined(marks: re.Match[str]) -> str:
    """Return marks of one kind that stand side by side as one."""
    length = sum(map(int, _LENGTHS.findall(marks[0])))
    kind = marks[2].removesuffix("s") if length == 1 else marks[2]
    return f"[{length} {kind}]"


def _marked(text: str) -> str:
    """Return the mark for a text that is not kept."""
    if all(map(_is_digit, text)):
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


def _is_digit(char: str) -> bool:
    return unicodedata.numeric(char, None) is not None


# What a text is made of
# --------------------------------------------------------------------------------------------------

_HEXADECIMAL = re.compile("[0-9A-Fa-f]{16,}")
_BASE64 = re.compile("[0-9A-Za-z+/_-]{16,}={0,2}")
_UNITS = (
    "characters?|chars?|bytes?|rows?|lines?|times?|ms|milliseconds?|seconds?|minutes?|hours?|days?"
)
_STATUS = "1(?:0[0-3])|20[0-8]|30[0-8]|4(?:0[0-9]|1[0-8]|2[1-9]|31|51)|50[0-8]|511"
_BEFORE_STATUS = "".join(
    f"|(?<={word}[ :=])|(?<={word}: )"
    for word in ("HTTP", "HTTP/1.1", "tatus", "tatusCode", "tatus_code", "ode", "rror", "esponse")
).removeprefix("|")
_TIME = "[0-2]?[0-9]:[0-5][0-9](?::[0-5][0-9])?"
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
    rf"|(?P<count>(?<![\w.])[0-9]{{3,4}}(?=\s(?:{_UNITS})\b))"
    rf"|(?P<status>(?:{_BEFORE_STATUS})(?:{_STATUS})(?!\w)"
    rf"|\A(?:{_STATUS})(?=\s[A-Za-z]))"
    r"|(?P<coded>(?<![\w+/=])(?=[A-Za-z+/]*[0-9])[0-9A-Za-z+/]{16,}={0,2}(?![\w+/=]))"
    r"|(?P<word>\w+)"
    r"|(?P<space>\s+)"
    r"|(?P<points>[!-/:-@\[-`{-~“”„‘’‚«»¿¡…–—]+)"
    r"|(?P<others>[^\w\s!-/:-@\[-`{-~“”„‘’‚«»¿¡…–—]+)"
)
_MOST_POINTS = 3  # side by side; more may be a code
_LETTERS = r"[^\W\d_]"
_CASED = re.compile(
    r"[A-Z]?[a-z]+|[A-Z]+|(?:[A-Z]{2,5}(?=[A-Z][a-z])|[A-Z]?[a-z]{2,})"
    r"(?:[A-Z][a-z]{2,}|[A-Z]{2,4}(?=$|[A-Z][a-z]{2}))+"
)
_VOWEL = re.compile("[aeiouy]", re.IGNORECASE)
_CONSONANTS = re.compile("[bcdfghjklmnpqrstvwxz]{7}", re.IGNORECASE)
# v2, line4; capitals and a digit, four in all, may be a CVV in Base64
_NUMBERED = re.compile(rf"(?![A-Z]{{3}}[0-9]$)({_LETTERS}+)[0-9]{{1,2}}")
_MEASURED = re.compile("[0-9]{1,2}(?:st|nd|rd|th|s|ms|h|m|d|kb|mb|gb|px)", re.IGNORECASE)
_NAMES = frozenset(("address1", "address2", "last_4", "last4", "cvv2", "cvc2", "base64"))
# the digits in English, German, French, Spanish, Portuguese, Italian and Dutch; and in Latin,
# Swedish, Danish, Finnish, Polish, Czech, Hungarian, Romanian, Turkish, Russian, Ukrainian, Greek,
# Vietnamese, Indonesian, Swahili, Esperanto and by radio, but for words that are usual in others:
# to, en, do, no, ok
_NUMBER_WORDS = frozenset(
    " ".join(
        (
            "zero oh one two three four five six seven eight nine",
            "null eins zwei drei vier fünf sechs sieben acht neun",
            "zéro un deux trois quatre cinq sept huit neuf",
            "cero uno dos tres cuatro cinco seis siete ocho nueve",
            "um dois três quatro sete oito nove due tre quattro cinque sei sette otto",
            "nul een twee drie vijf zes zeven negen",
            "nulla unus duo tres quattuor quinque sex septem octo novem",
            "noll ett två tre fyra fem sex sju åtta nio fire seks syv otte ni",
            "nolla yksi kaksi kolme neljä viisi kuusi seitsemän kahdeksan yhdeksän",
            "jeden dwa trzy cztery pięć sześć siedem osiem dziewięć",
            "nula jedna dva tři čtyři pět šest sedm osm devět",
            "egy kettő három négy öt hat hét nyolc kilenc",
            "unu doi trei patru cinci șase șapte opt nouă",
            "sıfır bir iki üç dört beş altı yedi sekiz dokuz",
            "ноль один два три четыре пять шесть семь восемь девять",
            "нуль чотири п'ять шість сім вісім дев'ять",
            "μηδέν ένα δύο τρία τέσσερα πέντε έξι επτά οκτώ εννέα",
            "không một hai ba bốn năm sáu bảy tám chín",
            "nol satu dua tiga empat lima enam tujuh delapan sembilan",
            "sifuri moja mbili tatu nne tano sita saba nane tisa",
            "nul unu du tri kvar kvin ses sep naŭ wun too tree fower fife ait niner",
        )
    ).split()
)
_SECRETS = (
    "cv[vcnd]2?",
    "csc",
    "pin",
    "pans?",
    "card[ _-]?(?:number|num|no|nr)",
    "(?:kredit)?kartennummer",
    "num[ée]ro de (?:la )?(?:carte|tarjeta)",
    "n[úu]mero (?:de|da|do) (?:la )?(?:tarjeta|cart[ãa]o)",
    "prüf(?:ziffer|nummer)",
    "cryptogramme",
    "(?:card|karten)[ _-]?verification",
    "verification (?:value|number)",
    "(?:security|sicherheits|validation)[ _-]?(?:code|value|number|answer|question)",
    "(?:code de|c[óo]digo de|codice di) (?:s[ée]curit[ée]|seguridad|seguran[çc]a|sicurezza)",
)
_SECRET_WORDS = re.compile(rf"(?<![a-z])(?:{'|'.join(_SECRETS)})(?![a-z])", re.IGNORECASE)


def _tokens(text: str) -> Iterator[_Token]:
    """Yield what a text is made of, what is not known to be harmless already as its mark."""
    dates = 0
    for part in _SCANNER.finditer(text):
        match part.lastgroup:
            case "own" | "run":
                yield _Token(part[0])
            case "link":
                yield _Token(LINK, is_settled=True)
            case "mail":
                yield _Token(MAIL, is_settled=True)
            case "moment" if dates < MOST_DATES and _is_date(part[0][:10]):
                dates += 1
                yield _Token(part[0])
            case "time":
                yield _Token(part[0], sum(map(str.isdecimal, part[0])))
            case "count" | "status":
                yield _Token(part[0], sum(map(str.isdecimal, part[0])), is_named=True)
            case "word":
                yield _word(part[0])
            case "space":
                yield _Token(" ")
            case "points" if len(part[0]) <= _MOST_POINTS:
                yield _Token(part[0])
            case _:
                yield _mark(part[0])


def _mark(text: str) -> _Token:
    return _Token(_marked(text), is_settled=True)


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        date.fromisoformat(text)
        return True
    return False


def _word(text: str) -> _Token:
    """Return a run of letters, digits and underscores as it is kept."""
    if text.lower() in _NAMES:
        return _Token(text, is_settled=True)
    if all(map(_is_digit, text)):
        if len(text) <= 2 and text.isascii():
            return _Token(text, len(text))
        return _mark(text)
    numbered = _NUMBERED.fullmatch(text)
    if numbered and _is_word(numbered[1]):
        return _Token(text, len(text) - len(numbered[1]))
    if _MEASURED.fullmatch(text):
        return _Token(text, sum(map(str.isdecimal, text)))
    pieces = text.split("_")
    if all(not piece or _is_word(piece) for piece in pieces):
        return _Token(text, sum(piece.lower() in _NUMBER_WORDS for piece in pieces))
    return _mark(text)


@lru_cache(4096)
def _is_word(text: str) -> bool:
    """Return whether letters are a word: of usual length and case, with vowels.

    Of a script without cases any letters are.
    """
    if not text.isalpha() or len(text) > LONGEST_WORD or any(map(_is_digit, text)):
        return False
    plain = "".join(map(_plain, text))
    if not plain.isascii():
        return True
    if plain.isupper() and len(plain) > LONGEST_CAPITALS:
        return False
    if not _CASED.fullmatch(plain) or _CONSONANTS.search(plain):
        return False
    return len(plain) <= 5 or _VOWEL.search(plain) is not None


def _plain(letter: str) -> str:
    """Return a Latin letter without its accents; any other as it is."""
    return unicodedata.normalize("NFD", letter)[0]


# What a file's name is made of
# --------------------------------------------------------------------------------------------------

_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")
_NAME_SCANNER = re.compile(
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


def _name_tokens(name: str) -> Iterator[_Token]:
    """Yield what a file's name is made of, what is not known to be harmless as its mark."""
    days = 0
    for part in _NAME_SCANNER.finditer(name):
        match _kind_of(part):
            case "run":
                digest = part[0][9:17]
                yield _Token(part[0], len(digest) if digest.isdecimal() else 0)
            case "uuid" if len(_LETTERS_OF_HEX.findall(part[0])) >= _MIXED:
                yield _Token(part[0])
            case "day" if days < MOST_DATES and _is_date(_digits_as_date(part[0])):
                days += 1
                yield _Token(part[0], len(part["clock"] or ""))
            case "number" if part[0].isascii():
                yield _Token(part[0], len(part[0]))
            case "letters" if _is_word(part[0]):
                yield _Token(part[0], part[0].lower() in _NUMBER_WORDS)
            case "points":
                yield _Token(part[0])
            case _:
                yield _mark(part[0])


_LETTERS_OF_HEX = re.compile("[a-fA-F]")
_MIXED = 5  # letters of a UUID: hardly one in ten thousand has fewer, and a number has none


def _kind_of(part: re.Match[str]) -> str | None:
    return "day" if part["day"] else part.lastgroup


def _digits_as_date(text: str) -> str:
    digits = "".join(filter(str.isdecimal, text))
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
