"""The order of an issuer's commits: a chain whose links hold the manifests written next.

A run that depends on what other runs had sent takes the next link only where none of the links
since sends one of its cards.
"""

from collections.abc import Iterator

import polars as pl

from flows.errors import TryAgainError
from flows.runs.chains import add_next, last_record, records
from flows.runs.keys import commits, link
from flows.runs.prior_state import CHECKS, card_keys
from flows.runs.store import ConflictError, Store
from flows.runs.stored_run import StoredRun
from flows.runs.versions import read_document
from schemas import ledger
from schemas.manifest import Manifest

LATELY = 16  # commits looked at for a missing manifest


class OvertakenError(TryAgainError):
    """Another run committed meanwhile.

    It has some of the same cards, or the same sequence number.
    """

    message = "{run}: run {other} was committed meanwhile and has {what}. Nothing was committed."
    next_step = (
        "Run {same_command} again: it selects rows without those cards, "
        "or names the run that has the number."
    )


def commits_since(store: Store, issuer: str, number: int = 0) -> Iterator[Manifest]:
    """Yield the runs of the commits after that number, committed or about to be."""
    return records(store, commits(issuer), Manifest, number + 1)


def last_commit(store: Store, issuer: str) -> int:
    """Return the number of an issuer's last commit, 0 before the first."""
    return last_record(store, commits(issuer), Manifest)[0]


def recent_commits(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the runs of the last commits.

    Among them are those whose manifest may still be missing.
    """
    return commits_since(store, issuer, max(0, last_commit(store, issuer) - LATELY))


def append_commit(
    store: Store, issuer: str, manifest: Manifest, since: int | None = None, *, guarded: bool = True
) -> None:
    """Add a run to the commits.

    With `since`, raises OvertakenError where a later commit sends any of its cards. Not `guarded`:
    only where that is of the same extract.
    """
    prefix = commits(issuer)
    number = since
    if number is None:
        number = max(0, last_commit(store, issuer) - 1)  # the last one may be ours
    while not add_next(store, prefix, number + 1, manifest):
        number += 1
        other = read_document(store, link(prefix, number), Manifest)
        if other is None:
            raise ConflictError(key=link(prefix, number))
        if other.run == manifest.run:  # a concurrent process's, or ours before a crash
            return
        _refuse_same_sequence(manifest, other)
        same_extract = other.source.sha256 == manifest.source.sha256
        if since is not None and (guarded or same_extract):
            _refuse_shared_cards(store, manifest, other)


def _refuse_same_sequence(manifest: Manifest, other: Manifest) -> None:
    """Raise OvertakenError where another extract has the same sequence number."""
    if manifest.sequence is None or manifest.source.sha256 == other.source.sha256:
        return
    if manifest.sequence == other.sequence:
        raise OvertakenError(run=manifest.run, other=other.run, what="the same sequence number")


def _refuse_shared_cards(store: Store, manifest: Manifest, other: Manifest) -> None:
    """Raise OvertakenError where both runs send some card."""
    own_cards = _sent_cards(store, manifest)
    shared = own_cards.join(_sent_cards(store, other), on=own_cards.columns, how="semi").height
    if shared:
        raise OvertakenError(run=manifest.run, other=other.run, what=f"{shared} of its cards")


def _sent_cards(store: Store, manifest: Manifest) -> pl.DataFrame:
    """Return the keys of the cards that a run sends, committed or about to be."""
    run = StoredRun.by_id(store, manifest.run)
    columns = ["cuid", "last_4", "expiration", *CHECKS]
    submitted = pl.col("fate") == ledger.SUBMITTED
    cards = [card_keys(run.ledger_part(part, columns, submitted)) for part in manifest.ledger]
    return pl.concat([pl.Series("card", dtype=pl.UInt64), *cards]).to_frame()
