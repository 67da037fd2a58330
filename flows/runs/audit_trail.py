"""The audit trail of an issuer: one chain that names every record, by digest, before it is written.

An entry holds the digest of the one before, so a record or an entry that is changed, removed,
swapped or inserted does not fit any more. Where the process has the key of the trail, an entry has
a proof that only who has that key can make (`flows/runs/trail_proof.py`).

What an entry names is **settled** once it is known whether it was written. A command settles what
it wrote when it ends. What a killed one named and never wrote is settled by the next command that
records anything: it says that it was not written. Until then it is unfinished, which is no finding.

The trail is a chain of its own beside the records: a chain within each run could lose its end
without anybody noticing. A record written by a worker of a version without a trail is a finding
too, since whoever can write a record can also write an old version number. Concurrent processes may
name a key twice; one of the digests must be stored. Of what is written again the last time counts,
and a process that was away for an hour may be the last to write what it named first: so each looks
after its writing who else has named the key since, and then names what is stored. A submit of 1,000
rows in 1,000 chunks makes 14 requests more for it, of 2,119; an outbox command for 1,000 chunks 6.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from threading import Lock
from typing import TypeVar

from flows.errors import CardlinkError
from flows.redaction import redact
from flows.runs.documents import read_document
from flows.runs.identity import canonical, digest
from flows.runs.keys import trail
from flows.runs.process import is_gone, process_name
from flows.runs.store import Store, StoreBusyError, read, read_if_stored
from flows.runs.trail_entries import (
    OLD,
    REPLACED,
    entries_since,
    entry_key,
    is_named,
    last_entry,
    named_keys,
)
from flows.runs.trail_proof import NOT_PROVED, Prover
from schemas.records import AuditEntry

LOST = 1000  # entries of others passed before giving up
UNSETTLED = 64  # of so many entries before the last it is looked up whether they were written

S = TypeVar("S", bound=Store)


@dataclass
class _Tail:
    """The end of an issuer's trail, as far as a process knows it.

    `last` and `before` are number and digest of the last entry. `settled`: of everything that is
    named up to that entry it is known whether it was written; `written` are later entries of which
    this process knows it.
    """

    last: int
    before: str
    settled: int
    said: int  # `settled` of the last entry that says so
    written: set[int] = field(default_factory=set)

    def settle(self, number: int) -> None:
        """Note that it is known of an entry."""
        self.written.add(number)
        while self.settled + 1 in self.written:
            self.settled += 1
            self.written.remove(self.settled)


class AuditTrail:
    """Adds entries to the audit trails of a store, in the name of who is acting."""

    def __init__(
        self, store: Store, by: str, now: Callable[[], datetime], prover: Prover = NOT_PROVED
    ) -> None:
        self._store = store
        self._by = redact(by)
        self._now = now
        self._prover = prover
        self._process = process_name(os.getpid())
        self._tails: dict[str, _Tail] = {}  # by issuer
        self._adding = Lock()

    def add(self, issuer: str, objects: Mapping[str, str], reason: str = "") -> int:
        """Add an entry at the end of the trail; return its number.

        Raises StoreBusyError where others are always faster.
        """
        with self._adding:
            if issuer not in self._tails:
                self._begin(issuer)
            return self._add(issuer, objects, reason)

    def settle_gone(self, issuer: str) -> Set[str]:
        """Settle what processes that are gone have left; return the keys that the others have named
        and not written yet.
        """
        with self._adding:
            return self._begin(issuer)

    def settle(self) -> None:
        """Say that everything this process has named was written."""
        with self._adding:
            for issuer, tail in self._tails.items():
                if tail.settled > tail.said:
                    self._add(issuer, {})

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` unless it exists, as a store does; what is named is named first."""
        if not is_named(key):
            return self._store.create(key, data)
        if read_if_stored(self._store, key, 0) is not None:
            return False
        issuer = key.partition("/")[0]
        number = self.add(issuer, {key: digest(data)})
        try:
            created = self._store.create(key, data)
        except BaseException:
            with suppress(CardlinkError):
                self.add(issuer, {key: ""})
            raise
        self._settle(issuer, number)
        return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write `key` over any earlier content, as a store does; what is named is named first."""
        if not REPLACED.fullmatch(key):
            self._store.replace(key, parts)
            return
        issuer = key.partition("/")[0]
        mentions = list[tuple[int, str]]()

        def named() -> Iterator[bytes]:
            """Yield the parts; the store shows nothing of them before it has the last."""
            running = hashlib.sha256()
            for part in parts:
                running.update(part)
                yield part
            sha256 = running.hexdigest()
            mentions.append((self.add(issuer, {key: sha256}), sha256))

        self._store.replace(key, named())
        self._settle(issuer, *(number for number, _ in mentions))
        self._name_the_last(issuer, key, *mentions[-1])

    def _name_the_last(self, issuer: str, key: str, number: int, sha256: str) -> None:
        """Name what is stored where others have named a key after that entry of ours: they may have
        written it before us. What nobody has named stays a finding.
        """
        others = {
            entry.objects[key]
            for entry in entries_since(self._store, issuer, number)
            if key in entry.objects
        }
        named = ""
        while others and (stored := self._digest(key)) in {sha256, *others} - {named}:
            self._settle(issuer, self.add(issuer, {key: stored}))
            named = stored

    def _settle(self, issuer: str, *numbers: int) -> None:
        with self._adding:
            for number in numbers:
                self._tails[issuer].settle(number)

    def _add(self, issuer: str, objects: Mapping[str, str], reason: str = "") -> int:
        tail = self._tails[issuer]
        for number in range(tail.last + 1, tail.last + LOST):
            entry = AuditEntry(
                before=tail.before,
                at=self._now(),
                by=self._by,
                reason=reason,
                objects=dict(objects),
                older=self._written_before(issuer, tail),
                settled=tail.settled,
                process=self._process,
                proved_by=self._prover.key,
            )
            content = canonical(self._proved(entry))
            _UNSETTLED.add(self)
            if self._store.create(entry_key(issuer, number), content):
                tail.last = number
                tail.before = digest(content)
                tail.said = tail.settled
                if not any(objects.values()) or reason:  # names nothing that is to be written
                    tail.settle(number)
                return number
            tail.before = digest(read(self._store, entry_key(issuer, number)))
        raise StoreBusyError(place=trail(issuer), code="contested")

    def _proved(self, entry: AuditEntry) -> AuditEntry:
        content = canonical(entry)
        marks = {"seal": digest(content), "proof": self._prover.proof(content)}
        return entry.model_copy(update=marks)

    def _written_before(self, issuer: str, tail: _Tail) -> tuple[str, ...]:
        """Return what was there before the first entry."""
        return () if tail.last else tuple(named_keys(self._store, issuer))

    def _begin(self, issuer: str) -> Set[str]:
        """Find the end of the trail, and settle what processes that are gone have left there.

        Return what those at work have named and not written.
        """
        last, before = last_entry(self._store, issuer)
        self._tails[issuer] = tail = _Tail(last, before, last, last)
        unsettled = list(self._unsettled(issuer, tail))
        under_way = set[str]()
        if not unsettled:
            return under_way
        tail.settled = tail.said = unsettled[0][0] - 1
        named = set(chain.from_iterable(entry.objects.items() for _, entry in unsettled))
        lost = list[dict[str, str]]()
        for number, entry in unsettled:
            missing = self._not_written(entry, named)
            if missing and not self._is_over(entry):
                under_way |= {key for key in missing if (key, "") not in named}
                continue
            lost.append(missing)
            tail.settle(number)
        for missing in filter(None, lost):  # each takes back one time that a key was named
            tail.settle(self._add(issuer, missing))
        return under_way

    def _unsettled(self, issuer: str, tail: _Tail) -> Iterator[tuple[int, AuditEntry]]:
        """Yield the entries that are not settled, with their numbers, as far as they are intact."""
        settled = tail.last
        with suppress(CardlinkError):
            entry = read_document(self._store, entry_key(issuer, tail.last), AuditEntry)
            if entry is not None:
                settled = entry.settled
        for number in range(max(settled, tail.last - UNSETTLED) + 1, tail.last + 1):
            with suppress(CardlinkError):
                entry = read_document(self._store, entry_key(issuer, number), AuditEntry)
                if entry is not None:
                    yield number, entry

    def _not_written(self, entry: AuditEntry, named: Set[tuple[str, str]]) -> dict[str, str]:
        """Return the objects that an entry names and that are not stored, each with "", or with the
        digest of what is stored where that is among the `named`: another wrote it.
        """
        missing = [
            key
            for key, sha256 in entry.objects.items()
            if sha256 and not self._is_written(key, sha256)
        ]
        stored = {key: self._digest(key) for key in missing}
        return {key: sha256 * ((key, sha256) in named) for key, sha256 in stored.items()}

    def _is_written(self, key: str, sha256: str) -> bool:
        if REPLACED.fullmatch(key):
            return self._digest(key) == sha256
        return read_if_stored(self._store, key, 0) is not None

    def _digest(self, key: str) -> str:
        """Return the digest of what is stored, that of nothing where nothing is."""
        return digest(read_if_stored(self._store, key) or b"")

    def _is_over(self, entry: AuditEntry) -> bool:
        """Return whether who named it has gone."""
        return is_gone(entry.process) or entry.at < self._now() - OLD


_UNSETTLED = set[AuditTrail]()  # those to which this process has added since a command ended


def settle_trails() -> None:
    """Settle what the commands of this process have named; where the store refuses, the next does.

    Called where a command ends.
    """
    unsettled = list(_UNSETTLED)
    for audit_trail in unsettled:
        with suppress(CardlinkError):
            audit_trail.settle()
    _UNSETTLED.difference_update(unsettled)


def audited(store: S, by: str, now: Callable[[], datetime], prover: Prover = NOT_PROVED) -> S:
    """Return a store that names what `is_named` in the audit trail before it writes it.

    Otherwise it is like the given one.
    """
    wrapped = copy(store)  # everything else it can do stays its own
    audit_trail = AuditTrail(store, by, now, prover)
    wrapped.create = audit_trail.create  # type: ignore[method-assign]
    wrapped.replace = audit_trail.replace  # type: ignore[method-assign]
    return wrapped
