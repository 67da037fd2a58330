"""A claim is held for as long as the work takes, renewed beside it, and given back however it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import NoReturn

import pytest

from flows.database.connection import Database
from flows.runs import claim
from flows.runs.adapters import Adapters
from flows.runs.chains import CONTESTS
from flows.runs.claim import (
    CLAIM,
    OLD,
    ClaimedError,
    ClaimHolder,
    Lease,
    LeaseLostError,
    claimed,
    clean_up,
    end,
    holder_of,
)
from flows.runs.documents import read_document
from flows.runs.keys import link
from flows.runs.process import process_name
from flows.runs.store import Entry, StoreBusyError, StoreDeniedError
from tests.memory import MemoryStore
from tests.night import NOON

CHAIN = "bank/runs/x/claims/"
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PATIENT = 3000  # hundredths of a second for a thread on a busy machine


def adapters_of(store: MemoryStore, now: Callable[[], datetime] = lambda: NOON) -> Adapters:
    return Adapters(store, now, "night-1", lambda *_: None, Database("sqlite://"))


def stored_claim(store: MemoryStore, number: int) -> claim._Claim:
    stored = read_document(store, link(CHAIN, number), claim._Claim)
    assert stored is not None
    return stored


class Acting(MemoryStore):
    """Does something after the so-manyth link of the chain was written, or instead of writing it."""

    def __init__(self, acts: dict[int, Callable[[], None]], *, instead: bool = False) -> None:
        super().__init__()
        self.acts, self.instead = acts, instead
        self.tries = 0

    def create(self, key: str, data: bytes) -> bool:
        self.tries += 1
        act = self.acts.get(self.tries, lambda: None)
        if self.instead:
            act()
            return super().create(key, data)
        created = super().create(key, data)
        act()
        return created


def renewing() -> list[Thread]:
    return [one for one in threading.enumerate() if one.name == "claim"]


def comes(event: Event) -> bool:
    """Return whether an event comes while a thread renews the claim, or as the last it does."""
    for _ in range(PATIENT):
        if event.wait(0.01) or not renewing():
            break
    return event.is_set()


def busy() -> NoReturn:
    raise StoreBusyError(place="x", code="503")


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def test_a_claim_is_held_during_the_work_and_given_back_after_it() -> None:
    store = MemoryStore()

    with claimed(adapters_of(store), CHAIN) as lease:
        during = holder_of(store, CHAIN, NOON)
        [thread] = renewing()
        assert thread.daemon

    assert ClaimHolder("night-1", NOON, NOON + CLAIM) == during
    assert (1, False) == (lease.number, lease.lost)
    assert holder_of(store, CHAIN, NOON) is None
    assert [link(CHAIN, 1), link(CHAIN, 2)] == list(store.objects)
    assert "night-1" == stored_claim(store, 2).holder
    assert [] == renewing()


def test_a_claim_is_held_for_the_time_that_is_asked_for() -> None:
    store = MemoryStore()

    with claimed(adapters_of(store), CHAIN, ttl=HOUR):
        during = holder_of(store, CHAIN, NOON)

    assert ClaimHolder("night-1", NOON, NOON + HOUR) == during


def test_the_error_that_ends_the_work_gives_the_claim_back_and_is_the_one_that_counts() -> None:
    store = MemoryStore()
    failing = Acting({2: busy}, instead=True)

    for place in (store, failing):
        with pytest.raises(ZeroDivisionError), claimed(adapters_of(place), CHAIN):
            raise ZeroDivisionError

    assert holder_of(store, CHAIN, NOON) is None
    assert holder_of(failing, CHAIN, NOON) is not None  # until it runs out


def test_a_claim_is_renewed_beside_the_work_also_after_the_store_was_away_for_a_beat() -> None:
    renewed = Event()
    moments = [NOON + number * MINUTE for number in range(100)]
    acts = {2: busy, 3: lambda: None, 4: renewed.set}
    store = Acting(acts, instead=True)
    adapters = adapters_of(store, lambda: moments[min(store.tries, 99)])

    with claimed(adapters, CHAIN, beat=0.001) as lease:
        assert comes(renewed)

    assert not lease.lost
    assert lease.until >= NOON + 2 * MINUTE + CLAIM


def test_who_lost_a_claim_is_told_and_leaves_that_of_the_new_holder() -> None:
    store = MemoryStore()
    lost = Event()

    class Noticing(MemoryStore):
        def create(self, key: str, data: bytes) -> bool:
            created = super().create(key, data)
            if not created:
                lost.set()
            return created

    store = Noticing()
    with claimed(adapters_of(store), CHAIN, beat=0.001) as lease:
        _take_over(store)
        assert comes(lost)
        for thread in renewing():
            thread.join(PATIENT / 100)
        with pytest.raises(LeaseLostError) as told:
            lease.check()

    assert {"prefix": CHAIN} == told.value.fields
    current = holder_of(store, CHAIN, NOON)
    assert current is not None
    assert "night-2" == current.holder


def _take_over(store: MemoryStore) -> None:
    """End the claim and take it, also where it is renewed in between."""
    for _ in range(1000):
        end(store, CHAIN, "operator", NOON)
        try:
            Lease.take(store, CHAIN, "night-2", NOON, HOUR)
        except ClaimedError:
            continue
        return


def test_who_is_refused_leaves_the_claim_as_it_is_also_one_of_its_own_name() -> None:
    store = MemoryStore()
    Lease.take(store, CHAIN, "night-1", NOON, HOUR)

    with pytest.raises(ClaimedError), claimed(adapters_of(store), CHAIN):
        raise AssertionError

    assert [link(CHAIN, 1)] == list(store.objects)


def test_a_claim_whose_request_was_interrupted_is_given_back() -> None:
    store = Acting({1: interrupt})

    with pytest.raises(KeyboardInterrupt), claimed(adapters_of(store), CHAIN):
        raise AssertionError

    assert [link(CHAIN, 1), link(CHAIN, 2)] == list(store.objects)
    assert holder_of(store, CHAIN, NOON) is None


@pytest.mark.parametrize("process", ["boot 1 2 3", ""])
def test_a_holder_is_stored_with_its_process_where_that_has_a_name(
    monkeypatch: pytest.MonkeyPatch, process: str
) -> None:
    store = MemoryStore()
    names = {os.getpid(): process}
    monkeypatch.setattr(claim, "process_name", names.__getitem__)

    Lease.take(store, CHAIN, "night-1", NOON, HOUR)

    assert process == stored_claim(store, 1).process


def test_without_names_of_processes_a_claim_is_held_since_it_was_last_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(claim, "process_name", lambda _: "")
    Lease.take(store, CHAIN, "night-1", NOON, HOUR)
    end(store, CHAIN, "night-1", NOON + MINUTE)
    Lease.take(store, CHAIN, "night-2", NOON + 2 * MINUTE, MINUTE)
    first = Lease.take(store, CHAIN, "night-1", NOON + 3 * MINUTE, HOUR)
    first.renew(NOON + 4 * MINUTE)
    after_another = holder_of(store, CHAIN, NOON + 4 * MINUTE)
    end(store, CHAIN, "night-1", NOON + 5 * MINUTE)
    Lease.take(store, CHAIN, "night-1", NOON + 6 * MINUTE, HOUR)

    after_its_own = holder_of(store, CHAIN, NOON + 6 * MINUTE)

    assert ClaimHolder("night-1", NOON + 3 * MINUTE, NOON + 4 * MINUTE + HOUR) == after_another
    assert ClaimHolder("night-1", NOON + 6 * MINUTE, NOON + 6 * MINUTE + HOUR) == after_its_own


def test_to_end_what_nobody_claims_does_nothing() -> None:
    store = MemoryStore()
    end(store, CHAIN, "operator", NOON)
    assert {} == store.objects

    Lease.take(store, CHAIN, "night-1", NOON, HOUR)
    end(store, CHAIN, "operator", NOON, only="night-2")
    assert [link(CHAIN, 1)] == list(store.objects)

    for _ in range(2):
        end(store, CHAIN, "operator", NOON, only="night-1")
    assert [link(CHAIN, 1), link(CHAIN, 2)] == list(store.objects)
    assert "operator" == stored_claim(store, 2).holder


def test_who_cannot_end_a_claim_since_it_is_renewed_faster_is_told() -> None:
    store = MemoryStore()
    Lease.take(store, CHAIN, "night-1", NOON, HOUR)
    tried: list[str] = []

    class Contested(MemoryStore):
        def create(self, key: str, data: bytes) -> bool:
            tried.append(key)
            return False

    contested = Contested()
    contested.objects = store.objects

    with pytest.raises(ClaimedError) as told:
        end(contested, CHAIN, "operator", NOON)

    assert {"holder": "Another", "prefix": CHAIN, "until": "now"} == told.value.fields
    assert [link(CHAIN, 2)] * CONTESTS == tried


class Swept(MemoryStore):
    """A store that can be cleaned, below some prefixes."""

    def __init__(self, *denied: str) -> None:
        super().__init__()
        self.denied = denied
        self.looks: list[tuple[str, datetime]] = []
        self.removed: list[str] = []

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        self.looks.append((prefix, before))
        if prefix in self.denied:
            raise StoreDeniedError(place=prefix, code="AccessDenied")
        return [Entry(f"{prefix}{name}", 0, NOON, "") for name in "ab"]

    def discard(self, leftover: Entry) -> None:
        self.removed.append(leftover.key)

    def delete(self, key: str) -> None:
        raise AssertionError

    def hides(self) -> bool:
        return False


def test_what_killed_writers_left_is_removed_where_the_store_allows_it() -> None:
    store = Swept("2/")

    removed = clean_up(adapters_of(store), "1/", "2/", "3/")

    assert 4 == removed
    assert [("1/", NOON - OLD), ("2/", NOON - OLD), ("3/", NOON - OLD)] == store.looks
    assert ["1/a", "1/b", "3/a", "3/b"] == store.removed
    assert 0 == clean_up(adapters_of(MemoryStore()), "1/")


def test_the_process_of_a_holder_is_this_one() -> None:
    store = MemoryStore()

    Lease.take(store, CHAIN, "night-1", NOON, HOUR)

    assert process_name(os.getpid()) == stored_claim(store, 1).process
