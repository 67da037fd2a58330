"""Learn the form of the partner's links from links that were received.

What is the same in all of them is shown as it is, and what differs as its alphabet and length. So a
form names no cardholder's link, and a person can compare it with what the partner says. Few links
may have a part in common by chance, which would show a piece of a key: of these only plain words of
a path are taken for constant.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from schemas.link_form import ALPHABETS, LONGEST, Choice, Constant, Key, LinkForm, Part

FEW: Final = 20  # distinct links of which fewer may have anything in common by chance
ENOUGH: Final = 100  # distinct links whose form a person is asked to confirm
CHOICES: Final = 8  # words that a part may be one of
RARE: Final = 10  # a length that fewer than one of so many keys have
_SEPARATORS: Final = ".~-_"  # within a key, where every link has as many
_URL = re.compile(r"https://(?P<host>[^/?#:]+)(?::443)?(?P<path>(?:[/?#].*)?)", re.IGNORECASE)
_SECTIONS = re.compile(r"(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?")
_STEP = re.compile("[^/]+")
_PARAMETER = re.compile("(?:[^=&]*=)?(?P<value>[^&]+)")
_WORD = re.compile("[A-Za-z][0-9A-Za-z]{0,15}")
_PLAIN_WORD = re.compile("[a-z]{1,12}")
_ALPHABETS = {name: re.compile(f"[{characters}]*") for name, characters in ALPHABETS.items()}

Span = tuple[int, int]


class LearnedForm(NamedTuple):
    """The form of some links, and how many there are."""

    form: LinkForm
    links: int


class _Outline(NamedTuple):
    """What URLs have in common: their host, as it is allowed, and the texts between the values."""

    host: str
    texts: tuple[str, ...]


def learn(links: Iterable[str], hosts: Sequence[str]) -> list[LearnedForm]:
    """Return the forms of links on these hosts, that of most links first."""
    by_outline = defaultdict[_Outline, list[tuple[str, ...]]](list)
    for link in set(links):
        url = _URL.fullmatch(link)
        host = _allowed_host(url["host"].lower(), hosts) if url else ""
        if url and host:
            spans = list(_value_spans(url["path"]))
            values = tuple(url["path"][start:end] for start, end in spans)
            by_outline[_Outline(host, tuple(_texts_between(url["path"], spans)))].append(values)
    learned = [_learned(outline, rows) for outline, rows in by_outline.items()]
    readable = [known for known in learned if LinkForm.parse(str(known.form)) == known.form]
    return sorted(readable, key=lambda known: (-known.links, str(known.form)))


def _allowed_host(host: str, hosts: Sequence[str]) -> str:
    """Return the allowed host that covers one, '' where none does."""
    for known in hosts:
        is_below = known.startswith("*.") and host.endswith(known[1:])
        if host == known or is_below:
            return known
    return ""


def _value_spans(path: str) -> Iterator[Span]:
    """Yield where the values of a URL are.

    They are the steps of its path and fragment, and the values of its query.
    """
    sections = _SECTIONS.fullmatch(path)
    if sections is None:
        return
    yield from (step.span() for step in _STEP.finditer(path, *sections.span("path")))
    if sections["query"]:
        parameters = _PARAMETER.finditer(path, *sections.span("query"))
        yield from (parameter.span("value") for parameter in parameters)
    if sections["fragment"]:
        yield from (step.span() for step in _STEP.finditer(path, *sections.span("fragment")))


def _texts_between(path: str, spans: Iterable[Span]) -> Iterator[str]:
    """Yield the texts before, between and after the values of a URL."""
    end = 0
    for start, stop in spans:
        yield path[end:start]
        end = stop
    yield path[end:]


def _learned(outline: _Outline, rows: Sequence[tuple[str, ...]]) -> LearnedForm:
    """Return the form of the links with an outline; `rows` are their values."""
    columns = list(zip(*rows, strict=True))
    parts = list[Part]()
    for number, (text, column) in enumerate(zip(outline.texts, columns, strict=False), 1):
        is_last = number == len(columns)
        parts += [Constant(text), *_parts(column, may_be_word=not is_last)]
    parts.append(Constant(outline.texts[-1]))
    return LearnedForm(LinkForm(outline.host, tuple(_joined(parts))), len(rows))


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield parts with constants that follow each other as one."""
    text = ""
    for part in parts:
        if isinstance(part, Constant):
            text += part.text
            continue
        if text:
            yield Constant(text)
        text = ""
        yield part
    if text:
        yield Constant(text)


def _parts(values: Sequence[str], *, may_be_word: bool = False) -> Iterator[Part]:
    """Yield the parts that these values of distinct links have in common."""
    words = sorted(set(values))
    if len(words) == 1 and _is_constant(words[0], len(values), may_be_word=may_be_word):
        yield Constant(words[0])
    elif len(words) <= CHOICES and len(values) >= ENOUGH and all(map(_WORD.fullmatch, words)):
        yield Choice(tuple(words))
    elif separator := _separator(values):
        columns = zip(*(value.split(separator) for value in values), strict=True)
        for number, pieces in enumerate(columns):
            yield Constant(separator if number else "")
            yield from _parts(pieces)
    else:
        yield _key(values)


def _is_constant(value: str, links: int, *, may_be_word: bool) -> bool:
    """Return whether a value that all links have is none of their keys, nor a date of today."""
    if links < FEW:
        return may_be_word and _PLAIN_WORD.fullmatch(value) is not None
    return not value.isdecimal()


def _separator(values: Sequence[str]) -> str:
    """Return what every value has equally often between its pieces, '' where nothing is."""
    if len(values) < FEW:
        return ""
    for separator in _SEPARATORS:
        numbers = {value.count(separator) for value in values}
        pieces = chain.from_iterable(value.split(separator) for value in values)
        if numbers != {0} and len(numbers) == 1 and all(pieces):
            return separator
    return ""


def _key(values: Sequence[str]) -> Key:
    """Return the key that these values are."""
    characters = "".join(set("".join(values)))
    alphabet = next(name for name, known in _ALPHABETS.items() if known.fullmatch(characters))
    lengths = Counter(map(len, values))
    shortest = _extreme(lengths, min(lengths))
    longest = _extreme(lengths, max(lengths))
    return Key(alphabet, max(1, shortest), min(LONGEST, longest))


def _extreme(lengths: Counter[int], extreme: int) -> int:
    """Return the shortest or longest that a key may be.

    A rare length, as of a number without its leading zeros, is hardly the last one of its kind.
    """
    if RARE * lengths[extreme] >= lengths.total():
        return extreme
    usual = lengths.most_common(1)[0][0]
    beyond = extreme - usual
    return extreme + beyond + (beyond > 0) - (beyond < 0)
