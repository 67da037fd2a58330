"""What stands above and below the rows of an extract, and what it states: row count, hash total.

A pattern is made of such a record that reads them in the records of other nights, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from flows.extensions.init.guess import Guess
from flows.extensions.init.sample import CARD, Lines
from flows.extracts.status_words import shape
from schemas.patterns import escaped
from schemas.reference import toml

SHORTEST: Final = 5  # digits of a hash total: fewer may be equal by chance
LONGEST: Final = 18  # low-order digits that a run compares
_NUMBER: Final = re.compile("[0-9]+")
_PARTS: Final = re.compile("[0-9]+|[A-Za-z]+|.")
_WORDS = "TRA?I?LE?R?|TL?R|FTR|FOOTER|EOF|END|TOTALS?|RECORDS?|T|Z|9+"
_OTHERS = "summe|gesamt|anzahl|somme|suma|soma|registros|fin|fim|ende"
_TAG = re.compile(
    rf'["(*#=-]*(?:{_WORDS}|(?i:totals?|trailer|eof|{_OTHERS}))(?=[^A-Za-z-]|$)|[(*#=-]+'
)
# as SQL*Plus, Db2 and others end what they print: `30 rows selected.`
_SENTENCE = re.compile(r"([0-9]+) (row|record)(?:s|\(s\))?( [a-z]+)?\.?", re.IGNORECASE)


class Total(NamedTuple):
    """A hash total: where it is in its record, and the mark of the column that adds up to it."""

    start: int
    end: int
    mark: str


class Stated(NamedTuple):
    """What a record states: where its row count is, and its hash total, if it has one.

    `tag`: how many characters at its beginning tell it from a row.
    """

    record: str
    start: int
    end: int
    total: Total | None = None
    tag: int = 0

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
        beginning = _PARTS.match(self.record, 0, min(places))
        position = self.tag or (beginning.end() if beginning else 0)
        pattern = f"^{escaped(self.record[:position])}"
        for start in sorted(places):
            end, name = places[start]
            between = generalised(self.record[position:start], fixed=fixed)
            pattern += f"{between}({name}{digits_form(end - start, fixed=fixed)})"
            position = end
        return pattern


def stated_in(record: str, rows: int, sums: Mapping[str, int]) -> Stated | None:
    """Return what a record states of so many rows, and of these sums of columns; None for nothing.

    A count is a number by itself, or within a longer run of digits with at least five digits.
    """
    count = _count(record, rows, least=rows, is_fixed=True)
    if count is None:
        return None
    start, end = count
    return Stated(record, start, end, next(_totals(record, start, end, sums), None))


def _count(record: str, rows: int, *, least: int, is_fixed: bool) -> tuple[int, int] | None:
    """Return the place of the number of rows, or of the nearest that is not less than `least`."""
    numbers = [each for each in _NUMBER.finditer(record) if least <= int(each[0]) <= rows]
    if numbers:
        return max(numbers, key=lambda number: int(number[0])).span()
    for width in range(12, 4, -1) if is_fixed else ():  # within a longer run of digits
        within = re.search(f"{rows:0{width}}", record)
        if within:
            return within.span()
    return None


def _totals(record: str, start: int, end: int, sums: Mapping[str, int]) -> Iterator[Total]:
    """Yield the hash totals beside the count at a place."""
    for number in _NUMBER.finditer(record):
        for run in _around(*number.span(), start, end):
            stated = record[slice(*run)]
            marks = (mark for mark, column_sum in sums.items() if _is_total(stated, column_sum))
            yield from (Total(*run, mark) for mark in marks)


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


# The last line


def guess_trailer(lines: Lines, rows: int, delimiter: str) -> Guess | None:
    """Guess `trailer` where the last line has the number of rows, `comment` where it has not.

    None where it is a row. `rows`: the lines above it that are data; `delimiter`: "" for fixed
    width.
    """
    last = lines.last
    tag = _TAG.match(last)
    if tag is None:
        return _guess_sentence(last, rows)
    # cells may span lines, so that there are fewer rows
    count = _count(last, rows, least=int(0.8 * rows) + 1, is_fixed=not delimiter)
    if CARD.search(last.replace(f"{rows:09d}", "")):  # or a hash total, beside the exact number
        is_exact = count is not None and int(last[slice(*count)]) == rows
        if not is_exact or _begins_like_others(lines, last[: tag.end() + 1]):
            return None
    if count is None:
        return _guess_comment(lines, rows, tag)
    pattern = Stated(last, *count, tag=tag.end()).pattern(fixed=not delimiter)
    return _guess_count(last, pattern, int(last[slice(*count)]), rows)


def _guess_sentence(last: str, rows: int) -> Guess | None:
    """Guess `trailer` where the last line is what a client of a database says of its rows."""
    sentence = _SENTENCE.fullmatch(last.strip())
    if sentence is None:
        return None
    pattern = rf"^([0-9]+) {sentence[2]}(?:s|\(s\))?{generalised(sentence[3] or '')}\.? *$"
    return _guess_count(last, pattern, int(sentence[1]), rows)


def _guess_count(last: str, pattern: str, stated: int, rows: int) -> Guess:
    question = ""
    if stated != rows:
        question = f"It says {stated:,}, with {rows:,} lines above: is it the count?"
    reason = "the last line; the group is the number of rows"
    return Guess("trailer", toml(pattern), reason, question, shown=(shape(last),))


def _begins_like_others(lines: Lines, beginning: str) -> bool:
    others = lines.sampled[:-1] if lines.sampled[-1] == lines.last else lines.sampled
    return any(line.startswith(beginning) for line in others)


def _guess_comment(lines: Lines, rows: int, tag: re.Match[str]) -> Guess | None:
    """Guess `comment` by the form of the last line; None where other lines begin like it."""
    beginning = tag[0] + re.sub("[A-Za-z0-9].*$", "", lines.last[tag.end() :])[:1]
    others = [line for line in lines.sampled if line != lines.last]
    if any(line.startswith(beginning) for line in others):
        return None
    question = ""
    if re.search("[0-9]", lines.last):
        question = f"The last line does not have the number of rows, {rows:,}: what is it?"
    form = toml(form_of(lines.last, tag[0]))
    reason = "the last line is not a row"
    return Guess("comment", form, reason, question, shown=(shape(lines.last),))


# Patterns


def form_of(line: str, tag: str) -> str:
    """Return the regular expression of whole lines that have a tag and go on like this one.

    Their numbers and words may be others. The tag alone may be what a row begins with.
    """
    return f"^{escaped(tag)}{generalised(line.rstrip()[len(tag) :])} *$"


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
