"""The breaks of a run that operators closed, and the places that breaks name."""

import re
from itertools import chain

from flows.runs.chains import records
from flows.runs.keys import RunKeys
from flows.runs.store import Store
from schemas.records import Closing

ROWS = ", rows "
_CHUNK = re.compile(r"chunk (\d+)")


def place_of(place: str) -> str:
    """Return the place of a break without its row numbers: `chunk 7` of `chunk 7, rows 1, 2`."""
    return place.partition(ROWS)[0]


def chunk_of(place: str) -> int:
    """Return the number of the chunk that a place names, 0 where it names a file."""
    named = _CHUNK.fullmatch(place_of(place))
    return int(named[1]) if named else 0


def closed_breaks(store: Store, keys: RunKeys) -> list[Closing]:
    """Return the closings of a run that are not reopened, by kind and place, oldest first.

    One that names its rows adds to the earlier ones at its place; any other replaces them.
    """
    standing: dict[tuple[str, str], list[Closing]] = {}
    for closing in records(store, keys.closed, Closing):
        kind_and_place = (closing.name, place_of(closing.place))
        earlier = standing.get(kind_and_place, [])
        standing[kind_and_place] = _closings_after(earlier, closing)
    in_order = (closings for _, closings in sorted(standing.items()))
    return list(chain.from_iterable(in_order))


def _closings_after(earlier: list[Closing], closing: Closing) -> list[Closing]:
    """Return the closings that stand at a place after another record."""
    if closing.what == "reopened":
        return []
    if not closing.covers:
        return [closing]
    return [*(other for other in earlier if other.covers), closing]
