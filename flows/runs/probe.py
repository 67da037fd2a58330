"""Before anything relies on a store: it was seen, once, to create an object for exactly one of many writers."""

from __future__ import annotations

import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Protocol, runtime_checkable

from flows.runs.context import IssuerContext
from flows.runs.identity import canonical
from flows.runs.keys import probes
from flows.runs.store import ObjectMissingError, Store, StoreDeniedError, StoreUnsafeError, read, write_once

WRITERS = 8
KEYS = 6
_WAIT = 30.0  # seconds for eight threads to start


@runtime_checkable
class _Deleting(Protocol):
    def delete(self, key: str) -> None: ...


def race(store: Store, prefix: str) -> None:
    """Let eight writers create each of six keys at once below `prefix` (ends in '/'), StoreUnsafeError unless one wins.

    One after the other is not enough: servers that check first and write later pass that. About half a second.
    What the probe wrote is removed again where `store` may delete; its names are new every time.
    """
    base = f"{prefix}{secrets.token_hex(8)}/"
    keys = [f"{base}{number}" for number in range(1, KEYS + 1)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for key in keys:
                _judge(store, prefix, key, _wins(store, key, pool))
    finally:
        _clean(store, keys)


def _wins(store: Store, key: str, pool: ThreadPoolExecutor) -> list[bool]:
    """Let all writers create one key at the same moment; return who was told that it won."""
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
    again = store.create(key, b"late")
    with store.open(key) as source:
        stored = source.read()
    if again or stored != _content(wins.index(True)):
        raise StoreUnsafeError(place=prefix, problem="an object that was created once was written over")


def _clean(store: Store, keys: list[str]) -> None:
    if not isinstance(store, _Deleting):
        return
    try:
        for key in keys:
            store.delete(key)
    except StoreDeniedError:
        return  # credentials that may not delete are a good thing to have; twelve kilobytes stay


def ensure_store_safe(context: IssuerContext) -> None:
    """Race writers on a store not yet proved, and remember that it passed; StoreUnsafeError refuses the store.

    The proof is bound to what the store calls itself, so that objects copied elsewhere prove nothing there.
    """
    store, prefix = context.adapters.store, probes(context.issuer.issuer)
    itself = repr(store)
    key = f"{prefix}passed-{hashlib.sha256(itself.encode()).hexdigest()[:16]}.json"
    try:
        read(store, key)
    except ObjectMissingError:
        context.adapters.probe(store, prefix)
        write_once(store, key, canonical({"store": itself}))
