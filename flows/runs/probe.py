"""The probe a store has to pass once: of many writers at the same moment exactly one creates an object."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import probes
from flows.runs.store import Cleaner, ObjectMissingError, Store, StoreDeniedError, StoreUnsafeError, read, write_once

WRITERS = 8
KEYS = 6
_WAIT = 30.0  # seconds for eight threads to start


def race(store: Store, prefix: str) -> None:
    """Let eight writers create each of six keys below `prefix` (ends in '/') at once; StoreUnsafeError unless one wins.

    Writing one after the other would not do: a server that checks first and writes later passes that. Takes about half
    a second. What the probe wrote is removed where `store` may delete; its names are new every time.
    """
    folder = secrets.token_hex(8)
    keys = [f"{prefix}{folder}/{number}" for number in range(1, KEYS + 1)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for key in keys:
                _judge(store, prefix, key, _wins(store, key, pool))
    finally:
        if isinstance(store, Cleaner):
            with suppress(StoreDeniedError):  # credentials that may not delete are good to have; 12 kB stay
                for key in keys:
                    store.delete(key)


def _wins(store: Store, key: str, pool: ThreadPoolExecutor) -> list[bool]:
    """Let all writers create one key at the same moment; return which of them were told that they did."""
    start = Barrier(WRITERS)

    def write(writer: int) -> bool:
        start.wait(_WAIT)
        return store.create(key, _content(writer))

    return list(pool.map(write, range(WRITERS)))


def _content(writer: int) -> bytes:
    return b"race probe, writer %d\n" % writer * 1024


def _judge(store: Store, prefix: str, key: str, wins: list[bool]) -> None:
    """Raise unless exactly one writer won, its bytes are there, and they stay when written again."""
    if sum(wins) != 1:
        raise StoreUnsafeError(
            place=prefix, problem=f"{sum(wins)} of {WRITERS} writers were told that they created one object"
        )
    if store.create(key, b"late") or read(store, key) != _content(wins.index(True)):
        raise StoreUnsafeError(place=prefix, problem="an object that was created once was overwritten")


def ensure_store_safe(context: IssuerContext) -> None:
    """Probe a store that has not passed yet, and record that it did; StoreUnsafeError otherwise.

    The record is bound to the store's own name, so that a copy of its objects elsewhere proves nothing there.
    """
    store, prefix = context.adapters.store, probes(context.issuer.issuer)
    name = repr(store)
    key = f"{prefix}passed-{digest(name.encode())[:16]}.json"
    try:
        read(store, key)
    except ObjectMissingError:
        context.adapters.probe(store, prefix)
        write_once(store, key, canonical({"store": name}))
