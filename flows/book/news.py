"""How far an issuer's store was read for the book in the database, and what came since.

The book is derived from what the store has. Its mark (a row of the table `watermark`) is believed
where this code made it (CODE), and the commit chain still has what was read last, which it has not
in a store that was restored from a copy, or in another one.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import Connection, select

from flows import __version__
from flows.book.opening import NOBODY_REMOVED, OpeningBalance
from flows.runs.commits import registered_runs
from flows.runs.overlay import Overlay
from flows.runs.store import Store
from schemas import database
from schemas.manifest import Manifest

# of the code that derives the book; links are compared by digests, which a new polars may change
CODE = f"22, cardlink {__version__}, polars {pl.__version__}"
_OF_RUN = re.compile(r"[^/]+/runs/([^/]+)/")


class Mark(NamedTuple):
    """How far the store was read, as the table `watermark` says it.

    `version` counts the writes; 0 before the first.
    """

    version: int = 0
    code: str = CODE
    registered: int = 0
    newest: date = date.min
    removed: OpeningBalance = NOBODY_REMOVED
    reported: str = ""
    journal: int = 0

    def row(self, issuer: str) -> dict[str, Any]:
        """Return the row of the table that says this of an issuer."""
        removed = self.removed.model_dump(mode="json")
        return {**self._asdict(), "issuer": issuer, "removed": removed}


class News(NamedTuple):
    """What may have changed since a mark was made.

    `registered`: the runs registered since, by number. `runs`: those that may have changed.
    """

    registered: Mapping[int, Manifest]
    runs: frozenset[str]
    journal: int


def read_mark(connection: Connection, issuer: str) -> Mark:
    """Return the mark of an issuer as it is stored, an empty one where there is none."""
    columns = [database.WATERMARK.c[name] for name in Mark._fields]
    row = connection.execute(select(*columns).where(database.WATERMARK.c.issuer == issuer)).first()
    if row is None:
        return Mark()
    stored = dict(row._mapping)
    removed = OpeningBalance.model_validate(stored["removed"])
    return Mark(**{**stored, "removed": removed})


def is_believed(mark: Mark, store: Store, issuer: str) -> bool:
    """Return whether this code made a mark, of the chain that the store has."""
    if mark.code != CODE:
        return False
    if not mark.registered:
        return True
    return next(registered_runs(store, issuer, mark.registered - 1), None) is not None


class Journaled(NamedTuple):
    """The number of an issuer's last journal entry, and the runs named after a mark was made."""

    number: int
    runs: frozenset[str]


def journaled_since(connection: Connection, issuer: str, mark: Mark) -> Journaled:
    """Return what the journal has named since a mark was made."""
    number = database.JOURNAL.c.number
    run = database.JOURNAL.c.run
    query = select(number, run).where(database.JOURNAL.c.issuer == issuer, number > mark.journal)
    rows = connection.execute(query).all()
    last = max((row.number for row in rows), default=mark.journal)
    return Journaled(last, frozenset(row.run for row in rows if row.run))


def news_since(
    store: Store, issuer: str, mark: Mark, pending: Iterable[str], journaled: Journaled
) -> News:
    """Return what may have changed since a mark was made; `pending`: runs without a manifest."""
    # first: what is registered later is met when a run of ours is registered
    registered = dict(
        enumerate(registered_runs(store, issuer, mark.registered), mark.registered + 1)
    )
    runs = journaled.runs.union(pending, _written_in_memory(store))
    return News(registered, runs, journaled.number)


def _written_in_memory(store: Store) -> set[str]:
    """Return the runs that a dry run has changed in its memory."""
    if not isinstance(store, Overlay):
        return set()
    matches = map(_OF_RUN.match, store.written)
    return {match[1] for match in matches if match}
