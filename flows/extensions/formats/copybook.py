"""A COBOL copybook, read: the items of a record, with their levels, pictures and clauses.

What it does not describe plainly is refused with its line. `record_layout.py` places the items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

CODE: Final = slice(7, 72)  # columns 8 to 72 of a line in fixed form
_INDICATORS: Final = " *-/Dd"
_TOKEN: Final = re.compile(r"""(?:[XN]?"[^"]*"|[XN]?'[^']*')\.?|\S+""", re.IGNORECASE)
_REPEATED: Final = re.compile(r"(.)\(([0-9]{1,5})\)")
_NUMBER: Final = re.compile("S?9*V?9*")
_SKIPPED: Final = (66, 77, 88)  # RENAMES, items of no record, names of values
_USAGES: Final = {
    "DISPLAY": "display",
    "COMP": "binary",
    "COMP-4": "binary",
    "BINARY": "binary",
    "COMP-5": "native",
    "COMP-3": "packed",
    "PACKED-DECIMAL": "packed",
    "COMP-1": "float",
    "COMP-2": "double",
}
USAGES: Final = _USAGES | {
    name.replace("COMP", "COMPUTATIONAL"): usage
    for name, usage in _USAGES.items()
    if name.startswith("COMP")
}
_REFUSED: Final = {
    "COPY": "write what it copies in its place",
    "SYNC": "SYNCHRONIZED is not supported: write its slack bytes as FILLER",
    "SYNCHRONIZED": "SYNCHRONIZED is not supported: write its slack bytes as FILLER",
    "POINTER": "a pointer is no field of a file",
    "INDEX": "an index is no field of a file",
}
_IGNORED: Final = frozenset(("JUST", "JUSTIFIED", "RIGHT", "BLANK", "WHEN", "ZERO", "ZEROS"))
_FILLING: Final = frozenset(("IS", "ARE", "USAGE", "TIMES", "CHARACTER", "SIGN", "GLOBAL"))


class CopybookError(ValueError):
    """A copybook cannot be read: its line, and why."""


class Picture(NamedTuple):
    """A picture: how many places; of a number how many digits, how many of them after the point."""

    places: int
    is_number: bool = False
    decimals: int = 0
    signed: bool = False


class Item(NamedTuple):
    """A data item: with a picture a field, else a group of `items`."""

    line: int
    level: int
    name: str
    picture: Picture | None
    usage: str
    sign: str  # "" for trailing in the last digit; else leading, trailing separate, ...
    times: int
    depends: bool  # the number of times is in another field
    redefines: str
    items: tuple[Item, ...] = ()


def read_copybook(text: str) -> tuple[Item, ...]:
    """Return the records of a copybook; CopybookError."""
    sentences = list(_sentences(text))
    flat = [item for item in map(_item, sentences) if item is not None]
    if not flat:
        raise CopybookError("it has no items, such as 05 NAME PIC X(30).")
    records = _grouped(flat, "display")
    if len({record.level for record in records}) > 1:
        raise CopybookError(f"line {records[-1].line}: its level is above that of the first item")
    return records


class _Sentence(NamedTuple):
    """The words of an item up to its point, without it, and its line."""

    line: int
    words: tuple[str, ...]

    def error(self, problem: str) -> CopybookError:
        name = self.words[1] if len(self.words) > 1 else self.words[0]
        return CopybookError(f"line {self.line}, {name}: {problem}")


def _sentences(text: str) -> Iterator[_Sentence]:
    words: list[str] = []
    first = 0
    for number, code in _code_lines(text):
        for token in _TOKEN.findall(code):
            if not words:
                first = number
            word = token.rstrip(",;")
            if word.removesuffix("."):
                words.append(word.removesuffix("."))
            if word.endswith("."):
                yield _Sentence(first, tuple(words))
                words = []
    if words:
        yield _Sentence(first, tuple(words))


