"""A claim is held for as long as the work takes, renewed beside it, and given back however it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import Connection

from flows.database.connection import Database
from flows.database.errors import DatabaseBusyError
from flows.runs import claim
from flows.runs.adapters import Adapters
from flows.runs.claim import (
    CLAIM,
    OLD,
    ClaimedError,
    ClaimHolder,
    Lease,
    LeaseLostError,
    Subject,
    claimed,
    clean_up,
    end,
    holder_of,
    work_on,
)
from flows.runs.process import process_name
from flows.runs.store import Entry, StoreDeniedError
from tests.memory import MemoryStore
from tests.night import NOON

RUN = "bank-20261120-00000000"
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PATIENT = 3000  # hundredths of a second for a thread on a busy machine


class Acting:
    """A database that does something before its acts, the so-manyth from 1; implements
    Transactions.
    """

    place = "here"

    def __init__(self, acts: dict[int, Callable[[], object]] | None = None) -> None:
        self.below = Database("sqlite://")
        self.acts = acts or {}
        self.tries = 0

    def act(self, issuer: str, work: Callable[[Connection], Any]) -> Any:
        self.tries += 1
        self.acts.get(self.tries, lambda: None)()
        return self.below.act(issuer, work)

    @contextmanager
    def rehearsal(self, issuer: str) -> Iterator[Connection]:
        with self.below.rehearsal(issuer) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        with self.below.snapshot() as connection:
            yield connection


def adapters_of(database: Acting, now: Callable[[], datetime] = lambda: NOON) -> Adapters:
    return Adapters(MemoryStore(), now, "night-1", database)


def on(adapters: Adapters) -> Subject:
    return work_on(adapters, RUN)


def renewing() -> list[Thread]:
    return [one for one in threading.enumerate() if one.name == "claim"]


def comes(event: Event) -> bool:
    """Return whether an event comes while a thread renews the claim, or as the last it does."""
    for _ in range(PATIENT):
        if event.wait(0.01) or not renewing():
            break
    return event.is_set()


def busy() -> None:
    raise DatabaseBusyError(place="here", code="locked")


def test_a_claim_is_held_during_the_work_and_given_back_after_it() -> None:
    adapters = adapters_of(Acting())

    with claimed(adapters, on(adapters)) as lease:
        during = holder_of(on(adapters), NOON)
        [thread] = renewing()
        assert thread.daemon

    assert ClaimHolder("night-1", NOON, NOON + CLAIM) == during
    assert (1, False) == (lease.epoch, lease.lost)
    assert holder_of(on(adapters), NOON) is None
    assert [] == renewing()


def test_a_claim_is_held_for_the_time_that_is_asked_for() -> None:
    adapters = adapters_of(Acting())

    with claimed(adapters, on(adapters), ttl=HOUR):
        during = holder_of(on(adapters), NOON)

    assert ClaimHolder("night-1", NOON, NOON + HOUR) == during


def test_the_error_that_ends_the_work_gives_the_claim_back_and_is_the_one_that_counts() -> None:
    sound = adapters_of(Acting())
    failing = adapters_of(Acting({2: busy}))

    for adapters in (sound, failing):
        with pytest.raises(ZeroDivisionError), claimed(adapters, on(adapters)):
            raise ZeroDivisionError

    assert holder_of(on(sound), NOON) is None
    assert holder_of(on(failing), NOON) is not None  # until it runs out


def test_a_claim_is_renewed_beside_the_work_also_after_the_database_was_away_for_a_beat() -> None:
    renewed = Event()
    moments = [NOON + number * MINUTE for number in range(100)]
    database = Acting({2: busy, 4: renewed.set})
    adapters = adapters_of(database, lambda: moments[min(database.tries, 99)])

    with claimed(adapters, on(adapters), beat=0.001) as lease:
        assert comes(renewed)

    assert not lease.lost
    assert lease.until >= NOON + 2 * MINUTE + CLAIM


def test_who_lost_a_claim_is_told_and_leaves_that_of_the_new_holder() -> None:
    adapters = adapters_of(Acting())

    with claimed(adapters, on(adapters), beat=0.001) as lease:
        end(on(adapters), "operator", NOON)
        Lease.take(on(adapters), "night-2", NOON, HOUR)
        for thread in renewing():
            thread.join(PATIENT / 100)
        with pytest.raises(LeaseLostError) as told:
            lease.check()

    assert {"subject": RUN} == told.value.fields
    current = holder_of(on(adapters), NOON)
    assert current is not None
    assert "night-2" == current.holder


def test_who_is_refused_leaves_the_claim_as_it_is_also_one_of_its_own_name() -> None:
    adapters = adapters_of(Acting())
    lease = Lease.take(on(adapters), "night-1", NOON, HOUR)

    with pytest.raises(ClaimedError), claimed(adapters, on(adapters)):
        raise AssertionError

    lease.renew(NOON)
    assert not lease.lost


@pytest.mark.parametrize("process", ["boot 1 2 3", ""])
def test_a_holder_is_stored_with_its_process_where_that_has_a_name(
    monkeypatch: pytest.MonkeyPatch, process: str
) -> None:
    adapters = adapters_of(Acting())
    names = {os.getpid(): process}
    monkeypatch.setattr(claim, "process_name", names.__getitem__)

    Lease.take(on(adapters), "night-1", NOON, HOUR)

    last = on(adapters).last()
    assert last is not None
    assert process == last.process


def test_the_process_of_a_holder_is_this_one() -> None:
    adapters = adapters_of(Acting())

    Lease.take(on(adapters), "night-1", NOON, HOUR)

    last = on(adapters).last()
    assert last is not None
    assert process_name(os.getpid()) == last.process


def test_to_end_what_nobody_claims_does_nothing() -> None:
    adapters = adapters_of(Acting())

    end(on(adapters), "operator", NOON)

    assert on(adapters).last() is None


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
    adapters = adapters_of(Acting())._replace(store=store)

    removed = clean_up(adapters, "1/", "2/", "3/")

    assert 4 == removed
    assert [("1/", NOON - OLD), ("2/", NOON - OLD), ("3/", NOON - OLD)] == store.looks
    assert ["1/a", "1/b", "3/a", "3/b"] == store.removed
    assert 0 == clean_up(adapters_of(Acting()), "1/")
