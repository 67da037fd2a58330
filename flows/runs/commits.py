"""The order in which an issuer's runs were committed: each has a turn, the next number.

A run counts from its turn on. One that depends on what other runs had sent is committed only where
none that was committed since sends one of its cards (`flows/submissions/commit.py`).
"""

from typing import NamedTuple

import polars as pl
from sqlalchemy import Connection, func, select

from flows.errors import TryAgainError
from flows.runs.adapters import Adapters
from flows.runs.cards import FINGERPRINTS, card_keys
from flows.runs.run_records import records_where
from flows.runs.stored_run import StoredRun
from schemas import ledger
from schemas.database import RUN
from schemas.manifest import Manifest


class OvertakenError(TryAgainError):
    """Another run was committed since this one was planned.

    It has some of the same cards, or the same sequence number.
    """

    message = "{run}: run {other} was committed meanwhile and has {what}. Nothing was committed."
    next_step = (
        "Run {same_command} again: it selects rows without those cards, "
        "or names the run that has the number."
    )


class Commit(NamedTuple):
    """A committed run: its turn, and what it committed."""

    turn: int
    manifest: Manifest


def commits_since(connection: Connection, issuer: str, turn: int = 0) -> list[Commit]:
    """Return the runs that were committed after that turn, in order."""
    records = records_where(connection, issuer, RUN.c.turn > turn)
    commits = [
        Commit(record.turn, end)
        for record in records
        if isinstance(end := record.end(), Manifest) and record.turn is not None
    ]
    return sorted(commits, key=lambda commit: commit.turn)


def read_commits(adapters: Adapters, issuer: str, turn: int = 0) -> list[Commit]:
    """Return the runs that are committed by now after that turn, in order."""
    with adapters.database.snapshot() as connection:
        return commits_since(connection, issuer, turn)


def last_turn(connection: Connection, issuer: str) -> int:
    """Return the turn of the run that was committed last, 0 before the first."""
    query = select(func.max(RUN.c.turn)).where(RUN.c.issuer == issuer)
    return connection.scalar(query) or 0


def read_last_turn(adapters: Adapters, issuer: str) -> int:
    """Return the turn of the run that is committed last by now, 0 before the first."""
    with adapters.database.snapshot() as connection:
        return last_turn(connection, issuer)


def refuse_overtaken(
    adapters: Adapters, manifest: Manifest, other: Manifest, *, guarded: bool
) -> None:
    """Raise OvertakenError where another run has the sequence number of a run that is about to be
    committed, or sends any of its cards. Not `guarded`: cards only where that is of its extract.
    """
    if other.run == manifest.run:  # a concurrent process has committed it
        return
    is_same_extract = manifest.source.sha256 == other.source.sha256
    has_number = manifest.sequence is not None and manifest.sequence == other.sequence
    if has_number and not is_same_extract:
        raise OvertakenError(run=manifest.run, other=other.run, what="the same sequence number")
    if not guarded and not is_same_extract:
        return
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
