"""How far an issuer's journal was read for the book in the database, and what came since.

The book is derived. Its mark (a row of the table `watermark`) is believed where this code made it.
"""

import re
from datetime import date
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import Connection, select

from flows import __version__
from flows.book.opening import NOBODY_REMOVED, OpeningBalance
from flows.runs.commits import Commit, commits_since
from flows.runs.overlay import Overlay
from flows.runs.store import Store
from schemas import database

# of the code that derives the book; links are compared by digests, which a new polars may change
CODE = f"25, cardlink {__version__}, polars {pl.__version__}"
_OF_RUN = re.compile(r"[^/]+/runs/([^/]+)/")


class Mark(NamedTuple):
    """How far the store was read, as the table `watermark` says it.

    `version` counts the writes; 0 before the first.
    """

    version: int = 0
    code: str = CODE
    turn: int = 0
    newest: date = date.min
    removed: OpeningBalance = NOBODY_REMOVED
    journal: int = 0

    @property
    def is_believed(self) -> bool:
        """Whether this code made it."""
        return self.code == CODE

    def row(self, issuer: str) -> dict[str, Any]:
        """Return the row of the table that says this of an issuer."""
        removed = self.removed.model_dump(mode="json")
        return {**self._asdict(), "issuer": issuer, "removed": removed}


class News(NamedTuple):
    """What came since a mark was made: `runs` are those that may have changed.

    `committed`: the runs that were committed since. `journal`: the number of the last entry.
    """

    committed: list[Commit]
    runs: frozenset[str]
    journal: int

    def is_any_after(self, mark: Mark) -> bool:
        """Whether anything came since that mark."""
        return self.journal > mark.journal or bool(self.committed or self.runs)


def read_mark(connection: Connection, issuer: str) -> Mark:
    """Return the mark of an issuer as it is stored, an empty one where there is none."""
    columns = [database.WATERMARK.c[name] for name in Mark._fields]
    row = connection.execute(select(*columns).where(database.WATERMARK.c.issuer == issuer)).first()
    if row is None:
        return Mark()
    stored = dict(row._mapping)
    removed = OpeningBalance.model_validate(stored["removed"])
    return Mark(**{**stored, "removed": removed})


def news_since(connection: Connection, store: Store, issuer: str, mark: Mark) -> News:
    """Return what was committed, and may have changed, since a mark was made."""
    number = database.JOURNAL.c.number
    run = database.JOURNAL.c.run
    query = select(number, run).where(database.JOURNAL.c.issuer == issuer, number > mark.journal)
    rows = connection.execute(query).all()
    last = max((row.number for row in rows), default=mark.journal)
    named = {row.run for row in rows if row.run}
    committed = commits_since(connection, issuer, mark.turn)
    selections = (commit.manifest.selection for commit in committed)
    named |= {selection.of for selection in selections if selection is not None}
    return News(committed, frozenset(named | _written_in_memory(store)), last)


def _written_in_memory(store: Store) -> set[str]:
    """Return the runs that a dry run has changed in its memory."""
    if not isinstance(store, Overlay):
        return set()
    matches = map(_OF_RUN.match, store.written)
    return {match[1] for match in matches if match}
