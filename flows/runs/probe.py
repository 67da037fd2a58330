"""The probe of a store's promise that an object is created once, which commits depend on.

The record that the probe was passed is written under Object Lock where the issuer sets one, so that
a bucket that cannot lock is found before a run begins.
"""

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import compress
from threading import Barrier

from flows.errors import TryAgainError
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import probes
from flows.runs.store import (
    Cleaner,
    Store,
    StoreDeniedError,
    StoreUnsafeError,
    read,
    read_if_stored,
    write_once,
)

WRITERS = 8
KEYS = 6


def race(store: Store, prefix: str) -> None:
    """Let eight writers create each of six keys below `prefix` (ends in '/') at once.

    Raises StoreUnsafeError unless one wins. Writing one after the other would not do: a server that
    checks first and writes later passes that. Takes about half a second. What the probe wrote is
    removed where `store` may delete; its names are new every time.
    """
    folder = secrets.token_hex(8)
    keys = [f"{prefix}{folder}/{number}" for number in range(1, KEYS + 1)]
    written = keys
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for key in keys:
                _race_for(store, prefix, key, pool)
    except TryAgainError:
        written = []  # a store that does not answer would be waited for once more
        raise
    finally:
        if isinstance(store, Cleaner):
            # credentials that may not delete are good to have; 12 kB stay
            with suppress(StoreDeniedError):
                for key in written:
                    store.delete(key)


def _race_for(store: Store, prefix: str, key: str, pool: ThreadPoolExecutor) -> None:
    """Let all writers create one key at the same moment.

    One must win, and its bytes stay when written again.
    """
    contents = [b"race probe, writer %d\n" % writer * 1024 for writer in range(WRITERS)]
    start = Barrier(WRITERS)

    def write(content: bytes) -> bool:
        start.wait(30.0)  # seconds for eight threads to start
        return store.create(key, content)

    try:
        wins = list(pool.map(write, contents))
    finally:
        # where a stop signal came before all writers had started, the others would wait for them
        start.abort()
    winners = list(compress(contents, wins))
    if len(winners) != 1:
        problem = f"{len(winners)} of {WRITERS} writers succeeded in creating the same object"
    elif store.create(key, b"late") or read(store, key) != winners[0]:
        problem = "an object that was created once was overwritten"
    else:
        return
    raise StoreUnsafeError(place=prefix, problem=problem)


def ensure_store_safe(context: IssuerContext) -> None:
    """Probe a store that has not passed yet, and record that it did; StoreUnsafeError otherwise.

    The record is bound to the store's own name, so that a copy of its objects elsewhere proves
    nothing there.
    """
    store = context.adapters.store
    prefix = probes(context.issuer.issuer)
    name = repr(store)
    key = f"{prefix}passed-{digest(name.encode())[:16]}.json"
    if read_if_stored(store, key, 0) is None:
        context.adapters.probe(store, prefix)
        write_once(store, key, canonical({"store": name}))
