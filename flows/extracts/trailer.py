"""What header and trailer records state: row count, and hash total beside the sum of a column."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from flows.extracts.errors import HeaderRecordError, MappingError, TrailerError
from flows.extracts.grammar import RECORD
from schemas.source import SourceSettings


class Figure(NamedTuple):
    """A number that such a record states: its group's name and number, its most digits, and what
    it is.
    """

    name: str
    group: int
    digits: int
    meaning: str


ROW_COUNT = Figure("count", 1, 12, "count")
HASH_TOTAL = Figure("total", 2, 40, "hash total")


def stated_number(
    line: str,
    number: int,
    figure: Figure,
    pattern: str,
    name: str,
    error: type[TrailerError] = TrailerError,
) -> int:
    """Return a figure of the record on line `number`; an error, which quotes nothing of it."""
    record = re.search(pattern, line)
    text = record[_group(record.re, figure)] if record else None
    if not re.fullmatch(rf"\s*[0-9]{{1,{figure.digits}}}\s*", text or ""):
        problem = f"line {number} has no {figure.meaning} where the settings expect it"
        raise error(name=name, problem=problem)
    return int(text or "")


def _group(pattern: re.Pattern[str], figure: Figure) -> str | int:
    return figure.name if figure.name in pattern.groupindex else figure.group


class ControlRecords:
    """The row count of an extract, as its header record and its trailer state it."""

    def __init__(self, settings: SourceSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._total: HashTotal | None = None
        self._in_header: int | None = None
        self._in_trailer: int | None = None

    @property
    def count(self) -> int | None:
        """How many rows the trailer states, or else the header record."""
        return self._in_header if self._in_trailer is None else self._in_trailer

    def sum_up(self, header: Sequence[str]) -> "HashTotal | None":
        """Return what adds up the hash total, where the settings ask for one."""
        if self._settings.hash_total is not None:
            self._total = HashTotal(self._settings, header, self._name)
        return self._total

    def take_header(self, before: Sequence[str]) -> None:
        """Take what the header record among the lines above the data states; TrailerError."""
        pattern = self._settings.header_record
        if pattern is None:
            return
        for number, line in enumerate(before, 1):
            if re.search(pattern, line):
                self._in_header = self._taken(line, number, pattern, "header_record")
                return
        problem = "no line above the data is the one that the settings require"
        raise HeaderRecordError(name=self._name, problem=problem)

    def take_trailer(self, line: str, number: int) -> None:
        """Take what the trailer states; TrailerError where the header record counts otherwise."""
        stated = self.count_in_trailer(line, number)
        self._in_trailer = stated
        if self._in_header not in (None, stated):
            problem = f"it counts {stated} rows, and the header record {self._in_header}"
            raise TrailerError(name=self._name, problem=problem)

    def count_in_trailer(self, line: str, number: int) -> int:
        """Return what the trailer counts; its hash total is taken; TrailerError."""
        return self._taken(line, number, self._settings.trailer or "", "trailer")

    def _taken(self, line: str, number: int, pattern: str, record: str) -> int:
        error = TrailerError if record == "trailer" else HeaderRecordError
        count = stated_number(line, number, ROW_COUNT, pattern, self._name, error)
        if self._total is not None and self._settings.total_in == record:
            self._total.take(stated_number(line, number, HASH_TOTAL, pattern, self._name, error))
        return count


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

    def take(self, stated: int) -> None:
        """Take the total that a record states."""
        self._stated = stated

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
    proofs = (source.trailer, source.header_record, source.sidecar)
    if any(proof is not None for proof in proofs) or source.is_workbook:
        return []
    return [
        "nothing proves an extract whole: one that was cut off behind a record would pass; "
        "set `trailer`, `header_record` or `sidecar` in [source]"
    ]
