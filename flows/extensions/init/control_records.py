"""What a header or trailer record states: its row count and hash total, found where they hold.

A pattern is made of such a record that reads them in the records of other nights, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from schemas.patterns import escaped

SHORTEST: Final = 5  # digits of a hash total: fewer may be equal by chance
LONGEST: Final = 18  # low-order digits that a run compares
_NUMBER: Final = re.compile("[0-9]+")
_PARTS: Final = re.compile("[0-9]+|[A-Za-z]+|.")


class Total(NamedTuple):
    """A hash total: where it is in its record, and the mark of the column that adds up to it."""

    start: int
    end: int
    mark: str


class Stated(NamedTuple):
    """What a record states: where its row count is, and its hash total, if it has one."""

    record: str
    start: int
    end: int
    total: Total | None = None

    def pattern(self, *, fixed: bool) -> str:
        """Return a regular expression of such records; `fixed`: numbers keep their size.

        The groups are the count and the total, by their names where the total comes first.
        """
        places = {self.start: (self.end, "")}
        if self.total is not None:
            is_before = self.total.start < self.start
            places = {
                self.start: (self.end, "?P<count>" if is_before else ""),
                self.total.start: (self.total.end, "?P<total>" if is_before else ""),
            }
        return "^" + "".join(_parts(self.record, places, fixed=fixed))


def stated_in(record: str, rows: int, sums: Mapping[str, int]) -> Stated | None:
    """Return what a record states of so many rows, and of these sums of columns; None for nothing.

    A count is a number by itself, or within a longer run of digits with at least five digits.
    """
    count = _count(record, rows)
    if count is None:
        return None
    start, end = count
    return Stated(record, start, end, next(_totals(record, start, end, sums), None))


def _totals(record: str, start: int, end: int, sums: Mapping[str, int]) -> Iterator[Total]:
    """Yield the hash totals beside the count at a place."""
    for number in _NUMBER.finditer(record):
        for run in _around(*number.span(), start, end):
            stated = record[slice(*run)]
            marks = (mark for mark, column_sum in sums.items() if _is_total(stated, column_sum))
            yield from (Total(*run, mark) for mark in marks)


def _count(record: str, rows: int) -> tuple[int, int] | None:
    for number in _NUMBER.finditer(record):
        if int(number[0]) == rows:
            return number.span()
    for width in range(12, 4, -1):
        within = re.search(f"{rows:0{width}}", record)
        if within:
            return within.span()
    return None


def _around(first: int, last: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a run of digits beside the count."""
    if first < start:
        yield first, min(start, last)
    if end < last:
        yield max(first, end), last


def _is_total(stated: str, column_sum: int) -> bool:
    digits = min(len(stated), LONGEST)
    is_long = len(stated.lstrip("0")) >= SHORTEST
    return is_long and (column_sum - int(stated)) % 10**digits == 0


def _parts(record: str, places: Mapping[int, tuple[int, str]], *, fixed: bool) -> Iterator[str]:
    """Yield the parts of a pattern, up to the last group; the record's beginning stays as it is."""
    beginning = _PARTS.match(record, 0, min(places))
    position = beginning.end() if beginning else 0
    yield escaped(record[:position])
    for start in sorted(places):
        end, name = places[start]
        yield generalised(record[position:start], fixed=fixed)
        yield f"({name}{digits_form(end - start, fixed=fixed)})"
        position = end


def generalised(text: str, *, fixed: bool = False) -> str:
    """Return the regular expression of a text with any numbers and words in the same places.

    `fixed`: numbers keep their size.
    """
    form = ""
    for part in _PARTS.findall(text):
        if _NUMBER.match(part):
            form += digits_form(len(part), fixed=fixed)
        elif part.isascii() and part.isalpha():
            form += "[A-Za-z]+"
        else:
            form += escaped(part)
    return form


def digits_form(size: int, *, fixed: bool) -> str:
    """Return the regular expression of so many digits, or of any where they are not `fixed`."""
    return f"[0-9]{{{size}}}" if fixed else "[0-9]+"
