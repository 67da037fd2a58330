"""The edges a step is given, and the three things every step does with a store: read, write once, note an event."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple

from flows.core.errors import OperatorError
from flows.core.names import RunKeys
from flows.core.ports import Opener, Sealer, Store
from flows.core.redaction import redact
from flows.core.rows.chunk_csv import Header
from flows.core.run.planning import canonical, digest
from schemas.issuer import Issuer


class Edges(NamedTuple):
    """Everything outside: storage, the clock, who is acting, and the probe a store has to pass."""

    store: Store
    now: Callable[[], datetime]
    actor: str
    probe: Callable[[Store, str], None]  # StoreUnsafeError where create-only writes are not, below a prefix
    wires: int = 16  # requests worth having under way at once


class IssuerEdges(NamedTuple):
    """One issuer and what its steps work with; sealing is opened late, since only a submit needs it."""

    issuer: Issuer
    edges: Edges
    header: Header
    sealer: Callable[[], AbstractContextManager[Sealer]]
    opener: Callable[[], AbstractContextManager[Opener | None]]


class ConflictError(OperatorError):
    """An object that is written once is there with another content."""

    message = "{key} already exists with different content."
    next_step = "Nothing was overwritten. Find out what writes below this prefix; `cardlink check` probes the store."


def read(store: Store, key: str) -> bytes:
    """Return the whole of a small object."""
    with store.open(key) as source:
        return source.read()


def write_once(store: Store, key: str, data: bytes) -> bool:
    """Create an object and read it back; False where the same bytes were there already, ConflictError for others."""
    created = store.create(key, data)
    if digest(read(store, key)) != digest(data):
        raise ConflictError(key=key)
    return created


def note(edges: Edges, keys: RunKeys, what: str, **facts: str | int | list[str]) -> None:
    """Add an event to a run's history: what, when, by whom, and counts or names; events are never changed.

    A reason is what somebody typed, so card numbers in texts are masked.
    """
    moment = edges.now()
    told = {name: redact(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
    event = canonical({"what": what, "at": moment.isoformat(), "by": redact(edges.actor), **told})
    name = f"{moment:%Y%m%dT%H%M%S%f}-{what.replace(' ', '-')}-{digest(event)[:8]}.json"
    edges.store.create(keys.events + name, event)
