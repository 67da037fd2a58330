"""Breaks an operator has closed: which of a run's breaks they cover, and which are open still."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from schemas.breaks import Break

SHOWN = 5  # row numbers a place names; where a break has no more rows than that, it names them all
_ROWS = ", rows "


class Closed(NamedTuple):
    """A break as it was when it was closed, and who closed it when and why."""

    name: str
    place: str
    rows: int
    at: datetime
    by: str
    reason: str

    def covers(self, found: Break) -> bool:
        """Tell whether this closing holds for a break: the same kind and place, with no row that was not closed."""
        if (found.name, home(found.place)) != (self.name, home(self.place)) or found.rows > self.rows:
            return False
        return self.rows > SHOWN or _named(found.place) <= _named(self.place)


class Sorted(NamedTuple):
    """The breaks of a run: open ones and notices, and those closed with what closed them."""

    open: tuple[Break, ...]
    closed: tuple[tuple[Break, Closed], ...]


def home(place: str) -> str:
    """Return the place of a break without its row numbers: `chunk 7` of `chunk 7, rows 1, 2`."""
    return place.partition(_ROWS)[0]


def sort_out(found: Iterable[Break], closings: Iterable[Closed]) -> Sorted:
    """Tell the breaks that are closed from those that are open; a notice is never closed."""
    known = list(closings)
    covered = {one: next((by for by in known if by.covers(one)), None) for one in found}
    still = tuple(one for one, by in covered.items() if by is None or one.notice)
    return Sorted(still, tuple((one, by) for one, by in covered.items() if by is not None and not one.notice))


def _named(place: str) -> frozenset[str]:
    return frozenset(place.partition(_ROWS)[2].split(", ")) - {""}
