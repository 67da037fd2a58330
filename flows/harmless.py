"""Default deny: what is kept of a text that somebody else wrote.

A search for card numbers finds those that somebody thought of. So a foreign text is read the other
way round: what is known to be harmless stays, and everything else is a mark of its kind and length,
such as `[16 digits]`, `[5 letters]` or `[44 Base64]`. Harmless are

* words that are known (`flows.vocabulary`); of an unknown one nobody can say that it is no code and
  no name. Known ones that are also names stay where they cannot be one (`_without_names`);
* codes of letters and up to four digits (`E4017`), `code 5001`, and one id of a request;
* numbers of at most two digits, with fewer digits in all than a CVV has (MOST_UNNAMED); words for
  digits count as such;
* more numbers where a word says what they count (`row 14`, `status 403`; of three digits and more
  only usual limits, `200 characters`), or their form (`10/26`, `08:30`), at most MOST_DIGITS
  digits in all. Numbers that stand side by side without a word between them are pieces of one,
  unless they are a list of such (`rows 3, 7 and 9`);
* dates and times of day of the last century and this one, at most three;
* the names of our runs and chunks, and of properties;
* the cuid of the row that the text is about. OWN stands for it, until it is known whether it is the
  one that we sent (`with_cuid`).

A text about a card number keeps of digits such codes and its usual lengths (`16 digits`) alone; one
about a CVV or a security answer (`flows.secret_words`), and any message of an error that mentions
one, a single such length. Links and e-mail addresses are marks of their
own. A digit is whatever stands for one: those of every script, fractions, circled digits, Chinese
numerals.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise, zip_longest
from typing import Final, NamedTuple

from flows.harmless_tokens import (
    BEGIN,
    MOST_UNNAMED,
    OWN,
    UNITS,
    Token,
    is_digit,
    mark,
    marked,
    tokens_of,
)
from flows.secret_words import speaks_of_cvv, speaks_of_secret
from flows.vocabulary import ALSO_DIGITS, DIGIT_WORDS, PARTICLES, PERSONAL, may_be_name

CUID: Final = "[cuid]"
READ: Final = 2_000  # characters of a text that are read
MOST_IN_CODES: Final = 5  # digits of all codes: one of four, or a short one beside it
MOST_IDS: Final = 1
MOST_DIGITS: Final = 8  # in all numbers that are kept of a text

CODED = 3  # marks in a text that may be a code written in groups
TINY = 2  # letters of a word that may be such a group
MANY_TINY = 8

_SIDE_BY_SIDE = re.compile("\ue001([0-9]+) ([a-zA-Z0-9]+)\ue002(?:[ ./-]?\ue001[0-9]+ \\2\ue002)*")
_LENGTHS = re.compile("\ue001([0-9]+)")
_KEPT_MARK = re.compile(r"\[[0-9]+ [A-Za-z0-9]+\]")
_PRIVATE = re.compile("[\ue000-\ue002]")


def harmless(text: str, *, secret: bool = False) -> str:
    """Return what is kept of a foreign text: one line, without controls.

    `secret`: it is about a CVV, a card number or a security answer, though it need not say so.
    """
    about_cvv = secret or speaks_of_cvv(text)
    about_secret = about_cvv or speaks_of_secret(text)
    tokens = list(tokens_of(unicodedata.normalize("NFC", text[:READ])))
    judged = _without_pieces(_judged(_without_names(tokens)))
    if about_cvv:
        judged = [mark(token.text) if token.is_code or token.is_id else token for token in judged]
    return " ".join(kept_text(judged, about_secret=about_secret).split())


def known_text(text: str, known: Sequence[str]) -> str | None:
    """Return what is kept of a text that is one of the `known`: these as they are, and what is
    harmless in the place of each `{}`; None where it is none of them, or about a CVV.
    """
    for template in known:
        varying = _varying(template, text[:READ])
        if varying is None or speaks_of_cvv(text):
            continue
        kept = [harmless(part) for part in varying]
        digits = sum(map(is_digit, _KEPT_MARK.sub("", "".join(kept))))
        if digits > MOST_IN_CODES or have_cvv_together(kept):
            kept = [harmless(part, secret=True) for part in varying]
        pieces = zip_longest(template.split("{}"), kept, fillvalue="")
        return " ".join("".join(chain.from_iterable(pieces)).split())
    return None


def _varying(template: str, text: str) -> list[str] | None:
    """Return what a text has in the place of each `{}`; None where it is another text."""
    first, *others = template.split("{}")
    if not text.startswith(first):
        return None
    place = len(first)
    parts = list[str]()
    for number, constant in enumerate(others, 1):
        is_last = number == len(others)
        end = text.rfind(constant, place) if is_last else text.find(constant, place)
        if end < 0:
            return None
        parts.append(text[place:end])
        place = end + len(constant)
    return parts if place == len(text) else None


def kept_text(tokens: Iterable[Token], *, about_secret: bool) -> str:
    """Return tokens as one text, marks for those that are not kept; one for those side by side."""
    kept = list(tokens)
    too_many = sum(token.digits for token in kept) > MOST_DIGITS
    texts = (_kept(token, about_secret, too_many) for token in kept)
    return _SIDE_BY_SIDE.sub(_joined, "".join(texts))


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


def have_cvv_together(kept: Iterable[str]) -> bool:
    """Return whether texts that were kept have the digits of a CVV in all: one text has not."""
    return sum(map(_unnamed_digits, kept)) > MOST_UNNAMED


def _unnamed_digits(kept: str) -> int:
    tokens = _judged(list(tokens_of(_KEPT_MARK.sub("", kept))))
    return sum(token.digits for token in tokens if token.is_unnamed)


def _kept(token: Token, about_secret: bool, too_many: bool) -> str:
    """Return a token, or the mark for it where its text keeps no such digits."""
    if token.is_settled:
        return token.text
    is_safe = token.is_length or token.is_id or (token.is_code and token.text[0].isalpha())
    if about_secret and not is_safe and any(map(is_digit, token.text)):
        return marked(token.text)
    if too_many and token.digits:
        return marked(token.text)
    return token.text


def _judged(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens without the numbers that are pieces of one, or as long as a CVV together."""
    places = [place for place, token in enumerate(tokens) if _is_said(token)]
    judged = list(tokens)
    for place, is_named in _named_numbers(tokens, places):
        judged[place] = tokens[place]._replace(is_named=is_named)
    for place in _split_numbers(judged, places):
        judged[place] = mark(judged[place].text)
    for place, digits in _digit_words(judged, places):
        judged[place] = judged[place]._replace(digits=digits)
    for kind, most in _MOST:
        for place in _too_many(judged, places, kind, most):
            judged[place] = mark(judged[place].text)
    return judged


