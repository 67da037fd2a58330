"""The chain in which an issuer's runs are registered, each just before its manifest commits it.

It puts the commits in one order. Each entry holds the manifest that is written next: a registered
run counts as having sent its cards, and it is committed once its own `manifest.json` exists
(`flows/submissions/commit.py`). A run that depends on what other runs had sent is registered only
where none that was registered since sends one of its cards.
"""

from collections.abc import Iterator

import polars as pl

from flows.errors import TryAgainError
from flows.runs.adapters import Adapters
from flows.runs.cards import FINGERPRINTS, card_keys
from flows.runs.chains import add_next, last_record, records
from flows.runs.documents import read_document
from flows.runs.keys import commits, link
from flows.runs.store import ConflictError, Store
from flows.runs.stored_run import StoredRun
from schemas import ledger
from schemas.manifest import Manifest

# Runs at the end of the chain that may still lack their manifest. A process that died between the
# two writes leaves one, and the next submit writes it; so there are never more than processes that
# work on one issuer at once, of which 16 are plenty.
RECENT = 16


class OvertakenError(TryAgainError):
    """Another run was registered since this one was planned.

    It has some of the same cards, or the same sequence number.
    """

    message = (
        "{run}: run {other} was registered for commit meanwhile and has {what}. "
        "Nothing was committed."
    )
    next_step = (
        "Run {same_command} again: it selects rows without those cards, "
        "or names the run that has the number."
    )


def registered_runs(store: Store, issuer: str, number: int = 0) -> Iterator[Manifest]:
    """Yield the runs that were registered after that number, committed or about to be."""
    return records(store, commits(issuer), Manifest, number + 1)


def last_registered(store: Store, issuer: str) -> int:
    """Return the number of the run that was registered last, 0 before the first."""
    return last_record(store, commits(issuer), Manifest)[0]


def recently_registered(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the RECENT runs that were registered last.

    Among them are those whose manifest may still be missing.
    """
    return registered_runs(store, issuer, max(0, last_registered(store, issuer) - RECENT))


def register_run(
    adapters: Adapters, issuer: str, manifest: Manifest, since: int, *, guarded: bool
) -> None:
    """Register a run, which is the step before its manifest; nothing where it already is.

    Raises OvertakenError where a run registered after the number `since` has its sequence number or
    sends any of its cards. Not `guarded`: cards only where that is of the same extract.
    """
    store = adapters.store
    prefix = commits(issuer)
    number = since
    while not add_next(store, prefix, number + 1, manifest):
        number += 1
        other = read_document(store, link(prefix, number), Manifest)
        if other is None:
            raise ConflictError(key=link(prefix, number))
        if other.run == manifest.run:  # a concurrent process's, or ours before a crash
            return
        _refuse_same_sequence(manifest, other)
        if guarded or other.source.sha256 == manifest.source.sha256:
            _refuse_shared_cards(adapters, manifest, other)


def _refuse_same_sequence(manifest: Manifest, other: Manifest) -> None:
    """Raise OvertakenError where another extract has the same sequence number."""
    if manifest.sequence is None or manifest.source.sha256 == other.source.sha256:
        return
    if manifest.sequence == other.sequence:
        raise OvertakenError(run=manifest.run, other=other.run, what="the same sequence number")


def _refuse_shared_cards(adapters: Adapters, manifest: Manifest, other: Manifest) -> None:
    """Raise OvertakenError where both runs send some card."""
    shared = _sent_cards(adapters, manifest).is_in(_sent_cards(adapters, other)).sum()
    if shared:
        raise OvertakenError(run=manifest.run, other=other.run, what=f"{shared} of its cards")


def _sent_cards(adapters: Adapters, manifest: Manifest) -> pl.Series:
    """Return the keys of the cards that a run sends, committed or about to be."""
    run = StoredRun.by_id(adapters, manifest.run)
    columns = ["cuid", "last_4", "expiration", *FINGERPRINTS]
    submitted = pl.col("fate") == ledger.SUBMITTED
    cards = [card_keys(run.ledger_part(part, columns, submitted)) for part in manifest.ledger]
    return pl.concat([pl.Series(dtype=pl.UInt64), *cards])
