"""Work side by side: many requests at a time, and one item ahead of its use."""

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def concurrently(act: Callable[[S], T], items: Iterable[S], threads: int = 16) -> list[T]:
    """Return what `act` returns for each item, in order.

    So many at a time; a single item needs no thread.
    """
    arguments = list(items)
    if len(arguments) < 2:
        return [act(argument) for argument in arguments]
    with ThreadPoolExecutor(threads) as workers:
        return list(workers.map(act, arguments))


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items in order, each produced while the one before is used.

    An error comes in its item's place. Close it if you stop early: that waits for the item in
    progress, so that nothing reads on in the background.
    """
    end = object()
    with ThreadPoolExecutor(1, "prefetch") as worker:
        coming = worker.submit(next, items, end)
        while True:
            # in a list, so that it is freed as soon as its user is done with it
            result = [coming.result()]
            if result[0] is end:
                return
            coming = worker.submit(next, items, end)
            yield result.pop()  # type: ignore[misc]  # not `end`
