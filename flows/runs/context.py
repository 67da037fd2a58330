"""The context that every step is given: the issuer, its adapters, the clock, who is acting; and recording an event."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date, datetime
from typing import Any, NamedTuple

from flows.redaction import redact
from flows.runs.identity import Header, canonical, digest
from flows.runs.keys import RunKeys
from flows.runs.sealing import Opener, Sealer
from flows.runs.store import Store
from schemas.issuer import Issuer
from schemas.manifest import Manifest

DROPPED = "dropped"  # the fact of a run's commit that says when its extract was dropped


class Adapters(NamedTuple):
    """Everything outside: storage, the clock, who is acting, and the probe a store has to pass."""

    store: Store
    now: Callable[[], datetime]
    actor: str
    probe: Callable[[Store, str], None]  # StoreUnsafeError where create-only writes are not, below a prefix
    connections: int = 16  # requests at a time


class IssuerContext(NamedTuple):
    """One issuer and what its steps work with; `sealer` and `opener` are opened only where they are needed."""

    issuer: Issuer
    adapters: Adapters
    header: Header
    sealer: Callable[[], AbstractContextManager[Sealer]]
    opener: Callable[[], AbstractContextManager[Opener | None]]
    # what the partner's interface beyond the file adds to a run's report, as of a day; None where it has nothing
    funnel: Callable[[Store, Manifest, date], dict[str, Any] | None] = lambda *_: None
    opener_key: Callable[[], str] = lambda: ""  # digest of the key that `opener` has, '' without one


def record_event(
    adapters: Adapters, keys: RunKeys, what: str, once: str = "", /, **facts: str | int | list[str]
) -> bool:
    """Add an event to a run's history: what, when, by whom, and facts; card numbers in texts are masked.

    `once` is a fixed name, so that of many processes only one records it: False for the others.
    """
    moment = adapters.now()
    reported = {name: redact(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
    event = canonical({"what": what, "at": moment.isoformat(), "by": redact(adapters.actor), **reported})
    name = f"{moment:%Y%m%dT%H%M%S%f}-{what.replace(' ', '-')}-{digest(event)[:8]}.json"
    return adapters.store.create(keys.events + (once or name), event)
