"""The lines around the records: Excel's `sep=` line, the header with its names, the trailer with count and total."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import polars as pl

from flows.extracts.errors import HeaderError, MissingColumnsError, TrailerError
from schemas.issuer import SourceSettings

MOST = 20_000  # columns
RECORD = "record"  # the only column of a fixed-width extract: the whole line
_SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[\s\d.,/+-]*\d[\s\d.,/+-]*")
_CARD_OR_MAIL = re.compile(r"\d[\d -]{4,}\d|@")
_AROUND = "\ufeff\u200b\u00a0 \t"


def is_sep_line(line: str, settings: SourceSettings, name: str) -> bool:
    """Return whether this is Excel's `sep=` line; raises HeaderError if it contradicts the settings."""
    found = _SEP.fullmatch(line)
    if found and found[1] != settings.delimiter:
        problem = f"its sep= line names the delimiter {found[1]!r}, the settings {settings.delimiter!r}"
        raise HeaderError(name=name, problem=problem)
    return found is not None


def header_names(line: str, settings: SourceSettings, name: str) -> tuple[str, ...]:
    """Return the names in a header line; HeaderError, which shows nothing of it, where it looks like data."""
    fields = _fields(line, settings.delimiter, name)
    if any(_NUMBER.fullmatch(field) or _CARD_OR_MAIL.search(field) for field in fields):
        problem = "it looks like a data row; an extract without a header needs header_rows = 0 and names"
        raise HeaderError(name=name, problem=problem)
    if len(fields) < 2:
        best = max(",;\t|", key=line.count)
        hint = f"; with {best!r} it has {line.count(best) + 1}" if line.count(best) else ""
        problem = f"with the delimiter {settings.delimiter!r} it has only one column{hint}"
        raise HeaderError(name=name, problem=problem)
    names = [field.strip(_AROUND) or f"column_{at}" for at, field in enumerate(fields, 1)]
    names = [f"{name}_" if name in ("row", "line") else name for name in names]  # our frames have these two themselves
    if len(names) > MOST:
        raise HeaderError(name=name, problem=f"it has {len(names):,} columns; the limit is {MOST:,}")
    places: dict[str, int] = {}
    for at, found in enumerate(names, 1):
        if places.setdefault(found, at) < at:
            raise HeaderError(name=name, problem=f"columns {places[found]} and {at} have the same name")
    return tuple(names)


def _fields(line: str, delimiter: str, name: str) -> list[str]:
    if "\r" in line:
        raise HeaderError(name=name, problem="its lines end in CR only; expected LF or CRLF")
    if "\x00" in line or "\x1a" in line:
        raise HeaderError(name=name, problem="it contains bytes that are not text in the encoding of the settings")
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        pass  # our error is raised outside: the original may quote the content
    raise HeaderError(name=name, problem="its quotes are not paired")


def trailer_count(line: str, settings: SourceSettings, name: str, number: int) -> int:
    """Return the count in a trailer; raises TrailerError with the line number, not its content."""
    text = _in_trailer(line, settings, settings.trailer_field or 1)
    if not re.fullmatch(r"\s*[0-9]{1,12}\s*", text):
        raise TrailerError(name=name, problem=f"line {number} has no count where the settings expect it")
    return int(text)


def _in_trailer(line: str, settings: SourceSettings, at: int) -> str:
    """Return a group of the trailer, or a field where `trailer_field` is set."""
    if settings.trailer_field is not None:
        fields = next(csv.reader([line], delimiter=settings.delimiter), [])
        return fields[at - 1] if len(fields) >= at else ""
    found = re.search(settings.trailer or "", line)
    return found[at] or "" if found else ""


class HashTotal:
    """The sum of a column's numbers beside the total in the trailer; neither leaves it: of one row, it is a card."""

    def __init__(self, settings: SourceSettings, header: Sequence[str], name: str) -> None:
        self._settings, self._name, self._digits = settings, name, settings.hash_total_digits
        self._sum, self._stated, place = 0, -1, settings.hash_total
        if isinstance(place, str) and place not in header:
            raise MissingColumnsError(name=name, columns=place)
        first, last = place if isinstance(place, tuple) else (1, 0)
        self._cells = pl.col(place) if isinstance(place, str) else pl.col(RECORD).str.slice(first - 1, last - first + 1)

    def add(self, rows: pl.DataFrame) -> None:
        """Add the rows of a block, in halves of nine digits that no number of rows can overflow."""
        digits = self._cells.str.replace_all("[^0-9]", "").str.tail(self._digits)
        halves = {"high": digits.str.head(-9), "low": digits.str.tail(9)}
        sums = rows.select(half.cast(pl.UInt64, strict=False).sum().alias(name) for name, half in halves.items())
        self._sum += sums["high"].item() * 10**9 + sums["low"].item()

    def take(self, line: str, number: int) -> None:
        """Take the total of the trailer; TrailerError where it has none."""
        text = _in_trailer(line, self._settings, self._settings.hash_total_group).strip()
        if not re.fullmatch("[0-9]{1,40}", text):
            raise TrailerError(name=self._name, problem=f"line {number} has no hash total where the settings expect it")
        self._stated = int(text)

    def check(self, rows: int, unreadable: int) -> None:
        """Raise TrailerError unless sum and total are equal in their low-order digits, and every row was read."""
        if unreadable or (self._sum - self._stated) % 10**self._digits:
            problem = f"its hash total is not that of the {rows} rows, of which {unreadable} cannot be read"
            raise TrailerError(name=self._name, problem=problem)
