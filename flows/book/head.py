"""The head of the kept book: what it consists of, and what may have changed since it was written.

`kept.py` says how it is used. A head is believed where this version of the code made it (CODE), and
the audit trail and the commit chain still have what it read last, which they have not in a store
that was restored from a copy.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import count, takewhile
from typing import NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from flows import __version__
from flows.book.departures import WholeExtract
from flows.book.known_plans import KnownPlan, ended, read_plans
from flows.book.opening import NOBODY_REMOVED, OpeningBalance
from flows.runs.commits import registered_runs
from flows.runs.identity import canonical
from flows.runs.keys import book, link
from flows.runs.overlay import Overlay
from flows.runs.store import Store, is_stored, read_if_stored
from flows.runs.stored_runs import StoredRuns
from flows.runs.trail_entries import entries_since
from schemas.manifest import Manifest

# of the code that makes the book; attempts are compared by digest, which a new polars may change
CODE = f"21, cardlink {__version__}, polars {pl.__version__}"
LATER = timedelta(days=1)  # how long after its entry in the audit trail a run may be changed
_OF_RUN = re.compile(r"[^/]+/runs/([^/]+)/")


class Page(BaseModel):
    """What is kept of a run: its turn, what its attempts were read from, and the bytes they are.

    `finished`: nothing of it is awaited. `settled`: its attempts are among the settled ones.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    turn: int
    content: int = 0  # number of the commit of the extract that its rows are of, -1: unknown
    objects: str
    sha256: str = ""  # until it is written
    committed: bool
    finished: bool = False
    twins: bool = False  # it has cards that look the same
    settled: bool = False
    renewal: bool = False  # its links replace others that end
    extract: WholeExtract | None = None  # None for a selection of rows, and before the commit


class Head(BaseModel):
    """What the kept book consists of (`head.json`), and how far its sources were read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    code: str = CODE
    registered: int = 0  # number of the last run read in the commit chain
    newest: date = date.min  # business date of the latest whole extract
    trail: int = 0  # number of the last entry read in the audit trail
    seal: str = ""  # and its seal
    recent: dict[str, datetime] = {}  # when the trail named runs, in its last day
    uncommitted: tuple[str, ...] = ()  # registered runs without a manifest
    pages: dict[str, Page] = {}
    settled: str = ""  # SHA-256 of settled.parquet
    left: str = ""  # SHA-256 of left.parquet: who has left by the extracts of `left_runs`
    left_runs: tuple[str, ...] = ()
    opening: OpeningBalance = NOBODY_REMOVED
    plans: dict[str, KnownPlan] = {}  # of runs that have ended
    closed: str = ""  # SHA-256 of closed.json: figures of runs about which nothing is open
    closed_rows: str = ""  # SHA-256 of rows.parquet: whose rows the small ones of them have


class News(NamedTuple):
    """What may have changed since a head was written.

    `registered`: the runs registered since, by number. `runs`: those that may have changed.
    """

    registered: Mapping[int, Manifest]
    trail: int
    seal: str
    recent: Mapping[str, datetime]
    runs: frozenset[str]


def generation(store: Store, issuer: str) -> int:
    """Return how often the book was discarded."""

    def has_generation(number: int) -> bool:
        return is_stored(store, _generation_key(issuer, number))

    return sum(1 for _ in takewhile(has_generation, count(1)))


def forget_book(store: Store, issuer: str) -> None:
    """Discard the kept book: the next reader makes it anew from the ledgers.

    What a process that began before that writes of it is not read any more.
    """
    content = canonical({"code": CODE})
    while not store.create(_generation_key(issuer, generation(store, issuer) + 1), content):
        continue  # another process discarded it meanwhile


def known_plans(runs: StoredRuns) -> list[KnownPlan]:
    """Return what is known of the plan of each run that has one, by business date."""
    kept = read_head(runs.store, runs.issuer, generation(runs.store, runs.issuer))
    return list(read_plans(runs, kept.plans).values())


def with_plans(head: Head, runs: StoredRuns) -> Head:
    """Return a head that keeps the plans of the runs that have ended."""
    plans = read_plans(runs, head.plans)
    return head.model_copy(update={"plans": ended(plans.values())})


def read_head(store: Store, issuer: str, number: int) -> Head:
    """Return the stored head of a generation, an empty one where there is none to be believed.

    Not where its code is another, nor where the audit trail or the commit chain does not have what
    it read last, as in a store that was restored.
    """
    content = read_if_stored(store, head_key(issuer, number))
    if content is None:
        return Head()
    with suppress(ValidationError):
        head = Head.model_validate_json(content)
        if head.code == CODE and _is_of_store(head, store, issuer):
            return head
    return Head()


def _is_of_store(head: Head, store: Store, issuer: str) -> bool:
    """Return whether the trail and the chain are those that a head was made from."""
    if head.trail:
        entry = next(entries_since(store, issuer, head.trail - 1), None)
        if entry is None or entry.seal != head.seal:
            return False
    if not head.registered:
        return True
    return next(registered_runs(store, issuer, head.registered - 1), None) is not None


def news_since(store: Store, issuer: str, kept: Head) -> News:
    """Return what may have changed since a head was written."""
    # first: what is registered later is met when a run of ours is registered
    registered = dict(
        enumerate(registered_runs(store, issuer, kept.registered), kept.registered + 1)
    )
    entries = list(entries_since(store, issuer, kept.trail))
    named = dict(kept.recent)
    for entry in entries:
        named |= dict.fromkeys(_runs_in(entry.objects), entry.at)
    recent = named
    if entries:
        recent = {run: time for run, time in named.items() if time >= entries[-1].at - LATER}
    trail = kept.trail + len(entries)
    runs = named.keys() | set(kept.uncommitted) | _written_in_memory(store)
    if not trail:
        runs |= kept.pages.keys()
    seal = entries[-1].seal if entries else kept.seal
    return News(registered, trail, seal, recent, frozenset(runs))


def _runs_in(keys: Iterable[str]) -> set[str]:
    """Return the runs whose objects are among these keys."""
    matches = map(_OF_RUN.match, keys)
    return {match[1] for match in matches if match}


def _written_in_memory(store: Store) -> set[str]:
    """Return the runs that a dry run has changed in its memory."""
    return _runs_in(store.written) if isinstance(store, Overlay) else set()


def head_key(issuer: str, number: int = 0) -> str:
    """Return the key of the head of a generation of an issuer's book."""
    return f"{book(issuer)}head-{number:06d}.json" if number else f"{book(issuer)}head.json"


def _generation_key(issuer: str, number: int) -> str:
    """Return the key of an object that says that the book was discarded: they are counted."""
    return link(f"{book(issuer)}generations/", number)
