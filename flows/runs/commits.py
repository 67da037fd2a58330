"""The order of an issuer's commits: a chain whose links hold the manifests written next.

A run that rests on what other runs had sent takes the next link only where none of the links since
sends one of its cards.
"""

from collections.abc import Iterable, Iterator

import polars as pl

from flows.errors import TryAgainError
from flows.runs.chains import add_next, last_record, records
from flows.runs.documents import read_ledger
from flows.runs.keys import commits, keys_of, link
from flows.runs.prior_state import CHECKS, card_keys
from flows.runs.store import ConflictError, Store
from flows.runs.versions import read_document
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest

LATELY = 16  # commits looked at for a missing manifest


class OvertakenError(TryAgainError):
    """Another run committed some of the same cards, or the same sequence number, while this one was
    built.
    """

    message = "{run}: run {other} was committed meanwhile and has {what}. Nothing was committed."
    next_step = "Run the same command again: it selects rows without those cards, or names the run that has the number."


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
