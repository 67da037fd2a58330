"""Chains of numbered, create-only objects: records added to a run, and the order of an issuer's commits.

They are read by key until one is missing, so that a late listing hides none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import TypeVar

import polars as pl
from pydantic import BaseModel

from flows.errors import TryAgainError
from flows.runs.documents import keys_of, read_document, read_ledger
from flows.runs.identity import canonical
from flows.runs.keys import commits, link
from flows.runs.prior_state import CHECKS, card_keys
from flows.runs.store import ConflictError, Store, StoreBusyError
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest

T = TypeVar("T", bound=BaseModel)
CONTESTS = 16  # lost races before giving up: each lost one means that another writer won
LATELY = 16  # commits looked at for a missing manifest
_LINK = re.compile(r"(\d{6})\.json")


class OvertakenError(TryAgainError):
    """Another run committed some of the same cards while this one was built."""

    message = "{run}: run {other} was committed meanwhile and sends {cards} of its cards. Nothing was committed."
    next_step = "Run the same command again: it selects rows without those that the other run sent."


class NumberTakenError(TryAgainError):
    """Another run committed an extract of the same sequence number while this one was built."""

    message = "{run}: run {other} was committed meanwhile with the same sequence number. Nothing was committed."
    next_step = "Run the same command again: it names the run that has used the number."


def records(store: Store, prefix: str, kind: type[T], start: int = 1, digits: int = 6) -> Iterator[T]:
    """Yield the records of a chain from number `start`; ConflictError for one that cardlink did not write."""
    for number in count(start):
        record = read_document(store, link(prefix, number, digits), kind)
        if record is None:
            return
        yield record


def last_record(store: Store, prefix: str, kind: type[T]) -> tuple[int, T | None]:
    """Return number and content of a chain's last record, 0 and None where it is empty.

    A listing, which may be late, shows where to start; from there on it is read by key.
    """
    found = (_LINK.fullmatch(entry.key.removeprefix(prefix)) for entry in store.keys(prefix, shallow=True))
    start = max((int(match[1]) for match in found if match), default=1)
    tail = list(records(store, prefix, kind, start))
    return start - 1 + len(tail), tail[-1] if tail else None


def add_record(store: Store, prefix: str, record: BaseModel) -> int:
    """Add a record at the end of a chain and return its number; StoreBusyError where others are always faster."""
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
    """Yield the runs of the last commits, among which are those whose manifest may still be missing."""
    return commits_since(store, issuer, max(0, last_commit(store, issuer) - LATELY))


def append_commit(
    store: Store, issuer: str, manifest: Manifest, since: int | None = None, *, guarded: bool = True
) -> None:
    """Add a run to the commits; with `since`, OvertakenError where a later commit sends any of its cards.

    Not `guarded`: only where that is of the same extract.
    """
    prefix = commits(issuer)
    at = max(0, last_commit(store, issuer) - 1) if since is None else since  # the last one may be ours
    while not add_next(store, prefix, at + 1, manifest):
        at += 1
        other = read_document(store, link(prefix, at), Manifest)
        if other is None:
            raise ConflictError(key=link(prefix, at))
        if other.run == manifest.run:  # a twin's, or ours before a crash
            return
        taken = manifest.sequence is not None and other.sequence == manifest.sequence
        if taken and other.source.sha256 != manifest.source.sha256:
            raise NumberTakenError(run=manifest.run, other=other.run)
        if since is None or not (guarded or other.source.sha256 == manifest.source.sha256):
            continue
        ours, theirs = _cards(store, manifest.run, manifest.ledger), _cards(store, other.run, other.ledger)
        if shared := ours.join(theirs, on=ours.columns, how="semi").height:
            raise OvertakenError(run=manifest.run, other=other.run, cards=shared)


def _cards(store: Store, run: str, parts: Iterable[LedgerPart]) -> pl.DataFrame:
    columns = ["cuid", "last_4", "expiration", *CHECKS]
    frames = read_ledger(store, keys_of(run), parts, columns, pl.col("fate") == ledger.SUBMITTED)
    return pl.concat([pl.Series("card", dtype=pl.UInt64), *map(card_keys, frames)]).to_frame()
