"""Chains of numbered, create-only objects: records added to a run, and the order of an issuer's commits.

They are read by key until one is missing, so that a late listing hides none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import TypeVar

import polars as pl
from pydantic import ValidationError

from flows.errors import TryAgainError
from flows.runs.documents import keys_of, read_ledger
from flows.runs.identity import canonical
from flows.runs.keys import commits, link
from flows.runs.store import ConflictError, ObjectMissingError, Store, StoreBusyError, read
from schemas import ledger
from schemas.manifest import Document, LedgerPart, Manifest

T = TypeVar("T", bound=Document)
CONTESTS = 16  # others that add to one chain at the same moment

LATELY = 16  # links looked at for a missing manifest
_LINK = re.compile(r"(\d{6})\.json$")


def records(store: Store, prefix: str, kind: type[T]) -> Iterator[T]:
    """Yield the records of a chain, oldest first; ConflictError for what is none of ours."""
    for number in count(1):
        record = _read(store, link(prefix, number), kind)
        if record is None:
            return
        yield record


def add_record(store: Store, prefix: str, record: Document) -> int:
    """Add a record at the end of a chain and return its number; StoreBusyError where others are always faster."""
    number = sum(1 for _ in records(store, prefix, type(record)))
    for at in range(number + 1, number + CONTESTS):
        if store.create(link(prefix, at), canonical(record)):
            return at
    raise StoreBusyError(place=prefix, code="contested")


def add_next(store: Store, prefix: str, number: int, record: Document) -> bool:
    """Add a record as exactly that number of its chain; False where another was first."""
    return store.create(link(prefix, number), canonical(record))


def _read(store: Store, key: str, kind: type[T]) -> T | None:
    try:
        return kind.model_validate_json(read(store, key))
    except ObjectMissingError:
        return None
    except ValidationError:  # its text shows what it found; ours is raised below without a chain
        pass
    raise ConflictError(key=key)


class OvertakenError(TryAgainError):
    """Another run sent some of the same cards while this one was made."""

    message = "{run}: run {other} was committed meanwhile and sends {cards} of its cards. Nothing was committed."
    next_step = "Run the same command again: the selection is made anew, without what that run sent."


def commits_since(store: Store, issuer: str, number: int = 0) -> Iterator[Manifest]:
    """Yield the runs of the links after that number, committed or about to be; read by key, never by listing."""
    for at in count(number + 1):
        link = _read_link(store, issuer, at)
        if link is None:
            return
        yield link


def last_commit(store: Store, issuer: str) -> int:
    """Return the number of the last link; a listing says where to look, the keys decide."""
    listed = [int(found[1]) for entry in store.keys(commits(issuer)) if (found := _LINK.search(entry.key))]
    number = max(listed, default=0)
    return number + sum(1 for _ in commits_since(store, issuer, number))


def recent_commits(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the runs of the last links: whoever commits looks at them, so that older ones have their manifest."""
    return commits_since(store, issuer, max(0, last_commit(store, issuer) - LATELY))


def append_commit(store: Store, issuer: str, manifest: Manifest, since: int | None = None) -> None:
    """Take the next link for a run; with `since`, only where the links after it send none of the run's cards.

    Raises OvertakenError.
    """
    at = max(0, last_commit(store, issuer) - 1) if since is None else since  # the last one may be ours
    link = canonical(manifest)
    while not store.create(_key(issuer, at + 1), link):
        at += 1
        other = _read_link(store, issuer, at)
        if other is None:
            raise ConflictError(key=_key(issuer, at))
        if other.run == manifest.run:  # a twin's, or ours before a crash
            return
        if since is not None:
            _refuse_overlap(store, manifest, other)


def _refuse_overlap(store: Store, manifest: Manifest, other: Manifest) -> None:
    ours, theirs = _cards(store, manifest.run, manifest.ledger), _cards(store, other.run, other.ledger)
    shared = ours.join(theirs, on=ours.columns, how="semi")
    if shared.height:
        raise OvertakenError(run=manifest.run, other=other.run, cards=shared.height)


def _cards(store: Store, run: str, parts: Iterable[LedgerPart]) -> pl.DataFrame:
    frames = read_ledger(store, keys_of(run), parts, ["cuid", "last_4", "fate"])
    sent = [frame.filter(fate=ledger.SUBMITTED).select("cuid", "last_4") for frame in frames]
    return pl.concat([pl.DataFrame(schema={"cuid": pl.String, "last_4": pl.String}), *sent])


def _read_link(store: Store, issuer: str, number: int) -> Manifest | None:
    try:
        return Manifest.model_validate_json(read(store, _key(issuer, number)))
    except ObjectMissingError:
        return None
    except ValidationError:
        pass
    raise ConflictError(key=_key(issuer, number))


def _key(issuer: str, number: int) -> str:
    return f"{commits(issuer)}{number:06d}.json"
