"""The trailer of an extract: its row count, and its hash total beside the sum of a column."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from flows.extracts.errors import MappingError, TrailerError
from flows.extracts.grammar import RECORD
from schemas.source import SourceSettings


class Figure(NamedTuple):
    """A number that a trailer states: its group, its most digits, and what it is."""

    group: int
    digits: int
    meaning: str


ROW_COUNT = Figure(1, 12, "count")
HASH_TOTAL = Figure(2, 40, "hash total")


def trailer_number(
    line: str, number: int, figure: Figure, settings: SourceSettings, name: str
) -> int:
    """Return a figure of the trailer on line `number`; TrailerError, which quotes nothing of it."""
    trailer = re.search(settings.trailer or "", line)
    text = trailer[figure.group] if trailer else None
    if not re.fullmatch(rf"\s*[0-9]{{1,{figure.digits}}}\s*", text or ""):
        problem = f"line {number} has no {figure.meaning} where the settings expect it"
        raise TrailerError(name=name, problem=problem)
    return int(text or "")


def rows_in_trailer(
    stated: int | None, rows: int, parts: int, settings: SourceSettings, name: str
) -> int | None:
    """Return the count of a trailer that counts rows.

    One that counts all records is compared here: with the rows, and the parts that belong to them.
    Raises TrailerError.
    """
    if settings.trailer_counts == "rows" or stated is None:
        return stated
    if stated != rows + parts:
        problem = f"it counts {stated:,} records, and {rows + parts:,} were read"
        raise TrailerError(name=name, problem=problem)
    return None


class HashTotal:
    """The sum of a column's numbers beside the total in the trailer.

    Neither leaves it: of one row, it is a card.
    """

    def __init__(self, settings: SourceSettings, header: Sequence[str], name: str) -> None:
        self._settings = settings
        self._name = name
        self._digits = settings.hash_total_digits
        self._sum = 0
        self._stated = -1
        place = settings.hash_total
        if isinstance(place, str) and place not in header:
            raise MappingError(name=name, problem=f"it has no column {place} for hash_total")
        if isinstance(place, str):
            self._cells = pl.col(place)
        else:
            first, last = place or (1, 0)
            self._cells = pl.col(RECORD).str.slice(first - 1, last - first + 1)

    def add(self, rows: pl.DataFrame) -> None:
        """Add the rows of a block, in halves of nine digits that no number of rows can overflow."""
        digits = self._cells.str.replace_all("[^0-9]", "").str.tail(self._digits)
        halves = {"high": digits.str.head(-9), "low": digits.str.tail(9)}
        sums = rows.select(
            half.cast(pl.UInt64, strict=False).sum().alias(name) for name, half in halves.items()
        )
        self._sum += sums["high"].item() * 10**9 + sums["low"].item()

    def take(self, line: str, number: int) -> None:
        """Take the total of the trailer; TrailerError where it has none."""
        self._stated = trailer_number(line, number, HASH_TOTAL, self._settings, self._name)

    def check(self, rows: int, unreadable: int) -> None:
        """Raise TrailerError unless sum and total are equal in their low-order digits.

        Every row must have been read, too.
        """
        if unreadable or (self._sum - self._stated) % 10**self._digits:
            problem = (
                f"its hash total is not that of the {rows} rows, "
                f"of which {unreadable} cannot be read"
            )
            raise TrailerError(name=self._name, problem=problem)


def unproven(source: SourceSettings) -> list[str]:
    """Return the remark on settings by which a file that was cut behind a record would pass."""
    if source.trailer is not None or source.sidecar is not None or source.format == "xlsx":
        return []
    return [
        "nothing proves an extract whole: one that was cut off behind a record would pass; "
        "set `trailer` or `sidecar` in [source]"
    ]
