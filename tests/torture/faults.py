"""Put faults between the steps and their store: the night ends right or in an error of ours, and a
rerun ends it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import TypeVar

from flows.errors import BugError, CardlinkError, guarded
from flows.runs.store import (
    Entry,
    ObjectChangedError,
    ObjectDamagedError,
    Source,
    Store,
    StoreBusyError,
    StoreClockError,
    StoreCredentialsError,
    StoreDeniedError,
    StoreFullError,
    StoreMissingError,
    StoreRefusedError,
)
from tests import fault_proxy
from tests.fault_proxy import PASSING, Fault
from tests.night import Bench
from tests.stores import KINDS, Place
from tests.torture.night import BEGIN, EXTRACT, GateFacts
from tests.torture.tally import Tally

T = TypeVar("T")

ERRORS: tuple[Callable[[str], CardlinkError], ...] = (
    lambda key: ObjectChangedError(key=key),
    lambda key: ObjectDamagedError(key=key),
    *(
        lambda key, make=make: make(place=key, code="test")
        for make in (
            StoreBusyError,
            StoreClockError,
            StoreCredentialsError,
            StoreDeniedError,
            StoreFullError,
            StoreMissingError,
            StoreRefusedError,
        )
    ),
)


class MoodyStore:
    """A store that raises an error of ours now and then, before or after it has done what was
    asked.
    """

    def __init__(self, store: Store, chance: random.Random, share: float, tally: Tally) -> None:
        self._store = store
        self._chance = chance
        self._share = share
        self._tally = tally
        self._lock = Lock()

    def create(self, key: str, data: bytes) -> bool:
        return self._moody(key, lambda: self._store.create(key, data))

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self._moody(key, lambda: self._store.replace(key, parts))

    def open(self, key: str, pin: Entry | None = None) -> Source:
        return self._moody(key, lambda: self._store.open(key, pin))

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        yield from self._moody(prefix, lambda: list(self._store.keys(prefix, shallow=shallow)))

    def _moody(self, key: str, act: Callable[[], T]) -> T:
        with self._lock:
            early, late = (self._chance.random() < self._share / 2 for _ in range(2))
            error = self._chance.choice(ERRORS)(key)
            self._tally.done.update([type(error).__name__] if early or late else [])
        if early:
            raise error
        done = act()
        if late:
            raise error
        return done


def fault_many(night: GateFacts, places: Iterator[Place], nights: int, seed: int = 0) -> Tally:
    """Put faults into stores: on the wire where they are reached by HTTP, else into their answers."""
    tally = Tally(f"faults {next(places).kind}")
    for number in range(nights):
        place = next(places)
        by_http = KINDS[place.kind].by_http
        fault = _fault_wire if by_http else _fault_answers
        fault(night, place, seed + number, tally)
    return tally


def _fault_answers(night: GateFacts, place: Place, seed: int, tally: Tally) -> None:
    """Let a store fail in every way an error is known for."""
    chance = random.Random(seed)
    bench = night.dropped(place)
    moody = MoodyStore(bench.store, chance, chance.choice((0.003, 0.01, 0.05)), tally)
    _through(night, bench, moody, tally)


def _fault_wire(night: GateFacts, place: Place, seed: int, tally: Tally) -> None:
    """Put a proxy with faults before a server: temporary ones in plenty, or all kinds, rarely."""
    chance = random.Random(seed)
    bench = night.dropped(place)
    kinds: Sequence[Fault] = chance.choice((PASSING, tuple(Fault)))
    share = chance.choice((0.05, 0.2) if kinds is PASSING else (0.005, 0.02))
    faults = fault_proxy.at_random(seed, share, kinds)
    with fault_proxy.between(place.address, faults) as proxy:
        _through(night, bench, place.open(proxy.endpoint, patience=1.0), tally)
    tally.done.update({fault.name.lower(): times for fault, times in proxy.injected.items()})


def _through(night: GateFacts, bench: Bench, faulty: Store, tally: Tally) -> None:
    """Live a night through a faulty store, then again without faults; tally what is lost."""
    # At the beginning: a claim that could not be given back has run out when the rerun comes.
    through = replace(bench, store=faulty, actor="faulty:1", now=lambda: BEGIN)
    tally.nights += 1
    name = f"night {tally.nights}"
    if _reported("submit", lambda: through.submit(EXTRACT), tally) == "done":
        tally.check(f"{name}, done at once", lambda: night.submit_losses(bench))
    tally.check(f"{name}, submitted again", lambda: _submit_losses(night, bench))
    night.drop_results(bench)
    _reported("ingest", through.ingest, tally)
    tally.check(f"{name}, ingested again", lambda: night.report_losses(bench))


def _submit_losses(night: GateFacts, bench: Bench) -> list[str]:
    bench.submit(EXTRACT)
    return night.submit_losses(bench)


def _reported(what: str, step: Callable[[], object], tally: Tally) -> str:
    try:
        guarded(step)()
        told = "done"
    except CardlinkError as error:
        told = type(error).__name__
    tally.ended[f"{what}: {told}"] += 1
    if told == BugError.__name__:
        tally.losses.append(f"night {tally.nights}: a fault without a name of ours in {what}")
    return told
