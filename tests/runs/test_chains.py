"""Chains of numbered records: read by number, in order, and added to by one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.runs.chains import add_next, last_record, records
from flows.runs.identity import canonical
from flows.runs.keys import link
from flows.runs.store import Entry, Source, Store
from schemas.records import Confirmed
from tests.night import NOON
from tests.storms import LateStore

PLACE = "bank/notes/"


def note(number: int) -> Confirmed:
    return Confirmed(at=NOON, by="tester", reason=f"reason {number}")


def chain_of(folder: Path, length: int) -> LocalStore:
    store = LocalStore(folder)
    for number in range(1, length + 1):
        assert add_next(store, PLACE, number, note(number))
    return store


@pytest.mark.parametrize("length", [0, 1, 2, 12])
def test_a_chain_is_read_whole_from_a_number_on_and_at_its_end(tmp_path: Path, length: int) -> None:
    store = chain_of(tmp_path, length)
    notes = [note(number) for number in range(1, length + 1)]

    assert notes == list(records(store, PLACE, Confirmed))
    assert notes[1:] == list(records(store, PLACE, Confirmed, 2))
    assert (length, notes[-1] if notes else None) == last_record(store, PLACE, Confirmed)


def test_a_number_is_taken_once_and_what_comes_after_a_gap_is_not_of_the_chain(
    tmp_path: Path,
) -> None:
    store = chain_of(tmp_path, 2)

    taken = add_next(store, PLACE, 2, note(9))
    apart = add_next(store, PLACE, 4, note(4))

    assert (False, True) == (taken, apart)
    assert [note(1), note(2)] == list(records(store, PLACE, Confirmed))


def test_a_listing_that_is_late_hides_no_record(tmp_path: Path) -> None:
    late = LateStore(chain_of(tmp_path, 1))
    for number in (2, 3):
        add_next(late, PLACE, number, note(number))

    assert (3, note(3)) == last_record(late, PLACE, Confirmed)


def test_other_objects_beside_a_chain_are_none_of_its_records(tmp_path: Path) -> None:
    store = chain_of(tmp_path, 2)
    store.create(f"{PLACE}000009.json.old", b"{}")
    store.create(f"{PLACE}notes/000007.json", b"{}")
    store.create(link(PLACE, 0), b"{}")

    assert (2, note(2)) == last_record(store, PLACE, Confirmed)


class Watched:
    """A store that notes what is listed, and how, and what is opened."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.create, self.replace = store.create, store.replace
        self.looks: list[tuple[str, bool] | str] = []

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        self.looks.append((prefix, shallow))
        return self.store.keys(prefix, shallow=shallow)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        self.looks.append(key)
        return self.store.open(key, pin)


def test_the_end_of_a_chain_is_found_by_one_listing_and_two_reads(tmp_path: Path) -> None:
    end = Watched(chain_of(tmp_path, 12))

    last_record(end, PLACE, Confirmed)

    assert [(PLACE, True), link(PLACE, 12), link(PLACE, 13)] == end.looks


def test_the_numbers_of_a_chain_may_have_fewer_digits(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for number in (1, 2):
        store.create(link(PLACE, number, 3), canonical(note(number)))

    assert [note(1), note(2)] == list(records(store, PLACE, Confirmed, digits=3))
