"""The context that every step is given: the issuer, its adapters, the clock, who is acting;
recording an event.

A dry run is given one whose writes stay in memory: it does what the real one does first, and leaves
nothing behind.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import date, datetime
from io import BytesIO
from typing import Any, NamedTuple

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.identity import Header, canonical, digest, facts_as_stored
from flows.runs.keys import FOLDER_TIME, RunKeys, checked, probes
from flows.runs.sealing import Opener, Sealer
from flows.runs.store import Entry, ObjectChangedError, Source, Store, read_if_stored, write_once
from schemas.issuer import Issuer
from schemas.manifest import Manifest

DROPPED = "dropped"  # the fact of a run's commit that says when its extract was dropped


class NoReasonError(OperatorError):
    """A decision of an operator was given without its reason."""

    message = "No reason given."
    next_step = "Give it with --reason; it is kept with the decision, your name and the time."


class Adapters(NamedTuple):
    """Everything outside: storage, the clock, who is acting, and the probe a store has to pass."""

    store: Store
    now: Callable[[], datetime]
    actor: str
    # StoreUnsafeError where create-only writes are not, below a prefix
    probe: Callable[[Store, str], None]
    connections: int = 16  # requests at a time

    def signed(self, reason: str) -> dict[str, Any]:
        """Return when, by whom and why, as a `Record` has it, card numbers masked; NoReasonError
        where it is empty.
        """
        if not reason.strip():
            raise NoReasonError
        return {"at": self.now(), "by": redact(self.actor), "reason": redact(reason.strip())}


class IssuerContext(NamedTuple):
    """One issuer and what its steps work with; `sealer` and `opener` are opened only where they are
    needed.
    """

    issuer: Issuer
    adapters: Adapters
    header: Header
    sealer: Callable[[], AbstractContextManager[Sealer]]
    opener: Callable[[], AbstractContextManager[Opener | None]]
    # what the partner's interface beyond the file adds to a run's report, as of a day; None where
    # it has nothing
    funnel: Callable[[Store, Manifest, date], dict[str, Any] | None] = lambda *_: None
    # digest of the key that `opener` has, '' without one
    opener_key: Callable[[], str] = lambda: ""


def record_event(
    adapters: Adapters, keys: RunKeys, what: str, once: str = "", /, **facts: str | int | list[str]
) -> bool:
    """Add an event to a run's history: what, when, by whom, and facts; card numbers in texts are
    masked.

    `once` is a fixed name, so that of many processes only one records it: False for the others.
    """
    moment = adapters.now()
    reported = {
        name: redact(fact) if isinstance(fact, str) else fact for name, fact in facts.items()
    }
    event = facts_as_stored(
        {"what": what, "at": moment.isoformat(), "by": redact(adapters.actor), **reported}
    )
    name = f"{moment:%Y%m%dT%H%M%S%f}-{what.replace(' ', '-')}-{digest(event)[:8]}.json"
    return adapters.store.create(keys.events + (once or name), event)


class Overlay:
    """A store over another one, which is only read; implements Store."""

    def __init__(self, below: Store, now: datetime) -> None:
        self._below, self._now, self._written = below, now, dict[str, bytes]()

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` in memory unless it exists; False where it does."""
        return read_if_stored(self, key, 0) is None and self._written.setdefault(key, data) is data

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write `key` in memory, over any earlier content."""
        self._written[checked(key)] = b"".join(parts)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        """Open `key` as it was written here, else as it is stored; ObjectMissingError or
        ObjectChangedError.
        """
        if key not in self._written:
            return self._below.open(key, pin)
        entry = self._entry(key)
        if pin and pin.version != entry.version:
            raise ObjectChangedError(key=key)
        return _Memory(self._written[key], entry)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List what is stored and what was written here, in key order."""
        found = {entry.key: entry for entry in self._below.keys(prefix, shallow=shallow)}
        for key in list(self._written):
            if key.startswith(prefix):
                name, deeper, _ = key.removeprefix(prefix).partition("/")
                folder = Entry(f"{prefix}{name}/", 0, FOLDER_TIME, "")
                entry = folder if shallow and deeper else self._entry(key)
                found[entry.key] = entry
        yield from sorted(found.values(), key=lambda entry: entry.key.encode())

    def _entry(self, key: str) -> Entry:
        data = self._written[key]
        return Entry(key, len(data), self._now, digest(data))


class _Memory(BytesIO):
    def __init__(self, data: bytes, entry: Entry) -> None:
        super().__init__(data)
        self.entry = entry


def overlaid(context: IssuerContext) -> IssuerContext:
    """Return a context whose writes stay in memory; one that is so already as it is."""
    adapters = context.adapters
    if isinstance(adapters.store, Overlay):
        return context
    return context._replace(
        adapters=adapters._replace(store=Overlay(adapters.store, adapters.now()))
    )


def ensure_store_safe(context: IssuerContext) -> None:
    """Probe a store that has not passed yet, and record that it did; StoreUnsafeError otherwise.

    The record is bound to the store's own name, so that a copy of its objects elsewhere proves
    nothing there.
    """
    store, prefix = context.adapters.store, probes(context.issuer.issuer)
    name = repr(store)
    key = f"{prefix}passed-{digest(name.encode())[:16]}.json"
    if read_if_stored(store, key, 0) is None:
        context.adapters.probe(store, prefix)
        write_once(store, key, canonical({"store": name}))
