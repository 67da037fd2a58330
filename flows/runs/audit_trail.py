"""The audit trail of an issuer: one chain that names every record, by digest, before it is written.

An entry holds the digest of the one before. So a record or an entry that is changed, removed,
swapped or inserted does not fit any more. What a killed process named and never wrote shows as
removed, until somebody accepts it.

The trail is a chain of its own beside the records: a chain within each run could lose its end
without anybody noticing. A record written by a worker of a version without a trail is a finding
too, since whoever can write a record can also write an old version number. Concurrent processes may
name a key twice; one of the digests must be stored. A submit of 1,000 rows in 1,000 chunks makes 11
requests more for it, of 2,116; an outbox command for 1,000 chunks 5 more.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from itertools import count
from threading import Lock
from typing import TypeVar

from flows.errors import CardlinkError
from flows.redaction import redact
from flows.runs.identity import canonical, digest
from flows.runs.keys import link, trail
from flows.runs.store import Store, StoreBusyError, read, read_if_stored
from flows.runs.versions import read_document
from schemas.records import AuditEntry

SKEW = timedelta(minutes=10)  # by which the clocks of machines may differ
LOST = 1000  # entries of others passed before giving up

S = TypeVar("S", bound=Store)
FOLDER = 1000  # entries in a folder, so that finding the last one takes two short listings
RECORDS = re.compile(
    r"[^/]+/("
    r"runs/[^/]+/(plan\.json|manifest\.json|(events|closed|reseals)/.+)"
    r"|(commits|deliveries|link-forms|given-up|kept-links|settings)/\d{6}\.json"
    r"|deliveries/\d{6}/confirmed\.json"
    r"|(dismissed|attributions|backfills|purged|approvals)/.+"
    r")"
)
ENTRY = re.compile(r".*/(\d{6})\.json")


def entry_key(issuer: str, number: int) -> str:
    """Return the key of an entry, from 1."""
    return link(f"{trail(issuer)}{number // FOLDER:04d}/", number)


def record_keys(store: Store, issuer: str) -> Iterator[str]:
    """Yield the keys of an issuer's records: decisions and facts that are created once and kept."""
    keys = (entry.key for entry in store.keys(f"{issuer}/"))
    return (key for key in keys if RECORDS.fullmatch(key))


def entries_since(store: Store, issuer: str, number: int) -> Iterator[AuditEntry]:
    """Yield the entries after that number; ConflictError for one that cardlink did not write."""
    for later in count(number + 1):
        entry = read_document(store, entry_key(issuer, later), AuditEntry)
        if entry is None:
            return
        yield entry


def digests_named(store: Store, issuer: str, prefix: str, since: datetime) -> dict[str, set[str]]:
    """Return the digests under which the trail names records below a prefix, by key.

    Of the entries since then alone; those of a clock that is a little behind are read as well.
    """
    named: dict[str, set[str]] = {}
    last, _ = last_entry(store, issuer)
    recent = [*entries_since(store, issuer, last), *_entries_back(store, issuer, last)]
    for entry in recent:
        if entry.at < since - SKEW:
            break
        for key, sha256 in entry.objects.items():
            if key.startswith(prefix):
                named.setdefault(key, set()).add(sha256)
    return named


def _entries_back(store: Store, issuer: str, last: int) -> Iterator[AuditEntry]:
    """Yield the entries up to that number, the last first; one that is gone is left out."""
    for number in range(last, 0, -1):
        entry = read_document(store, entry_key(issuer, number), AuditEntry)
        if entry is not None:
            yield entry


def last_entry(store: Store, issuer: str) -> tuple[int, str]:
    """Return number and digest of the last entry that a listing shows.

    A later one is met when adding.
    """
    last_folder = trail(issuer)
    for folder in store.keys(trail(issuer), shallow=True):
        last_folder = folder.key
    matches = (ENTRY.fullmatch(entry.key) for entry in store.keys(last_folder))
    entries = [match for match in matches if match]
    if not entries:
        return 0, ""
    return int(entries[-1][1]), digest(read(store, entries[-1][0]))


class AuditTrail:
    """Adds entries to the audit trails of a store, in the name of who is acting."""

    def __init__(self, store: Store, by: str, now: Callable[[], datetime]) -> None:
        self._store = store
        self._by = redact(by)
        self._now = now
        # number and digest by issuer, as far as this process knows
        self._last: dict[str, tuple[int, str]] = {}
        self._adding = Lock()

    def add(self, issuer: str, objects: Mapping[str, str], reason: str = "") -> None:
        """Add an entry at the end of the trail; StoreBusyError where others are always faster."""
        with self._adding:
            last, before = self._last.get(issuer) or last_entry(self._store, issuer)
            for number in range(last + 1, last + LOST):
                entry = AuditEntry(
                    before=before,
                    at=self._now(),
                    by=self._by,
                    reason=reason,
                    objects=dict(objects),
                    older=self._written_before(issuer, number),
                )
                content = canonical(entry.model_copy(update={"seal": digest(canonical(entry))}))
                if self._store.create(entry_key(issuer, number), content):
                    self._last[issuer] = number, digest(content)
                    return
                before = digest(read(self._store, entry_key(issuer, number)))
        raise StoreBusyError(place=trail(issuer), code="contested")

    def _written_before(self, issuer: str, number: int) -> tuple[str, ...]:
        """Return the records that were there before the first entry."""
        if number > 1:
            return ()
        return tuple(record_keys(self._store, issuer))

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` unless it exists, as a store does; a record is named in the trail first."""
        if not RECORDS.fullmatch(key):
            return self._store.create(key, data)
        if read_if_stored(self._store, key, 0) is not None:
            return False
        issuer = key.partition("/")[0]
        self.add(issuer, {key: digest(data)})
        try:
            return self._store.create(key, data)
        except BaseException:
            with suppress(CardlinkError):
                self.add(issuer, {key: ""})
            raise


def audited(store: S, by: str, now: Callable[[], datetime]) -> S:
    """Return a store that names every record in the audit trail before it creates it.

    Otherwise it is like the given one.
    """
    wrapped = copy(store)  # everything else it can do stays its own
    wrapped.create = AuditTrail(store, by, now).create  # type: ignore[method-assign]
    return wrapped
