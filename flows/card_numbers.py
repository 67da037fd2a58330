"""Finds card numbers among the digits of a text, and tells them from what has as many digits.

A card number is 13 to 19 digits that pass Luhn, bare or in a card's groups, or a longer run. Dates,
times, our run ids, digests and UUIDs are none, whatever digits they have.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from schemas.digits import BETWEEN

MOST_DIGITS = 19
FEWEST_DIGITS = 13
_USUAL_DIGITS = 16

Groups = Sequence[re.Match[str]]

_DOUBLED = {str(digit): str(2 * digit // 10) + str(2 * digit % 10) for digit in range(10)}
_CHAIN = re.compile(rf"[0-9]+(?:{BETWEEN}[0-9]+)*")
_GROUP = re.compile(r"[0-9]+")
_BEGINS = re.compile(r"2[2-7]|[3-6]")  # the first digits of the brands' cards
_LIST_COMMA = re.compile(r", ")  # as in a list: never within one number
# digits of the groups of a card number
_GROUPED = re.compile(r"1{13,19}|2{6,9}[12]?|4{3}[1-7]|46[45]|88[1-3]?")
# A date and time to the second or finer, or epoch milliseconds, as in file names: no card begins
# so.
_MOMENT = re.compile(
    r"20[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9][0-9]{0,6}"
    r"|1[0-9]{12}"
)
# Identifiers that are no numbers, whatever digits they begin or end with: UUIDs, and digests in
# hexadecimal.
_IDENTIFIER = re.compile(
    r"(?<![0-9A-Za-z])(?=[0-9-]{0,127}[a-f])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|[0-9a-f]{32}(?:[0-9a-f]{8}|[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{64}|[0-9a-f]{96})?)"
    r"(?![0-9A-Za-z])",
    re.IGNORECASE,
)


def passes_luhn(digits: str) -> bool:
    """Return whether the last of these digits is the check digit of a card number."""
    doubled = "".join(_DOUBLED[digit] for digit in digits[-2::-2])
    return sum(map(int, digits[-1::-2] + doubled)) % 10 == 0


def count_digits(text: str) -> int:
    """Return how many decimal digits, of any script, a text has."""
    return sum(map(str.isdecimal, text))


def blank_identifiers(text: str) -> str:
    """Return a text with x in the place of every character of a UUID or digest."""
    return _IDENTIFIER.sub(_blank, text)


def card_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text has a card number outside identifiers."""
    for _, groups in _chains(blank_identifiers(text)):
        yield from _spans_among(text, groups)


def numbers_alone(text: str) -> Iterator[str]:
    """Yield every card number of 16 digits that is one or more whole groups of a text's digits.

    Between the groups is anything but letters.
    """
    for _, groups in _chains(text):
        for first in range(len(groups)):
            digits = accumulate(group[0] for group in groups[first : first + _USUAL_DIGITS])
            yield from _branded(number for number in digits if len(number) == _USUAL_DIGITS)


def numbers_within(text: str) -> Iterator[str]:
    """Yield every card number of 16 digits in a text, also as a part of more digits."""
    for _, groups in _chains(text):
        yield from _branded(["".join(group[0] for group in groups)])


def _chains(text: str) -> Iterator[tuple[re.Match[str], list[re.Match[str]]]]:
    """Yield digits with anything but letters between, enough for a card, and their groups."""
    for chain in _CHAIN.finditer(text):
        if len(chain[0]) >= FEWEST_DIGITS:
            yield chain, list(_GROUP.finditer(text, *chain.span()))


def _spans_among(text: str, groups: Groups) -> Iterator[tuple[int, int]]:
    """Yield each group of digits that is a card number, and groups that are one together."""
    sizes = "".join(str(min(9, len(group[0]))) for group in groups)
    for number, group in enumerate(groups):
        if len(group[0]) >= FEWEST_DIGITS:
            if _is_card(group[0]):
                yield group.span()
            continue
        grouped = _GROUPED.match(sizes, number)
        if grouped and _BEGINS.match(group[0]):
            yield from _spans_together(text, groups[number : grouped.end()])


def _is_card(digits: str) -> bool:
    if _MOMENT.fullmatch(digits):
        return False
    return len(digits) > MOST_DIGITS or passes_luhn(digits)


def _spans_together(text: str, groups: Groups) -> Iterator[tuple[int, int]]:
    """Yield where the first two or more of these groups are a card number together."""
    for count in range(2, len(groups) + 1):
        digits = "".join(group[0] for group in groups[:count])
        if len(digits) < FEWEST_DIGITS or not passes_luhn(digits[:_USUAL_DIGITS]):
            continue
        start = groups[0].start()
        end = groups[count - 1].end()
        if not _LIST_COMMA.search(text, start, end):
            yield start, end


def _windows(runs: Iterable[str]) -> Iterator[str]:
    """Yield every 16 digits within these runs that pass Luhn."""
    for run in runs:
        for start in range(len(run) - _USUAL_DIGITS + 1):
            digits = run[start : start + _USUAL_DIGITS]
            if passes_luhn(digits):
                yield digits


def _branded(runs: Iterable[str]) -> Iterator[str]:
    """Yield every 16 digits within these runs that pass Luhn and begin as a brand's cards do."""
    return filter(_BEGINS.match, _windows(runs))


def _blank(identifier: re.Match[str]) -> str:
    return "x" * len(identifier[0])
