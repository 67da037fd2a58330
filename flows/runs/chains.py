"""Chains of numbered, create-only objects: records added to a run, an issuer's commits, claims.

They are read by key until one is missing, so that a late listing hides none.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import TypeVar

from pydantic import BaseModel

from flows.runs.documents import read_document
from flows.runs.identity import canonical
from flows.runs.keys import link
from flows.runs.store import Store

T = TypeVar("T", bound=BaseModel)
CONTESTS = 16  # lost races before giving up: each lost one means that another writer won
_LINK = re.compile(r"(\d{6})\.json")


def records(
    store: Store, prefix: str, kind: type[T], start: int = 1, digits: int = 6
) -> Iterator[T]:
    """Yield the records of a chain from number `start`.

    Raises ConflictError for one that cardlink did not write.
    """
    for number in count(start):
        record = read_document(store, link(prefix, number, digits), kind)
        if record is None:
            return
        yield record


def last_record(store: Store, prefix: str, kind: type[T]) -> tuple[int, T | None]:
    """Return number and content of a chain's last record, 0 and None where it is empty.

    A listing, which may be late, shows where to start; from there on it is read by key.
    """
    names = (entry.key.removeprefix(prefix) for entry in store.keys(prefix, shallow=True))
    numbers = (int(match[1]) for match in map(_LINK.fullmatch, names) if match)
    start = max(numbers, default=1)
    tail = list(records(store, prefix, kind, start))
    number = start - 1 + len(tail)
    return number, tail[-1] if tail else None


def add_next(store: Store, prefix: str, number: int, record: BaseModel) -> bool:
    """Add a record as exactly that number of its chain; False where another was first."""
    return store.create(link(prefix, number), canonical(record))
