"""How far an issuer's store was read for the book in the database, and what came since.

The book is derived from what the store has. Its mark (a row of the table `watermark`) is believed
where this code made it (CODE), and the audit trail and the commit chain still have what was read
last, which they have not in a store that was restored from a copy, or in another one.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import Connection, select

from flows import __version__
from flows.book.opening import NOBODY_REMOVED, OpeningBalance
from flows.runs.commits import registered_runs
from flows.runs.overlay import Overlay
from flows.runs.store import Store
from flows.runs.trail_entries import entries_since
from schemas import database
from schemas.manifest import Manifest

# of the code that derives the book; links are compared by digests, which a new polars may change
CODE = f"22, cardlink {__version__}, polars {pl.__version__}"
LATER = timedelta(days=1)  # how long after its entry in the audit trail a run may be changed
_OF_RUN = re.compile(r"[^/]+/runs/([^/]+)/")


class Mark(NamedTuple):
    """How far the store was read, as the table `watermark` says it.

    `version` counts the writes; 0 before the first.
    """

    version: int = 0
    code: str = CODE
    registered: int = 0
    newest: date = date.min
    trail: int = 0
    seal: str = ""
    recent: Mapping[str, datetime] = {}
    removed: OpeningBalance = NOBODY_REMOVED
    reported: str = ""
    journal: int = 0

    def row(self, issuer: str) -> dict[str, Any]:
        """Return the row of the table that says this of an issuer."""
        recent = {run: time.isoformat() for run, time in self.recent.items()}
        removed = self.removed.model_dump(mode="json")
        return {**self._asdict(), "issuer": issuer, "recent": recent, "removed": removed}


class News(NamedTuple):
    """What may have changed since a mark was made.

    `registered`: the runs registered since, by number. `runs`: those that may have changed.
    """

    registered: Mapping[int, Manifest]
    trail: int
    seal: str
    recent: Mapping[str, datetime]
    runs: frozenset[str]
    journal: int


def read_mark(connection: Connection, issuer: str) -> Mark:
    """Return the mark of an issuer as it is stored, an empty one where there is none."""
    columns = [database.WATERMARK.c[name] for name in Mark._fields]
    row = connection.execute(select(*columns).where(database.WATERMARK.c.issuer == issuer)).first()
    if row is None:
        return Mark()
    stored = dict(row._mapping)
    times = {run: datetime.fromisoformat(time) for run, time in stored["recent"].items()}
    removed = OpeningBalance.model_validate(stored["removed"])
    return Mark(**{**stored, "recent": times, "removed": removed})


def is_believed(mark: Mark, store: Store, issuer: str) -> bool:
    """Return whether this code made a mark, of the trail and the chain that the store has."""
    if mark.code != CODE:
        return False
    if mark.trail:
        entry = next(entries_since(store, issuer, mark.trail - 1), None)
        if entry is None or entry.seal != mark.seal:
            return False
    if not mark.registered:
        return True
    return next(registered_runs(store, issuer, mark.registered - 1), None) is not None


class Journaled(NamedTuple):
    """The number of an issuer's last journal entry, and when it named runs since a mark."""

    number: int
    runs: Mapping[str, datetime]


def journaled_since(connection: Connection, issuer: str, mark: Mark) -> Journaled:
    """Return what the journal has named since a mark was made."""
    entry = database.JOURNAL.c
    query = select(entry.number, entry.run, entry.at).where(
        entry.issuer == issuer, entry.number > mark.journal
    )
    rows = connection.execute(query.order_by(entry.number)).all()
    last = rows[-1].number if rows else mark.journal
    return Journaled(last, {row.run: row.at for row in rows if row.run})


def news_since(
    store: Store, issuer: str, mark: Mark, pending: Iterable[str], journaled: Journaled
) -> News:
    """Return what may have changed since a mark was made; `pending`: runs without a manifest."""
    # first: what is registered later is met when a run of ours is registered
    registered = dict(
        enumerate(registered_runs(store, issuer, mark.registered), mark.registered + 1)
    )
    entries = list(entries_since(store, issuer, mark.trail))
    named = dict(mark.recent)
    for entry in entries:
        named |= dict.fromkeys(_runs_in(entry.objects), entry.at)
    for run, time in journaled.runs.items():
        named[run] = max(time, named.get(run, time))
    moments = [entry.at for entry in entries[-1:]]
    newest = max([*moments, *journaled.runs.values()], default=None)
    recent = named
    if newest is not None:
        recent = {run: time for run, time in named.items() if time >= newest - LATER}
    runs = named.keys() | set(pending) | _written_in_memory(store)
    seal = entries[-1].seal if entries else mark.seal
    trail = mark.trail + len(entries)
    return News(registered, trail, seal, recent, frozenset(runs), journaled.number)


def _runs_in(keys: Iterable[str]) -> set[str]:
    """Return the runs whose objects are among these keys."""
    matches = map(_OF_RUN.match, keys)
    return {match[1] for match in matches if match}


def _written_in_memory(store: Store) -> set[str]:
    """Return the runs that a dry run has changed in its memory."""
    return _runs_in(store.written) if isinstance(store, Overlay) else set()