_MOST = (("is_code", MOST_IN_CODES), ("is_id", MOST_IDS), ("is_unnamed", MOST_UNNAMED))


def _too_many(tokens: Sequence[Token], places: Sequence[int], kind: str, most: int) -> list[int]:
    """Return the places of the tokens of a kind, where they have more digits in all."""
    of_kind = [place for place in places if getattr(tokens[place], kind)]
    digits = sum(max(tokens[place].digits, 1) for place in of_kind)
    return of_kind if digits > most else []


def _without_names(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens without the known words that may be parts of names or addresses here."""
    judged = list(tokens)
    places = [place for place, token in enumerate(tokens) if _is_said(token)]
    has_cases = any(map(str.islower, "".join(tokens[place].text for place in places)))
    quoted = _quoted(tokens)
    for order in (*range(len(places)), *reversed(range(len(places)))):
        place = places[order]
        word = judged[place].text
        if not word.isalpha():
            continue
        sides = [_beside(judged, places, order, step) for step in (-1, 1)]
        is_capital = has_cases and not word.islower()
        if _is_in_name(word, sides, is_capital, place in quoted):
            joins = word.lower() in PARTICLES or not word.islower()
            judged[place] = mark(word)._replace(is_capital=joins, carries_on=joins)
    return judged


class _Beside(NamedTuple):
    """What is beside a word: a word or a mark, and the points between."""

    word: str = ""
    gap: str = ""
    is_mark: bool = False  # of what may be a part of a name
    is_capital: bool = False

    @property
    def joins(self) -> bool:
        """Whether it begins as a name does, and is one with what is beside it."""
        return self.is_mark and self.is_capital and self.gap in (" ", "-", ", ", "'", "’", ". ")

    @property
    def names_person(self) -> bool:
        """Whether what comes behind it is a person's, as behind `name:`."""
        return self.word.lower() in PERSONAL and (":" in self.gap or "=" in self.gap)

    @property
    def ends(self) -> bool:
        """Whether a sentence begins behind it, so that a capital says nothing."""
        return not self.word or not set(".:!?;|([").isdisjoint(self.gap)


def _is_in_name(word: str, sides: Sequence[_Beside], is_capital: bool, is_quoted: bool) -> bool:
    """Return whether a known word may be a part of a name where it is."""
    before, after = sides
    is_beside = is_quoted or before.names_person or any(side.is_mark for side in sides)
    if not may_be_name(word):
        return is_capital and word.istitle() and any(side.joins for side in sides)
    begins = before.ends and after.word.islower()
    return is_beside or (is_capital and not begins)


def _beside(tokens: Sequence[Token], places: Sequence[int], order: int, step: int) -> _Beside:
    if not 0 <= order + step < len(places):
        return _Beside()
    first, last = sorted((places[order], places[order + step]))
    gap = "".join(token.text for token in tokens[first + 1 : last])
    token = tokens[places[order + step]]
    is_mark = token.text.startswith(BEGIN) and not _is_digits_mark(token) and token.carries_on
    return _Beside(token.text, gap, is_mark, token.is_capital)


def _quoted(tokens: Sequence[Token]) -> frozenset[int]:
    """Return the places of the words in quotes, where they are a few."""
    quotes = [place for place, token in enumerate(tokens) if not _QUOTES.isdisjoint(token.text)]
    places = set[int]()
    for opened, closed in pairwise(quotes):
        words = [place for place in range(opened + 1, closed) if tokens[place].text.isalpha()]
        if len(words) in _FEW:
            places.update(words)
    return frozenset(places)


_QUOTES = frozenset("\"'`“”„«»‘’")
_FEW = range(2, 5)  # words in quotes that may be a name


def _is_said(token: Token) -> bool:
    """Return whether a part says something: it is no space, point or control."""
    return any(map(str.isalnum, token.text)) and "characters\ue002" not in token.text


def _named_numbers(tokens: Sequence[Token], places: Sequence[int]) -> Iterator[tuple[int, bool]]:
    """Yield the numbers of a text by their place, and whether something says what they are.

    Behind the first of a list (`rows 3, 7 and 9`) so are the others.
    """
    list_goes_on = False
    for order, place in enumerate(places):
        before, gap = _neighbour(tokens, places, order, -1)
        is_listed = list_goes_on and (gap in _COMMAS or before in _LISTING)
        if _is_number(tokens[place]) or tokens[place].text.lower() in DIGIT_WORDS:
            after, gap_after = _neighbour(tokens, places, order, 1)
            list_goes_on = is_listed or (before in _NAMING and gap in _COLONS)
            is_counted = after in UNITS and not gap_after
            yield place, list_goes_on or is_counted or tokens[place].is_named
        else:
            list_goes_on = list_goes_on and tokens[place].text.lower() in _LISTING


def _neighbour(
    tokens: Sequence[Token], places: Sequence[int], order: int, step: int
) -> tuple[str, str]:
    """Return the word before (-1) or after (1) one of the places, and the points between them."""
    if not 0 <= order + step < len(places):
        return "", ""
    first, last = sorted((places[order], places[order + step]))
    points = "".join(token.text for token in tokens[first + 1 : last]).strip()
    return tokens[places[order + step]].text.lower(), points


def _is_number(token: Token) -> bool:
    return not token.is_settled and token.digits > 0


def _split_numbers(tokens: Sequence[Token], places: Sequence[int]) -> Iterator[int]:
    """Yield the numbers that stand side by side as the pieces of one."""
    for beside in _side_by_side(tokens, places, _may_be_piece_of_number):
        if len(beside) > 1 and not all(tokens[each].is_named for each in beside):
            yield from (each for each in beside if not tokens[each].is_settled)


def _side_by_side(
    tokens: Sequence[Token], places: Sequence[int], belongs: Callable[[Token], bool]
) -> Iterator[list[int]]:
    """Yield the places that stand side by side and belong to what is looked for."""
    for is_part, beside in groupby(places, key=lambda place: belongs(tokens[place])):
        if is_part:
            yield list(beside)


def _may_be_piece_of_number(token: Token) -> bool:
    return _is_number(token) or _is_digits_mark(token)


def _is_digits_mark(token: Token) -> bool:
    return token.text.startswith(BEGIN) and token.text.endswith(" digits\ue002")


def _digit_words(tokens: Sequence[Token], places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the words for digits and how many digits each is.

    Those that mean something else more often are digits beside another only. Beside an unknown
    word, which may be one too, they are as many as are not kept.
    """
    for beside in _side_by_side(tokens, places, _may_be_digit):
        words = [each for each in beside if not tokens[each].is_settled]
        if any(tokens[each].text.lower() in DIGIT_WORDS for each in words):
            digits = 1 if len(words) == len(beside) else MOST_UNNAMED + 1
            yield from ((each, digits) for each in words)


def _may_be_digit(token: Token) -> bool:
    """Return whether a token is a word for a digit, or an unknown word."""
    is_unknown = token.text.startswith(BEGIN) and token.text.endswith(" letters\ue002")
    word = token.text.lower()
    return is_unknown or word in DIGIT_WORDS or word in ALSO_DIGITS


def _without_pieces(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens without the short words and the numbers that are pieces of a code.

    A text has such where it has so many marks (CODED), or is mostly made of them.
    """
    spoken = [token for token in tokens if any(map(str.isalnum, token.text))]
    tiny = sum(_length(token) <= TINY for token in spoken)
    coded = sum(token.text.startswith(BEGIN) and not _is_digits_mark(token) for token in spoken)
    if coded < CODED and (tiny < MANY_TINY or 2 * tiny <= len(spoken)):
        return list(tokens)
    return [mark(token.text) if _may_be_piece(token) else token for token in tokens]


def _may_be_piece(token: Token) -> bool:
    if token.is_settled or token.is_named:
        return False
    return token.digits > 0 or (token.text.isalnum() and len(token.text) <= TINY)


def _length(token: Token) -> int:
    """Return how long a token was in the text."""
    length = _LENGTHS.match(token.text)
    return int(length[1]) if length else len(token.text)


def _joined(marks: re.Match[str]) -> str:
    """Return marks of one kind that stand side by side as one."""
    length = sum(map(int, _LENGTHS.findall(marks[0])))
    kind = marks[2].removesuffix("s") if length == 1 else marks[2]
    return f"[{length} {kind}]"


# Words

# before a number: what it is of
_NAMING = frozenset((
    "row", "rows", "line", "lines", "column", "columns", "chunk", "upload", "part", "page",
    "step", "item", "index", "position", "field", "version", "attempt", "most", "least", "than",
    "exactly", "maximum", "max", "minimum", "min", "between", "zeile", "zeilen", "höchstens",
    "mindestens", "ligne", "línea", "linha", "riga",
))  # fmt: skip
_COLONS = ("", ":", "=", "#")  # between it and the number
_LISTING = frozenset(("and", "or", "to", "of", "und", "et", "y", "e"))
_COMMAS = (",", "-", "–")  # between the numbers of a list
