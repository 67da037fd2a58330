"""Chains of numbered, create-only objects: records added to a run, an issuer's commits in order,
its audit trail.

They are read by key until one is missing, so that a late listing hides none. The trail names each
record, by digest, before it is written; an entry holds the digest of the one before. So a record or
an entry that is changed, removed, swapped or inserted does not fit any more. What a killed process
named and never wrote shows as removed, until somebody accepts it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import datetime
from itertools import count
from threading import Lock
from typing import TypeVar

import polars as pl
from pydantic import BaseModel

from flows.errors import CardlinkError, TryAgainError
from flows.redaction import redact
from flows.runs.documents import keys_of, read_document, read_ledger
from flows.runs.identity import canonical, digest
from flows.runs.keys import commits, link, trail
from flows.runs.prior_state import CHECKS, card_keys
from flows.runs.store import ConflictError, Store, StoreBusyError, read, read_if_stored
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest
from schemas.records import AuditEntry

S = TypeVar("S", bound=Store)
T = TypeVar("T", bound=BaseModel)
CONTESTS = 16  # lost races before giving up: each lost one means that another writer won
LATELY = 16  # commits looked at for a missing manifest
_LINK = re.compile(r"(\d{6})\.json")

LOST = 1000  # entries of others passed before giving up
FOLDER = 1000  # entries in a folder, so that finding the last one takes two short listings
RECORDS = re.compile(
    r"[^/]+/(runs/[^/]+/(plan\.json|manifest\.json|(events|closed|reseals)/.+)|(commits|deliveries)/\d{6}\.json"
    r"|deliveries/\d{6}/confirmed\.json|(dismissed|attributions|backfills|purged|approvals)/.+)"
)
ENTRY = re.compile(r".*/(\d{6})\.json")


class OvertakenError(TryAgainError):
    """Another run committed some of the same cards, or the same sequence number, while this one was
    built.
    """

    message = "{run}: run {other} was committed meanwhile and has {what}. Nothing was committed."
    next_step = "Run the same command again: it selects rows without those cards, or names the run that has the number."


def records(
    store: Store, prefix: str, kind: type[T], start: int = 1, digits: int = 6
) -> Iterator[T]:
    """Yield the records of a chain from number `start`; ConflictError for one that cardlink did not
    write.
    """
    for number in count(start):
        record = read_document(store, link(prefix, number, digits), kind)
        if record is None:
            return
        yield record


def last_record(store: Store, prefix: str, kind: type[T]) -> tuple[int, T | None]:
    """Return number and content of a chain's last record, 0 and None where it is empty.

    A listing, which may be late, shows where to start; from there on it is read by key.
    """
    found = (
        _LINK.fullmatch(entry.key.removeprefix(prefix))
        for entry in store.keys(prefix, shallow=True)
    )
    start = max((int(match[1]) for match in found if match), default=1)
    tail = list(records(store, prefix, kind, start))
    return start - 1 + len(tail), tail[-1] if tail else None


def add_record(store: Store, prefix: str, record: BaseModel) -> int:
    """Add a record at the end of a chain and return its number; StoreBusyError where others are
    always faster.
    """
    number = sum(1 for _ in records(store, prefix, type(record)))
    for at in range(number + 1, number + CONTESTS):
        if add_next(store, prefix, at, record):
            return at
    raise StoreBusyError(place=prefix, code="contested")


def add_next(store: Store, prefix: str, number: int, record: BaseModel) -> bool:
    """Add a record as exactly that number of its chain; False where another was first."""
    return store.create(link(prefix, number), canonical(record))


def commits_since(store: Store, issuer: str, number: int = 0) -> Iterator[Manifest]:
    """Yield the runs of the commits after that number, committed or about to be."""
    return records(store, commits(issuer), Manifest, number + 1)


def last_commit(store: Store, issuer: str) -> int:
    """Return the number of an issuer's last commit, 0 before the first."""
    return last_record(store, commits(issuer), Manifest)[0]


def recent_commits(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the runs of the last commits, among which are those whose manifest may still be
    missing.
    """
    return commits_since(store, issuer, max(0, last_commit(store, issuer) - LATELY))


def append_commit(
    store: Store, issuer: str, manifest: Manifest, since: int | None = None, *, guarded: bool = True
) -> None:
    """Add a run to the commits; with `since`, OvertakenError where a later commit sends any of its
    cards.

    Not `guarded`: only where that is of the same extract.
    """
    prefix = commits(issuer)
    # the last one may be ours
    at = max(0, last_commit(store, issuer) - 1) if since is None else since
    while not add_next(store, prefix, at + 1, manifest):
        at += 1
        other = read_document(store, link(prefix, at), Manifest)
        if other is None:
            raise ConflictError(key=link(prefix, at))
        if other.run == manifest.run:  # a twin's, or ours before a crash
            return
        taken = manifest.sequence is not None and other.sequence == manifest.sequence
        if taken and other.source.sha256 != manifest.source.sha256:
            raise OvertakenError(run=manifest.run, other=other.run, what="the same sequence number")
        if since is None or not (guarded or other.source.sha256 == manifest.source.sha256):
            continue
        ours, theirs = (
            _cards(store, manifest.run, manifest.ledger),
            _cards(store, other.run, other.ledger),
        )
        if shared := ours.join(theirs, on=ours.columns, how="semi").height:
            raise OvertakenError(run=manifest.run, other=other.run, what=f"{shared} of its cards")


def _cards(store: Store, run: str, parts: Iterable[LedgerPart]) -> pl.DataFrame:
    columns = ["cuid", "last_4", "expiration", *CHECKS]
    frames = read_ledger(store, keys_of(run), parts, columns, pl.col("fate") == ledger.SUBMITTED)
    return pl.concat([pl.Series("card", dtype=pl.UInt64), *map(card_keys, frames)]).to_frame()


def entry_key(issuer: str, number: int) -> str:
    """Return the key of an entry, from 1."""
    return link(f"{trail(issuer)}{number // FOLDER:04d}/", number)


def record_keys(store: Store, issuer: str) -> Iterator[str]:
    """Yield the keys of an issuer's records: decisions and facts that are created once and kept."""
    return (one.key for one in store.keys(f"{issuer}/") if RECORDS.fullmatch(one.key))


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
            number, before = self._last.get(issuer) or self._find_last(issuer)
            for at in range(number + 1, number + LOST):
                older = () if at > 1 else tuple(record_keys(self._store, issuer))
                who = {"before": before, "at": self._now(), "by": self._by, "reason": reason}
                entry = AuditEntry(**who, objects=dict(objects), older=older)
                content = canonical(entry.model_copy(update={"seal": digest(canonical(entry))}))
                if self._store.create(entry_key(issuer, at), content):
                    self._last[issuer] = at, digest(content)
                    return
                before = digest(read(self._store, entry_key(issuer, at)))
        raise StoreBusyError(place=trail(issuer), code="contested")

    def _find_last(self, issuer: str) -> tuple[int, str]:
        """Return number and digest of the last entry that a listing shows; a later one is met when
        adding.
        """
        folders = [folder.key for folder in self._store.keys(trail(issuer), shallow=True)] or [
            trail(issuer)
        ]
        found = [one.key for one in self._store.keys(folders[-1]) if ENTRY.fullmatch(one.key)]
        return (int(found[-1][-11:-5]), digest(read(self._store, found[-1]))) if found else (0, "")

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
    """Return a store like this one that names every record in the audit trail before it creates
    it.
    """
    twin = copy(store)  # everything else it can do stays its own
    twin.create = AuditTrail(store, by, now).create  # type: ignore[method-assign]
    return twin
