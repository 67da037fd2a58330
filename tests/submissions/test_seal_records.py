"""Seal records: which ciphertext this run has sealed, here or in a process that died or runs beside."""

from __future__ import annotations

from typing import NoReturn

import pytest

from flows.runs.chains import CONTESTS
from flows.runs.identity import canonical
from flows.runs.store import StoreBusyError
from flows.submissions.seal_records import SealRecords
from tests.memory import MemoryStore

PLACE = "bank/runs/x/seals/"


def test_a_digest_counts_for_the_chunk_it_was_recorded_of_in_this_process_and_later_ones() -> None:
    store = MemoryStore()
    first = SealRecords(store, PLACE, 7)
    beside = SealRecords(store, PLACE, 7)

    first.add({"a": "1", "b": "2"})
    first.add({"a": "3"})
    later = SealRecords(store, PLACE, 7)
    other_group = SealRecords(store, PLACE, 8)

    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "2"), ("c", "1")]
    for records in (first, beside, later):
        assert [True, True, True, False, False] == [records.names(*pair) for pair in pairs]
        assert 2 == records.length
    assert [False] * 5 == [other_group.names(*pair) for pair in pairs]
    assert 0 == other_group.length
    assert [f"{PLACE}00007-001.json", f"{PLACE}00007-002.json"] == list(store.objects)
    assert canonical({"a": "1", "b": "2"}) == store.objects[f"{PLACE}00007-001.json"][1]


def test_what_this_process_recorded_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    records = SealRecords(store, PLACE, 1)
    records.add({"a": "1"})
    monkeypatch.setattr(store, "open", _unreadable)

    assert records.names("a", "1")


def _unreadable(*_: object) -> NoReturn:
    raise AssertionError("opened")


def test_who_is_beaten_to_a_number_takes_the_next_and_knows_what_the_other_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    slow, fast = SealRecords(store, PLACE, 1), SealRecords(store, PLACE, 1)
    fast.add({"a": "1"})
    fast.add({"a": "2"})

    slow.add({"a": "3"})

    assert 3 == slow.length
    assert [f"{PLACE}00001-{number:03d}.json" for number in (1, 2, 3)] == list(store.objects)
    monkeypatch.setattr(store, "open", _unreadable)
    assert [True] * 3 == [slow.names("a", str(number)) for number in (1, 2, 3)]


class Contested(MemoryStore):
    """A store where another process is always first."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[str] = []

    def create(self, key: str, data: bytes) -> bool:
        self.tried.append(key)
        super().create(key, b'{"a":"9"}')
        return False


def test_who_always_loses_the_race_for_a_number_is_told_to_try_again() -> None:
    store = Contested()
    records = SealRecords(store, PLACE, 1)

    with pytest.raises(StoreBusyError) as busy:
        records.add({"a": "1"})

    assert {"place": f"{PLACE}00001-", "code": "contested"} == busy.value.fields
    assert [f"{PLACE}00001-{number:03d}.json" for number in range(1, CONTESTS + 1)] == store.tried
