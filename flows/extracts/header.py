"""The header of an extract: its names, and the line `sep=` that Excel reads above it.

A header may be shown in an error, so what looks like data is refused without its names.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

from flows.extracts.errors import HeaderError
from schemas.source import SourceSettings

MOST = 20_000  # columns
SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[\s\d.,/+-]*\d[\s\d.,/+-]*")
_CARD_OR_MAIL = re.compile(r"\d[\d -]{4,}\d|@")
_AROUND = "\ufeff\u200b\u00a0 \t"


def is_sep_line(line: str, settings: SourceSettings, name: str) -> bool:
    """Return whether this is Excel's `sep=` line; HeaderError if it contradicts the settings."""
    sep = SEP.fullmatch(line)
    if sep is None:
        return False
    if sep[1] != settings.delimiter:
        problem = (
            f"its sep= line names the delimiter {sep[1]!r}, the settings {settings.delimiter!r}"
        )
        raise HeaderError(name=name, problem=problem)
    return True


def header_names(line: str, settings: SourceSettings, name: str) -> tuple[str, ...]:
    """Return the names in a header line.

    Raises HeaderError, which shows nothing of the line where it looks like data.
    """
    fields = _fields(line, settings.delimiter, name)
    problem = _problem_of_fields(fields, line, settings.delimiter)
    if problem:
        raise HeaderError(name=name, problem=problem)
    if len(fields) > MOST:
        problem = f"it has {len(fields):,} columns; the limit is {MOST:,}"
        raise HeaderError(name=name, problem=problem)
    return tuple(_numbered([_column_name(field, place) for place, field in enumerate(fields, 1)]))


def _fields(line: str, delimiter: str, name: str) -> list[str]:
    if "\r" in line:
        raise HeaderError(name=name, problem="its lines end in CR only; expected LF or CRLF")
    if "\x00" in line or "\x1a" in line:
        problem = "it contains bytes that are not text in the encoding of the settings"
        raise HeaderError(name=name, problem=problem)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        pass  # our error is raised outside: the original may quote the content
    raise HeaderError(name=name, problem="its quotes are not paired")


def _problem_of_fields(fields: list[str], line: str, delimiter: str) -> str:
    """Return why these fields are no header, "" where they are one."""
    if any(_NUMBER.fullmatch(field) or _CARD_OR_MAIL.search(field) for field in fields):
        return (
            "it looks like a data row; an extract without a header needs header_rows = 0 and names"
        )
    if len(fields) > 1:
        return ""
    problem = f"with the delimiter {delimiter!r} it has only one column"
    likeliest = max(",;\t|", key=line.count)
    if likeliest in line:
        problem += f"; with {likeliest!r} it has {line.count(likeliest) + 1}"
    return problem


def _column_name(field: str, place: int) -> str:
    name = field.strip(_AROUND) or f"column_{place}"
    return f"{name}_" if name in ("row", "line") else name  # our frames have these two themselves


def _numbered(names: Sequence[str]) -> Iterator[str]:
    """Yield the names; of equal ones each has a number behind it, so that none means two columns.

    A setting that knew the name when one column had it finds no column then, and never another.
    """
    times = Counter(names)
    numbers = {name: count(1) for name in times}
    for name in names:
        if times[name] == 1:
            yield name
            continue
        numbered = (f"{name}_{number}" for number in numbers[name])
        yield next(free for free in numbered if free not in times)


def is_closed(names: tuple[str, ...]) -> bool:
    """Return whether a header may end in a delimiter: its last column has no name."""
    return names[-1:] == (_column_name("", len(names)),)


def otherwise_closed(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a header without the delimiter that it ends in, or with one where it has none."""
    if is_closed(names):
        return names[:-1]
    return tuple(_numbered([*names, _column_name("", len(names) + 1)]))
