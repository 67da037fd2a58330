"""A night on a store whose listings are behind comes to what a quiet one comes to: nothing is sent
twice, and no answer is lost. What was removed and is listed still is named, and hides nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from flows.errors import TryAgainError
from flows.runs.keys import results
from flows.runs.outbox import move
from flows.runs.store import Entry, ObjectMissingError
from tests.builders import quick
from tests.memory import MemorySource, MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import NOON
from tests.storms import LateStore


@dataclass
class BehindStore(LateStore):
    """Lists what was written only after so many more listings of anything."""

    behind: int = 0
    _written: dict[str, int] = field(default_factory=dict)
    _listings: Iterator[int] = field(default_factory=count)

    def create(self, key: str, data: bytes) -> bool:
        created = super().create(key, data)
        self._written.setdefault(key, next(self._listings))
        return created

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        now = next(self._listings)
        self.hidden = {key for key, since in self._written.items() if now - since < self.behind}
        return super().keys(prefix, shallow=shallow)


def night(bench: MemoryBench, answering: MemoryBench) -> None:
    """Live through a night twice over, each command again where it says so."""
    bench.drop(30)

    def upload() -> None:
        for run in bench.runs.manifests():
            move(bench.context.adapters, run.run, "uploaded", [], "")

    acts: list[Callable[[], Any]] = [
        lambda: bench.submit("bank-20261120.csv"),
        upload,
        lambda: answering.answer(fail_share=0.3, seed=1),
        bench.ingest,
    ]
    for act in [*acts, *acts]:
        for _ in range(20):
            with suppress(TryAgainError):
                act()
                break


def came_to(bench: MemoryBench) -> list[Any]:
    """Return the runs of a store with the states of their rows, and who was sent how often."""
    runs = list(bench.runs.manifests())
    sent = Counter(cuid for run in runs for cuid in bench.ledger(run.run)["cuid"])
    summaries = [bench.stored(run.run).summary or {} for run in runs]
    return [
        [run.run for run in runs],
        sent,
        [(each["verdict"], each["rows"]) for each in summaries],
    ]


@pytest.mark.parametrize("behind", quick(1, [100, 3, 30, 300]))
def test_a_night_whose_listings_are_behind_comes_to_what_a_quiet_one_comes_to(behind: int) -> None:
    quiet, late = memory_bench(), memory_bench()
    night(quiet, quiet)
    behind_bench = replace(late, store=BehindStore(late.store, behind=behind))  # type: ignore[arg-type]  # beside the one in memory

    night(behind_bench, late)
    later = replace(late, now=lambda: NOON + timedelta(hours=1))
    later.submit("bank-20261120.csv")
    later.ingest()

    assert came_to(quiet) == came_to(later)


class RemovedStore(MemoryStore):
    """Lists an object that was removed."""

    removed: str

    def open(self, key: str, pin: Entry | None = None) -> MemorySource:
        if key == self.removed:
            raise ObjectMissingError(key=key)
        return super().open(key, pin)

    @classmethod
    def of(cls, bench: MemoryBench, removed: str) -> MemoryBench:
        """Return the bench with the same objects, of which one was removed."""
        store = cls()
        store.objects = bench.store.objects
        store.removed = removed
        return replace(bench, store=store)


def test_an_extract_that_was_removed_and_is_listed_still_is_named_and_begins_nothing() -> None:
    bench = memory_bench()
    bench.drop(3)

    with pytest.raises(ObjectMissingError) as gone:
        RemovedStore.of(bench, "bank/extracts/bank-20261120.csv").submit("bank-20261120.csv")

    assert "If it was listed, it has been removed since" in str(gone.value)
    assert [] == list(bench.store.keys("bank/runs/"))


def test_a_result_that_was_removed_and_is_listed_still_holds_up_no_other_and_no_later_one() -> None:
    bench = memory_bench(portal={"rows_per_chunk": 10})
    run = bench.submit(bench.drop(30)).manifest.run
    bench.answer(fail_share=0, seed=1)
    first = min(entry.key for entry in bench.store.keys(results("bank")))
    content = bench.content(first)

    RemovedStore.of(bench, first).ingest()
    awaited = (bench.stored(run).summary or {})["rows"]["awaiting"]
    bench.ingest()
    breaks = (bench.stored(run).summary or {})["breaks"]
    bench.store.replace(first, [content])
    bench.ingest()

    assert (10, []) == (awaited, breaks)
    assert 30 == (bench.stored(run).summary or {})["rows"]["linked"]
