"""Days and times as the partner writes them; what cannot be read has a form, which says how it is
written.

The day of a time is the day that is written there, in whatever zone. Between day and month nothing
is guessed: of `03/04/2027` the other days of the file, or the setting `day_first`, have to say
which is which.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

LONGEST: Final = 80  # characters of a text that may be a day
_FORM: Final = 24  # characters of a form

_ZONE = r"(?:Z|UTC|(?:GMT)?[+-][0-9]{2}:?[0-9]{2}|GMT)(?: \([A-Za-z ]{1,40}\))?"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?: ?[AP]M)?"
_TIME = rf"(?:(?:T|,? ){_CLOCK}(?: ?{_ZONE})?)?"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAME = rf"(?P<name>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_DAY = "(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_YEAR = "(?P<year>20[0-9]{2})"


def _compiled(*patterns: str) -> list[re.Pattern[str]]:
    return [re.compile(pattern, re.IGNORECASE | re.ASCII) for pattern in patterns]


_NAMED = _compiled(
    rf"{_YEAR}(?P<dash>[-/.])(?P<month>[0-9]{{1,2}})(?P=dash)(?P<day>[0-9]{{1,2}}){_TIME}",
    rf"{_YEAR}(?P<month>[0-9]{{2}})(?P<day>[0-9]{{2}}){_TIME}",
    rf"{_WEEKDAY}{_DAY}\.?[ -]?{_NAME},?[ -]?(?P<year>20[0-9]{{2}}|[0-9]{{2}}){_TIME}",
    rf"{_WEEKDAY}{_NAME} {_DAY},? {_YEAR}{_TIME}",  # also String(new Date())
)
_EPOCH = re.compile(r"(?P<seconds>[1-3][0-9]{9})(?:\.?[0-9]{3})?")
_NUMBERS = re.compile(
    rf"(?P<first>[0-9]{{1,2}})(?P<dash>[-/.])(?P<second>[0-9]{{1,2}})(?P=dash)"
    rf"(?P<third>20[0-9]{{2}}|[0-9]{{2}}){_TIME}",
    re.IGNORECASE | re.ASCII,
)
_MOMENT = re.compile(
    r"[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?"
    r"(?: ?(?P<half>[AP])M)?(?: ?(?:Z|UTC|GMT))?"
    r"(?: ?(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2}))?(?: \([A-Za-z ]{1,40}\))?",
    re.IGNORECASE | re.ASCII,
)
_SIGNS = ((r"[^\W\d_]", "A"), (r"\d", "9"), ("[^ -~]", "?"))
_LONG_RUN = re.compile(r"([A9?])\1{9,}")


class PartnerDay(NamedTuple):
    """What a text says: a day, or where it could not be read its form."""

    day: date | None
    form: str | None


def read_days(texts: Iterable[str], *, is_day_first: bool | None = None) -> dict[str, PartnerDay]:
    """Return what each of the texts of one file says; `is_day_first`: as it is agreed.

    >>> read_days(["28-Jan-2027", "soon"])["28-Jan-2027"].day
    datetime.date(2027, 1, 28)
    """
    days = dict[str, date | None]()
    in_numbers = list[str]()
    for text in set(texts):
        if len(text) <= LONGEST and _NUMBERS.fullmatch(text):
            in_numbers.append(text)
        else:
            days[text] = _plain_day(text)
    days |= _in_one_order(in_numbers, is_day_first)
    return {text: PartnerDay(day, None if day else form_of(text)) for text, day in days.items()}


def read_day(text: str, *, is_day_first: bool | None = None) -> PartnerDay:
    """Return what a text says that stands alone."""
    return read_days([text], is_day_first=is_day_first)[text]


def read_moment(text: str) -> datetime | None:
    """Return the time that a text says, in UTC; None where it says none, such as a day alone.

    A time without a zone is of UTC.

    >>> f"{read_moment('2026-11-20T10:00:00-08:00')}"
    '2026-11-20 18:00:00+00:00'
    """
    epoch = _EPOCH.fullmatch(text)
    if epoch:
        return datetime.fromtimestamp(int(epoch["seconds"]), UTC)
    day = read_day(text).day
    written = _MOMENT.search(text)
    if day is None or written is None:
        return None
    numbers = {name: int(written[name] or 0) for name in ("minute", "second", "hours", "minutes")}
    hour = int(written["hour"])
    if written["half"]:
        hour = hour % 12 + (12 if written["half"].upper() == "P" else 0)
    ahead = timedelta(hours=numbers["hours"], minutes=numbers["minutes"])
    try:
        clock = time(hour, numbers["minute"], numbers["second"], tzinfo=UTC)
    except ValueError:
        return None
    return datetime.combine(day, clock) - (ahead if written["sign"] != "-" else -ahead)


@lru_cache(1024)
def form_of(text: str) -> str:
    """Return how a text is written: A for a letter, 9 for a digit. Long runs are counted, so that
    no form has as many digits as a card number.
    """
    form = text[: 4 * _FORM]
    for pattern, sign in _SIGNS:
        form = re.sub(pattern, sign, form)
    form = _LONG_RUN.sub(lambda run: f"{run[1]}({len(run[0])})", form)
    return form if len(form) <= _FORM else f"{form[:_FORM]}..."


def _plain_day(text: str) -> date | None:
    """Return the day of a text in which nothing has to be guessed."""
    if len(text) > LONGEST:
        return None
    epoch = _EPOCH.fullmatch(text)
    if epoch:
        return datetime.fromtimestamp(int(epoch["seconds"]), UTC).date()
    for pattern in _NAMED:
        written = pattern.fullmatch(text)
        if written:
            parts = written.groupdict()
            month = parts.get("month") or 1 + _MONTHS.index(parts["name"].lower())
            return _day(parts["year"], month, parts["day"])
    return None


def _day(year: str | int, month: str | int, day: str | int) -> date | None:
    """Return a day of this century; None where there is no such day."""
    try:
        return date(2000 + int(year) % 100, int(month), int(day))
    except ValueError:
        return None


# Days in three numbers
# --------------------------------------------------------------------------------------------------

Order = Callable[[str, str, str], date | None]


def _month_first(first: str, second: str, third: str) -> date | None:
    return _day(third, first, second)


def _day_first(first: str, second: str, third: str) -> date | None:
    return _day(third, second, first)


def _year_first(first: str, second: str, third: str) -> date | None:
    return None if len(third) == 4 else _day(first, second, third)


def _in_one_order(texts: Sequence[str], is_day_first: bool | None) -> dict[str, date | None]:
    """Return the day of each text by the orders that read all that any can read, where there are
    such, else by any; none where they say different days.
    """
    orders: list[Order] = [_month_first, _day_first, _year_first]
    if is_day_first is not None:
        orders = [_day_first if is_day_first else _month_first]
    readings = [_in_order(texts, order) for order in orders]
    readable = set[str]().union(*readings)
    standing = [days for days in readings if days.keys() == readable] or readings
    return {text: _agreed({days[text] for days in standing if text in days}) for text in texts}


def _in_order(texts: Sequence[str], order: Order) -> dict[str, date]:
    """Return the days of the texts that have one in this order."""
    days = dict[str, date]()
    for text in texts:
        numbers = _NUMBERS.fullmatch(text)
        day = order(numbers["first"], numbers["second"], numbers["third"]) if numbers else None
        if day is not None:
            days[text] = day
    return days


def _agreed(days: Collection[date]) -> date | None:
    return next(iter(days)) if len(days) == 1 else None