def _code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of code with their numbers, continued ones joined, without comments."""
    lines = [line.rstrip().expandtabs() for line in text.splitlines()]
    is_fixed = all(_fits_fixed_form(line) for line in lines)
    held = (0, "")
    for number, line in enumerate(lines, 1):
        indicator = line[6:7] if is_fixed else line.lstrip()[:1].replace("-", " ")
        if not line.strip() or indicator in ("*", "/", "D", "d")[: 4 if is_fixed else 1]:
            continue
        code = line[CODE] if is_fixed else line.partition("*>")[0]
        if indicator == "-" and is_fixed:
            held = (held[0], held[1] + code.lstrip().removeprefix("'").removeprefix('"'))
            continue
        yield held
        held = (number, code)
    yield held


def _fits_fixed_form(line: str) -> bool:
    """Return whether a line may have sequence number, indicator and code in their columns."""
    sequence = line[:6]
    is_sequence = not sequence.strip() or re.fullmatch(r"[0-9]{1,6} *|\w{6}", sequence)
    return bool(is_sequence) and line[6:7] in _INDICATORS


def _item(sentence: _Sentence) -> Item | None:
    """Return an item without those below it, None for what describes no bytes."""
    level = sentence.words[0]
    if not re.fullmatch("[0-9]{1,2}", level):
        problem = _REFUSED.get(level.upper(), "an item begins with its level, such as 05")
        raise sentence.error(problem)
    if int(level) in _SKIPPED:
        return None
    clauses = _Clauses(sentence)
    return Item(
        line=sentence.line,
        level=int(level),
        name=clauses.name,
        picture=clauses.picture,
        usage=clauses.usage,
        sign=clauses.sign,
        times=clauses.times,
        depends=clauses.depends,
        redefines=clauses.redefines,
    )


class _Clauses:
    """The clauses of one item."""

    def __init__(self, sentence: _Sentence) -> None:
        self.name = "FILLER"
        self.picture: Picture | None = None
        self.usage = ""
        self.sign = ""
        self.times = 1
        self.depends = False
        self.redefines = ""
        self._sentence = sentence
        self._words = list(sentence.words[1:])
        if self._words and self._words[0].upper() not in self._readers | USAGES.keys():
            self.name = self._words.pop(0).upper()
        while self._words:
            self._read(self._words.pop(0).upper())

    @property
    def _readers(self) -> dict[str, str]:
        return {
            "PIC": "_read_picture",
            "PICTURE": "_read_picture",
            "OCCURS": "_read_occurs",
            "REDEFINES": "_read_redefines",
            "VALUE": "_skip_value",
            "VALUES": "_skip_value",
            "LEADING": "_read_sign",
            "TRAILING": "_read_sign",
            "SEPARATE": "_read_sign",
        }

    def _read(self, word: str) -> None:
        if word in self._readers:
            getattr(self, self._readers[word])(word)
        elif word in USAGES:
            self.usage = USAGES[word]
        elif word not in _FILLING | _IGNORED:
            problem = _REFUSED.get(word, f"{word} is not supported")
            raise self._sentence.error(problem)

    def _next(self, expected: str) -> str:
        while self._words and self._words[0].upper() in _FILLING:
            self._words.pop(0)
        if not self._words:
            raise self._sentence.error(f"{expected} is missing")
        return self._words.pop(0).upper()

    def _read_picture(self, _: str) -> None:
        self.picture = _picture(self._next("the picture"), self._sentence)

    def _read_redefines(self, _: str) -> None:
        self.redefines = self._next("what it redefines")

    def _read_sign(self, word: str) -> None:
        self.sign = f"{self.sign} {word.lower()}".strip()

    def _read_occurs(self, _: str) -> None:
        times = self._next("the number of times")
        if self._words[:1] and self._words[0].upper() == "TO":
            self._words.pop(0)
            times = self._next("the largest number of times")
        if not re.fullmatch("[0-9]{1,4}", times):
            raise self._sentence.error("OCCURS needs a number of times")
        self.times = int(times)
        clauses = self._readers.keys() | USAGES.keys()
        while self._words and self._words[0].upper() not in clauses:
            self.depends |= self._words.pop(0).upper() == "DEPENDING"

    def _skip_value(self, _: str) -> None:
        clauses = self._readers.keys() | USAGES.keys()
        while self._words and self._words[0].upper() not in clauses:
            self._words.pop(0)


def _picture(text: str, sentence: _Sentence) -> Picture:
    places = _REPEATED.sub(lambda repeat: repeat[1] * int(repeat[2]), text)
    if re.search("[^SV9XAZB0/,.+*$CRDP-]", places):
        raise sentence.error(f"PIC {text} is not supported (of two bytes a character: use PIC X)")
    if "P" in places:
        raise sentence.error(f"PIC {text} is not supported: P stands for digits that are not there")
    if not _NUMBER.fullmatch(places) or "9" not in places:
        return Picture(len(places.replace("V", "")))
    digits = places.replace("S", "").replace("V", "")
    _, _, decimals = places.partition("V")
    return Picture(len(digits), True, len(decimals), places.startswith("S"))


def _grouped(items: Sequence[Item], usage: str) -> tuple[Item, ...]:
    """Put items below the groups that they belong to, by their levels; usages are inherited."""
    groups: list[Item] = []
    start = 0
    while start < len(items):
        first = items[start]
        end = start + 1
        while end < len(items) and items[end].level > first.level:
            end += 1
        own_usage = first.usage or usage
        below = _grouped(items[start + 1 : end], own_usage)
        groups.append(_checked(first._replace(usage=own_usage, items=below)))
        start = end
    return tuple(groups)


def _checked(item: Item) -> Item:
    where = f"line {item.line}, {item.name}"
    has_size = item.picture is not None or item.usage in ("float", "double")
    if has_size and item.items:
        raise CopybookError(f"{where}: an item with a picture has no items below it")
    if not has_size and not item.items:
        raise CopybookError(f"{where}: it has neither a picture nor items below it")
    return item
