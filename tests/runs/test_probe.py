"""The probe must catch stores that look right one write at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flows.adapters.local import LocalStore
from flows.runs import probe
from flows.runs.probe import KEYS, race
from flows.runs.store import StoreDeniedError, StoreUnsafeError


class StoppedAtTheThird(ThreadPoolExecutor):
    """A stop signal comes while the writers are started."""

    def submit(self, *work: Any, **options: Any) -> Any:
        if self._work_queue.qsize() + len(self._threads) > 1:
            raise KeyboardInterrupt
        return super().submit(*work, **options)


class ChecksFirst(LocalStore):
    """Looks whether the key is free, then writes: right for one writer, wrong for two."""

    def create(self, key: str, data: bytes) -> bool:
        if list(self.keys(key)):
            return False
        time.sleep(0.001)
        self.replace(key, [data])
        return True


class WritesOver(LocalStore):
    """Ignores the condition."""

    def create(self, key: str, data: bytes) -> bool:
        self.replace(key, [data])
        return True


class SaysNoButWrites(LocalStore):
    """Answers as it should and writes all the same."""

    def create(self, key: str, data: bytes) -> bool:
        won = super().create(key, data)
        if not won:
            self.replace(key, [data])
        return won


class MayNotDelete(LocalStore):
    """Holds credentials without the right to delete."""

    def delete(self, key: str) -> None:
        raise StoreDeniedError(place=key, code="AccessDenied")


@pytest.mark.parametrize("kind", [ChecksFirst, WritesOver, SaysNoButWrites])
def test_a_store_that_does_not_keep_the_promise_is_caught_every_time(
    tmp_path: Path, kind: type[LocalStore]
) -> None:
    for attempt in range(5):
        with pytest.raises(StoreUnsafeError):
            race(kind(tmp_path), f"probe-{attempt}/")

    assert [] == list(LocalStore(tmp_path).keys(""))


def test_a_store_whose_credentials_may_not_delete_passes_and_keeps_the_probe_s_objects(
    tmp_path: Path,
) -> None:
    store = MayNotDelete(tmp_path)

    race(store, "probe/")
    race(store, "probe/")

    assert 2 * KEYS == len(list(store.keys("probe/")))


def test_a_store_that_fails_under_the_probe_says_its_own_error(tmp_path: Path) -> None:
    class Denies(LocalStore):
        def create(self, key: str, data: bytes) -> bool:
            raise StoreDeniedError(place=key, code="AccessDenied")

    with pytest.raises(StoreDeniedError):
        race(Denies(tmp_path), "probe/")


# writers that were started wait half a minute for the others, unless they are told
@pytest.mark.timeout(25)
def test_a_stop_signal_while_writers_are_started_leaves_none_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "ThreadPoolExecutor", StoppedAtTheThird)

    with pytest.raises(KeyboardInterrupt):
        race(LocalStore(tmp_path), "probe/")
