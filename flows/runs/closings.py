"""The breaks of a run that operators closed, and the places that breaks name."""

import re

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
    last: dict[tuple[str, str], list[Closing]] = {}
    for one in records(store, keys.closed, Closing):
        at = (one.name, place_of(one.place))
        before = [other for other in last.get(at, ()) if other.covers and one.covers]
        last[at] = [*before, one] if one.what == "closed" else []
    return [one for _, closings in sorted(last.items()) for one in closings]
