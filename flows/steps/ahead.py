"""Works one item ahead: while one is used, a thread makes the next."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items in order, each made while the one before is used; an error comes where its item would.

    Close it where it is left early: then the item under way is waited for, so nothing reads on behind the back.
    """
    end = object()
    with ThreadPoolExecutor(1, "ahead") as worker:
        coming = worker.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = worker.submit(next, items, end)
            yield item  # type: ignore[misc]  # the end was told apart just now
            del item  # what was used is let go before the next is waited for
