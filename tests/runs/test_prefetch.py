"""One item is made while the one before is used: in order, with its errors, and no further when
nobody wants more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from flows.runs.threads import prefetch


def test_all_items_come_in_their_order() -> None:
    assert [*range(100), None] == list(prefetch(iter([*range(100), None])))


def test_the_next_item_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    with closing(prefetch(items())) as found:
        first = next(found)
        assert made.wait(300)

    assert 1 == first


def test_an_error_comes_where_its_item_would() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    found = prefetch(items())

    assert 1 == next(found)
    with pytest.raises(KeyError, match="broken"):
        next(found)


def test_whoever_leaves_early_finds_nothing_at_work_any_more() -> None:
    made: list[int] = []
    with closing(prefetch(made.append(at) or at for at in range(100))) as found:  # type: ignore[func-returns-value]  # None or the item
        next(found)

    assert 2 >= len(made)
    assert [] == [one.name for one in threading.enumerate() if one.name.startswith("prefetch")]
