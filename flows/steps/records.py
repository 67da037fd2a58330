"""Chains of numbered, create-only records: read by key until one is missing, so that a late listing hides none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TypeVar

from pydantic import ValidationError

from flows.core.names import link
from flows.core.ports import Store
from flows.core.run.planning import canonical
from flows.core.storage.store_errors import ObjectMissingError, StoreBusyError
from flows.steps.edges import ConflictError, read
from schemas.manifest import Document

T = TypeVar("T", bound=Document)
CONTESTS = 16  # others that add to one chain at the same moment


def records(store: Store, prefix: str, kind: type[T]) -> Iterator[T]:
    """Yield the records of a chain, oldest first; ConflictError for what is none of ours."""
    for number in count(1):
        record = _read(store, link(prefix, number), kind)
        if record is None:
            return
        yield record


def add_record(store: Store, prefix: str, record: Document) -> int:
    """Add a record at the end of a chain and return its number; StoreBusyError where others are always faster."""
    number = sum(1 for _ in records(store, prefix, type(record)))
    for at in range(number + 1, number + CONTESTS):
        if store.create(link(prefix, at), canonical(record)):
            return at
    raise StoreBusyError(place=prefix, code="contested")


def add_next(store: Store, prefix: str, number: int, record: Document) -> bool:
    """Add a record as exactly that number of its chain; False where another was first."""
    return store.create(link(prefix, number), canonical(record))


def _read(store: Store, key: str, kind: type[T]) -> T | None:
    try:
        return kind.model_validate_json(read(store, key))
    except ObjectMissingError:
        return None
    except ValidationError:  # its text shows what it found; ours is raised below without a chain
        pass
    raise ConflictError(key=key)
