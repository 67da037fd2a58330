"""How dates and whole names are written, judged by the values of a column."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from flows.extensions.init.guess import LIKELY, SURE
from schemas.cell_formats import READINGS, date_shape

# First names that tell `FIRST LAST` from `LAST FIRST`.
_FIRST_NAMES = """
    james john robert michael william david richard joseph thomas charles mary patricia jennifer
    linda elizabeth barbara susan jessica sarah karen ann anne anna emma olivia noah liam daniel
    matthew mark paul steven andrew jane laura maria jose juan luis carlos sophie marie pierre peter
    george kevin brian emily amy lisa nancy
"""
_COMMON = frozenset(_FIRST_NAMES.split())


class Step(NamedTuple):
    """What is done to a date before its format is read: nothing, or one of these."""

    pad: int = 0  # with zeros to so many digits
    cut: int = 0  # to so many characters

    @property
    def toml(self) -> str:
        """The step as a key of a column's table, after others."""
        if self.pad:
            return f", pad = {self.pad}"
        if self.cut:
            return f", slice = [1, {self.cut}]"
        return ""

    def apply(self, values: Sequence[str]) -> list[str]:
        """Return the values after it."""
        if self.pad:
            return [value.zfill(self.pad) for value in values]
        if self.cut:
            return [value[: self.cut] for value in values]
        return list(values)


class DateForms(NamedTuple):
    """How dates may be written: the step before, and the formats that fit best."""

    step: Step
    forms: list[str]


def date_forms(values: Sequence[str], today: date) -> DateForms:
    """Return the formats that fit as many values as the best one; none where none is likely.

    The best comes first; of those that fit alike, one whose month varies, since what never varies
    is rather the day. A day that is always 20, before two digits of a year, is the century.
    """
    step = _step(values)
    readings = _readings(step.apply(values), today)
    without_day = [reading.months for reading in readings if not reading.days]
    readings = [each for each in readings if not each.days or each.months not in without_day]
    readings.sort(key=lambda reading: reading.rank)
    return DateForms(step, [reading.form for reading in readings])


def _readings(texts: Sequence[str], today: date) -> list["_Reading"]:
    """Return how texts may be read: in the usual formats, or with day and month exchanged where the
    month would never vary.
    """
    shares = {form: share_of_dates(texts, form, today) for form in READINGS}
    least = max(LIKELY, 0.98 * max(shares.values()))
    readings = [_reading(texts, form, share) for form, share in shares.items() if share > least]
    unusual = [_with_day_for_month(each.form) for each in readings if each.month_never_varies]
    for form in sorted(set(unusual).difference(READINGS)):
        share = share_of_dates(texts, form, today)
        if share > least:
            readings.append(_reading(texts, form, share))
    return readings


class _Reading(NamedTuple):
    """A format, the share of the values that it reads as dates of cards, and what it makes of them:
    year and month of each, and the different days.
    """

    form: str
    share: float
    months: tuple[tuple[str, ...], ...]
    days: frozenset[str]

    @property
    def month_never_varies(self) -> bool:
        """Whether all have one month, and days that differ."""
        return len(self.days) > 1 and len({month for _, month in self.months}) == 1

    @property
    def rank(self) -> tuple[float, bool, bool]:
        """The sort key: at last, the American order is first."""
        return -self.share, self.month_never_varies, self.form.startswith("DD")


def _reading(values: Sequence[str], form: str, share: float) -> _Reading:
    dates = _dates_read(values, form)
    months = tuple((date[0][-2:], date[1]) for date in dates)
    days = frozenset(date[2] for date in dates if len(date) > 2)
    return _Reading(form, share, months, days)


def _dates_read(values: Sequence[str], form: str) -> list[tuple[str, ...]]:
    """Return year, month and, where the form has one, day of each different value that is read."""
    parts = [re.compile(date_shape(form, part, real=True)) for part in "YMD" if part in form]
    dates = []
    for value in dict.fromkeys(values):
        matches = [part.match(value) for part in parts]
        if all(matches):
            dates.append(tuple(match[1] for match in matches if match))
    return dates


def _with_day_for_month(form: str) -> str:
    """Return a format with day and month in each other's place."""
    return re.sub("MM|DD", lambda part: "DD" if part[0] == "MM" else "MM", form)


def _step(values: Sequence[str]) -> Step:
    """Return what undoes lost zeros, or a time behind the date."""
    sizes = {len(value) for value in values if value.isdigit()}
    if len(sizes) == 2 and max(sizes) - min(sizes) == 1 and max(sizes) in (4, 6, 8):
        return Step(pad=max(sizes))
    days = {re.sub(r"[ T]\d\d:\d\d.*$", "", value) for value in values}
    lengths = {len(day) for day in days}
    if len(lengths) == 1 and days.isdisjoint(values):
        return Step(cut=lengths.pop())
    return Step()


def share_of_dates(values: Sequence[str], form: str, today: date) -> float:
    """Return the share of the values that are, in this form, the date of a card.

    It is ten years old to twenty ahead.
    """
    right = 0
    dates = re.compile(date_shape(form, "Y", real=True))
    for value, times in Counter(values).items():
        day = dates.match(value)
        if day is None:
            continue
        year = 2000 + int(day[1]) % 100
        if today.year - 10 <= year <= today.year + 20:
            right += times
    return right / len(values)


def name_forms(values: Sequence[str]) -> list[str]:
    """Return how whole names are written; several forms where that is in doubt."""
    for mark, form in ((",", "LAST, FIRST"), ("/", "LAST/FIRST")):
        share = sum(mark in value for value in values) / len(values)
        if share > SURE:
            return [form]
        if share > LIKELY:
            return [form, "FIRST LAST"]
    return _name_orders([value.lower().split() for value in values if " " in value])


def _name_orders(names: Sequence[Sequence[str]]) -> list[str]:
    """Return the likelier order of names as their words; both where it is not clear."""
    first = sum(words[0] in _COMMON for words in names)
    last = sum(words[-1] in _COMMON for words in names)
    orders = ["FIRST LAST", "LAST FIRST"]
    if first < last:
        orders.reverse()
    is_clear = max(first, last) > max(2, 4 * min(first, last))
    long = sum(_is_long(words) for words in names)
    if is_clear and long <= 0.02 * len(names):
        return orders[:1]
    return orders


def _is_long(words: Sequence[str]) -> bool:
    """Return whether a name has more words than a first and a last name."""
    return sum(len(word) > 3 for word in words) > 2 or "," in "".join(words)
