"""The form of the partner's links: what all of them have in common, as a person reads it.

`https://links.example.com/l/{hex:24}` stands for every link on that host, below that path, whose
key has 24 hexadecimal digits; `{base62:10-12}` for a key of 10 to 12 letters and digits, `{en|fr}`
for one of these words. Which links are judged by it says `flows.results.links`.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

# The characters of a key, as a class of a pattern, by name: of those that have all of its
# characters the first is meant.
ALPHABETS: Final = {
    "digits": "0-9",
    "hex": "0-9a-f",
    "HEX": "0-9A-F",
    "base36": "0-9a-z",
    "BASE36": "0-9A-Z",
    "base62": "0-9A-Za-z",
    "base64url": "0-9A-Za-z_-",
    "base64": "0-9A-Za-z+/=",
    "any": "!-~",
}
LONGEST: Final = 512  # characters of a key
_FORM = re.compile(r"https://(?P<host>(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)+)(?P<rest>(?:[/?#].*)?)")
_WORD = "[A-Za-z][0-9A-Za-z]{0,15}"
_VARYING = re.compile(
    r"\{(?:(?P<alphabet>\w+):(?P<shortest>[1-9][0-9]{0,2})(?:-(?P<longest>[1-9][0-9]{0,2}))?"
    rf"|(?P<words>{_WORD}(?:\|{_WORD})+))\}}"
)
_CONSTANT = re.compile(r"[!-z|~]*")  # no braces


class Constant(NamedTuple):
    """A part that is the same in every link."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def pattern(self) -> str:
        """The pattern of the part."""
        return re.escape(self.text)

    @property
    def beginning(self) -> str:
        """The pattern of the part where the link is cut within it, or before it."""
        beginnings = accumulate(self.text[:-1], initial="")
        return "|".join(map(re.escape, beginnings))

    @property
    def is_fixed(self) -> bool:
        """Whether the part is equally long in every link."""
        return True


class Choice(NamedTuple):
    """A part that is one of a few words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{{{'|'.join(self.words)}}}"

    @property
    def pattern(self) -> str:
        """The pattern of the part."""
        return f"(?:{'|'.join(self.words)})"

    @property
    def beginning(self) -> str:
        """The pattern of the part where the link is cut within it, or before it."""
        return "|".join(Constant(word).beginning for word in self.words)

    @property
    def is_fixed(self) -> bool:
        """Whether the part is equally long in every link."""
        return len(set(map(len, self.words))) == 1


class Key(NamedTuple):
    """A part that differs from link to link: its alphabet, by name, and its length."""

    alphabet: str
    shortest: int
    longest: int

    def __str__(self) -> str:
        length = f"{self.shortest}" if self.is_fixed else f"{self.shortest}-{self.longest}"
        return f"{{{self.alphabet}:{length}}}"

    @property
    def pattern(self) -> str:
        """The pattern of the part."""
        return f"[{ALPHABETS[self.alphabet]}]{{{self.shortest},{self.longest}}}"

    @property
    def beginning(self) -> str:
        """The pattern of the part where the link is cut within it, or before it."""
        return f"[{ALPHABETS[self.alphabet]}]{{0,{self.shortest - 1}}}"

    @property
    def is_fixed(self) -> bool:
        """Whether the part is equally long in every link."""
        return self.shortest == self.longest


Part = Constant | Choice | Key


class LinkForm(NamedTuple):
    """The form of links on a host, one of the allowed ones: the parts that follow it.

    >>> form = LinkForm.parse("https://links.example.com/l/{hex:24}")
    >>> form.parts
    (Constant(text='/l/'), Key(alphabet='hex', shortest=24, longest=24))
    >>> print(form)
    https://links.example.com/l/{hex:24}
    """

    host: str
    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> "LinkForm | None":
        """Read a form as it is shown; None where the text is none."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        parts = tuple(_parts(form["rest"]))
        if None in parts:
            return None
        return cls(form["host"], tuple(part for part in parts if part is not None))

    def __str__(self) -> str:
        return f"https://{self.host}{''.join(map(str, self.parts))}"

    @property
    def pattern(self) -> str:
        """The pattern of what follows the host, from its beginning to its end."""
        return "".join(part.pattern for part in self.parts)

    @property
    def beginning(self) -> str:
        """The pattern of what follows the host in a link that is cut."""
        patterns = accumulate((part.pattern for part in self.parts), initial="")
        cut = zip(patterns, self.parts, strict=False)
        return "|".join(f"{before}(?:{part.beginning})" for before, part in cut)

    @property
    def is_fixed(self) -> bool:
        """Whether all of its links are equally long, so that a shorter one is cut."""
        return all(part.is_fixed for part in self.parts)


def _parts(text: str) -> Iterator[Part | None]:
    """Yield the parts that a text shows; None for what is no part."""
    end = 0
    for varying in _VARYING.finditer(text):
        yield from _constant(text[end : varying.start()])
        yield _varying(varying)
        end = varying.end()
    yield from _constant(text[end:])


def _constant(text: str) -> Iterator[Constant | None]:
    if text:
        yield Constant(text) if _CONSTANT.fullmatch(text) else None


def _varying(shown: re.Match[str]) -> Choice | Key | None:
    """Return the part that braces show; None for an unknown alphabet or an impossible length."""
    if shown["words"]:
        return Choice(tuple(shown["words"].split("|")))
    shortest = int(shown["shortest"])
    longest = int(shown["longest"] or shortest)
    if shown["alphabet"] not in ALPHABETS or not shortest <= longest <= LONGEST:
        return None
    return Key(shown["alphabet"], shortest, longest)
