"""A text in its readings: as it is, with the spellings of its characters undone, without markup.

Digits can be those of other scripts, escaped, percent or HTML encoded, or have markup between them.
What is found in a reading is masked where it stands in the original.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from flows.card_numbers import FEWEST_DIGITS, count_digits
from schemas.digits import plain_char

Span = tuple[int, int]
Spelling = re.Match[str]

# Other scripts' digits, escapes, percent and HTML encodings.
_SPELLED = re.compile(
    r"[\ud800-\udbff][\udc00-\udfff]|[^\x00-\x7f]"
    r"|(?<!\\)\\+(?:u(?:\{0*(?P<wide>[0-9a-f]{2,5})\}|(?P<four>[0-9a-f]{4}))"
    r"|x(?P<byte>[0-9a-f]{2})"
    r"|(?P<octal>0[4-7][0-7])|[nrt](?![a-z])|(?=[/+=&%]))|(?:%[0-9a-f]{2})+"
    r"|&(?:[a-z]{2,8};|#(?:[0-9]{2,7}|x[0-9a-f]{2,6});?)",
    re.IGNORECASE,
)
_BASES = {"wide": 16, "four": 16, "byte": 16, "octal": 8}  # of the groups of an escape
_TAG = re.compile(r"<[a-z/!][^<>]{0,80}>", re.IGNORECASE)
_PASSES = 5  # escapes within escapes
_UNUSUAL = re.compile(r"[^\x00-\x7f]|[\\%&<]")  # without these a text has one reading


class Reading(NamedTuple):
    """A text with spellings undone, and where each of its characters, and its end, stood before."""

    text: str
    places: Sequence[int]

    def original_span(self, span: Span) -> Span:
        """Return where a span of this reading stands in the original."""
        start, stop = span
        last = self.places[stop - 1]
        end = next(place for place in self.places[stop:] if place > last)
        return self.places[start], end

    def rewritten(self, pattern: re.Pattern[str], plain: Callable[[Spelling], str]) -> "Reading":
        """Return the reading with every match of `pattern` replaced by its `plain` text."""
        pieces = list[str]()
        places = list[int]()
        end = 0
        for spelling in pattern.finditer(self.text):
            replacement = plain(spelling)
            start = spelling.start()
            pieces += self.text[end:start], replacement
            places += self.places[end:start]
            places += [self.places[start]] * len(replacement)
            end = spelling.end()
        pieces.append(self.text[end:])
        places += self.places[end:]
        return Reading("".join(pieces), places)


def readings(text: str) -> Iterator[Reading]:
    """Yield a text as it is, with every spelling of a character undone, and also without markup.

    A reading equal to the one before is left out.
    """
    as_written = Reading(text, range(len(text) + 1))
    yield as_written
    if not _UNUSUAL.search(text):
        return
    unspelled = as_written
    for _ in range(_PASSES):
        rewritten = unspelled.rewritten(_SPELLED, _unspelled)
        if rewritten.text == unspelled.text:
            break
        unspelled = rewritten
    if unspelled is not as_written:
        yield unspelled
    untagged = unspelled.rewritten(_TAG, _untagged)
    if untagged.text != unspelled.text:
        yield untagged


def _unspelled(spelling: Spelling) -> str:
    if spelling.lastgroup:
        return chr(int(spelling[spelling.lastgroup], _BASES[spelling.lastgroup]))
    text = spelling[0]
    match text[0]:
        case "\\":
            return "" if text.endswith("\\") else " "
        case "%":
            return unquote(text)
        case "&":
            return html.unescape(text)
    if len(text) == 2:  # half surrogates, each escaped
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    plain = plain_char(text)
    # a blank that was spelled otherwise is none of a list of ours (`card_numbers`)
    return "\t" if plain == " " else plain


def _untagged(tag: Spelling) -> str:
    """Return a bar for markup, or the markup itself where it has the digits of a card number."""
    return "|" if count_digits(tag[0]) < FEWEST_DIGITS else tag[0]
