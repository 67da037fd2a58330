"""Purge what is due by the issuer's retention: plan first, then delete exactly what was planned.

A row is written before the first delete of a part: killed after it, the next purge
finishes. Objects are deleted by keys that were listed and recognised, never by prefix; unknown
objects are named and stay. `retention.py` says what is due.

Only retention and resealing can delete, on S3 with a role of their own that may touch neither
sources nor segments of the journal.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, time
from itertools import chain
from typing import NamedTuple

from sqlalchemy import or_

from flows.book.known_runs import ClosedRun
from flows.book.removals import Ledger, removals
from flows.book.stored_book import known_runs
from flows.extensions import hooks
from flows.operations.remediation import CommittedError, abandon
from flows.operations.retention import (
    Kept,
    RunState,
    closed_state,
    objects_by_part,
    state_of,
    term_of,
    verdict,
)
from flows.redaction import redact
from flows.reports.summary import FIGURES
from flows.runs.answers import purge_answers
from flows.runs.business_date import local_day
from flows.runs.claim import OLD, ClaimedError
from flows.runs.context import IssuerContext
from flows.runs.errors import AbandonedError
from flows.runs.journal import Act, enter
from flows.runs.keys import (
    DROPPED,
    RunId,
    runs,
)
from flows.runs.purges import add_purge, purges
from flows.runs.read_once import read_once
from flows.runs.run_status import RunStatus
from flows.runs.single_links import place_of, prompted_singles, remove_singles, with_ids
from flows.runs.store import Cleaner, ConflictError, Entry, StoreDeniedError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.database import PURGE, SINGLE_LINK
from schemas.records import PARTS, Abandoned, Part, Purged


class PurgeUnit(NamedTuple):
    """What is deleted together, usually a part of a run: its objects, and its record.

    `resumed` where the record exists already: a purge that was killed is finished.
    """

    record: Purged
    entries: tuple[Entry, ...]
    resumed: bool = False
    abandons: bool = False  # a run that was never committed
    singles: tuple[str, ...] = ()  # ids of single links that belong to no run

    @property
    def names(self) -> list[str]:
        """What goes: the keys of its objects, and its single links."""
        keys = [entry.key for entry in self.entries]
        return [*keys, *map(place_of, self.singles)]


class PurgePlan(NamedTuple):
    """What a purge deletes, what it keeps, and what it does not know.

    `leftovers` are half-written files and uploads never completed. `hides` where the store only
    hides what is deleted.
    """

    lots: tuple[PurgeUnit, ...] = ()
    kept: tuple[Kept, ...] = ()
    unknown: tuple[str, ...] = ()
    leftovers: tuple[Entry, ...] = ()
    hides: bool | None = None


def plan_purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Return what of an issuer is due for deletion and why the rest is kept; nothing is changed."""
    stored_runs = StoredRuns(context.adapters, context.issuer.issuer)
    known = known_runs(context.adapters, stored_runs)
    records = purges(context.adapters, stored_runs.issuer, PURGE.c.run.is_not(None))
    begun = {(record.run, record.part): record for record in records}
    objects = _objects_by_run(context)

    def plan(run_id: RunId) -> PurgePlan:
        run = stored_runs.run(run_id)
        closed = known.unread_state(run.id)
        return _plan_run(_Candidate(context, run, objects.get(run.id, []), closed, begun))

    plans = concurrently(plan, stored_runs.ids)
    due = [*chain.from_iterable(plan.lots for plan in plans), *_links_of_no_run(context)]
    return PurgePlan(
        lots=_counted(context, due),
        kept=tuple(chain.from_iterable(plan.kept for plan in plans)),
        unknown=tuple(chain.from_iterable(plan.unknown for plan in plans)),
        leftovers=tuple(_leftovers(context, cleaner)),
        hides=cleaner.hides(),
    )


def _objects_by_run(context: IssuerContext) -> dict[str, list[Entry]]:
    """Return the objects of each run."""
    prefix = runs(context.issuer.issuer)
    by_run = defaultdict[str, list[Entry]](list)
    for entry in context.adapters.store.keys(prefix):
        by_run[entry.key.removeprefix(prefix).partition("/")[0]].append(entry)
    return by_run


def purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Delete what is due and return it, as `plan_purge` would.

    A run that was planned and never committed is abandoned first, so that nothing resumes it
    meanwhile.
    """
    plan = plan_purge(context, cleaner)
    # a missing right to delete shows here, before any record is written; no such object exists
    if plan.lots:
        cleaner.delete(f"{runs(context.issuer.issuer)}purge")
    deleted: list[PurgeUnit] = []
    # what was begun first: so only the newest record can be of a part that is not deleted whole
    for unit in sorted(plan.lots, key=lambda unit: not unit.resumed):
        if unit.abandons and not _ensure_abandoned(context, unit):
            continue
        _delete(context, cleaner, unit)
        deleted.append(unit)
    concurrently(cleaner.discard, plan.leftovers)
    for finish_erasures in hooks("finish_erasures"):
        finish_erasures(context, cleaner)
    return plan._replace(lots=tuple(deleted))


def _delete(context: IssuerContext, cleaner: Cleaner, unit: PurgeUnit) -> None:
    """Record a unit, unless that is done, and delete it."""
    if not unit.resumed:
        _record_purge(context, unit)
    for before_purge in hooks("before_purge"):
        before_purge(context, {entry.key for entry in unit.entries})
    if unit.record.part == "ledger" and unit.record.run:
        purge_answers(context.adapters, context.issuer.issuer, unit.record.run)
    concurrently(lambda entry: cleaner.delete(entry.key), unit.entries)


def _counted(context: IssuerContext, units: Sequence[PurgeUnit]) -> tuple[PurgeUnit, ...]:
    """Return units with the cardholders who leave the book with them, which each record says."""
    adapters = context.adapters
    begun_now = [unit for unit in units if unit.record.part == "ledger" and not unit.resumed]
    ledgers = [Ledger(unit.record.run, frozenset(unit.singles)) for unit in begun_now]
    today = local_day(adapters.now(), context.issuer.time_zone)
    counts = removals(adapters, context.issuer.issuer, today, ledgers)
    in_turn = iter(counts)
    return tuple(
        unit._replace(record=unit.record.model_copy(update={"removed": next(in_turn)}))
        if unit in begun_now
        else unit
        for unit in units
    )


def _record_purge(context: IssuerContext, unit: PurgeUnit) -> None:
    """Record that a unit is purged; the single links that go with it go in the same act."""
    record = unit.record
    run = record.run or None

    def work(act: Act) -> None:
        add_purge(act, record)
        if record.part == "ledger":
            remove_singles(act, SINGLE_LINK.c.run == run if run else with_ids(unit.singles))

    enter(context.adapters, context.issuer.issuer, f"{record.part} purged", work, run=run)


def _ensure_abandoned(context: IssuerContext, unit: PurgeUnit) -> bool:
    """Abandon a run that was never committed; False where it was resumed just now, so it stays."""
    try:
        abandon(context.adapters, unit.record.run, f"never committed, {unit.record.setting}")
    except AbandonedError:  # with its other part
        return True
    except (ClaimedError, CommittedError):
        return False
    return True


def _leftovers(context: IssuerContext, cleaner: Cleaner) -> list[Entry]:
    """Return what killed writers left, in the folders that only we write to."""
    before = context.adapters.now() - OLD
    leftovers: list[Entry] = []
    # without the right to list uploads they stay until the store's own rules act
    with suppress(StoreDeniedError):
        for folder in context.adapters.store.keys(f"{context.issuer.issuer}/", shallow=True):
            if folder.key.endswith("/") and not DROPPED.match(folder.key):
                leftovers += cleaner.leftovers(folder.key, before)
    return leftovers


def _links_of_no_run(context: IssuerContext) -> Iterator[PurgeUnit]:
    """Yield the links that belong to no run and are older than a ledger may be.

    They are the single links requested from no run, and what extensions have.
    """
    now = context.adapters.now()
    term = term_of("ledger", context.issuer.retention)
    until = now - term.length
    singles = _single_links(context, until)
    shared = {"run": "", "part": "ledger", "at": now, "by": redact(context.adapters.actor)}
    objects: dict[str, Sequence[Entry]] = {}
    for purgeable in hooks("purgeable"):
        objects |= purgeable(context, until)
    of_objects = [
        (kind, [entry.modified for entry in entries], entries) for kind, entries in objects.items()
    ]
    for kind, moments, entries in (("single", list(singles.values()), ()), *of_objects):
        if not moments:
            continue
        record = Purged(
            **shared,
            since=max(moments),
            setting=term.setting,
            objects={kind: len(moments)},
            bytes=sum(entry.size for entry in entries),
        )
        yield PurgeUnit(record, tuple(entries), singles=() if entries else tuple(singles))


def _single_links(context: IssuerContext, until: datetime) -> dict[str, datetime]:
    """Return the requests of no run that were answered so long ago, by id, and when.

    Not those whose link can still be opened.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    column = SINGLE_LINK.c
    is_old = column.answered_at <= until
    cannot_be_opened = or_(column.expires_on.is_(None), column.expires_on < today)
    singles = prompted_singles(context.adapters, context.issuer.issuer, is_old, cannot_be_opened)
    return {single.id: single.answered.at for single in singles if single.answered}


@dataclass
class _Candidate:
    """A run that may be purged, its objects, and its state, which is read when it is asked for.

    `closed`: its figures, by which it is judged instead. `begun`: the purges by run and part.
    """

    context: IssuerContext
    run: StoredRun
    entries: Sequence[Entry]
    closed: ClosedRun | None
    begun: Mapping[tuple[str, Part], Purged]

    @property
    def status(self) -> RunStatus:
        """Where its rows are, and its verdict."""
        return self.closed.status(self.run.id) if self.closed is not None else self.run.status

    @read_once
    def state(self) -> RunState:
        """What is still open in the run, and since when nothing is."""
        if self.closed is not None:
            return closed_state(self.closed, self.run, self.entries)
        return state_of(self.context, self.run, self.entries)

    def verdict(self, part: Part) -> Kept | None:
        """Return why a part stays, None where it is due."""
        kept = self._kept_by_day(part)
        return kept if kept is not None else self._judged_as(part, self.state)

    def _kept_by_day(self, part: Part) -> Kept | None:
        """Return that its business date alone keeps a young run: little is read of it."""
        unread = RunState(datetime.combine(self.run.keys.run.day, time(), UTC))
        kept = self._judged_as(part, unread)
        # all of an abandoned run goes with its chunks
        is_old = kept is not None and not self._judged_as("chunks", unread)
        if is_old and self.closed is None and isinstance(self.run.end, Abandoned):
            return None
        return kept

    def _judged_as(self, part: Part, state: RunState) -> Kept | None:
        return verdict(part, state, self.context.issuer.retention, self.context.adapters.now())


def _plan_run(candidate: _Candidate) -> PurgePlan:
    """Return what is due of a run, and what is kept: all where a document is unreadable."""
    run = candidate.run
    by_part = objects_by_part(run.keys, candidate.entries)
    due: list[PurgeUnit] = []
    kept: list[Kept] = []
    try:
        for part in PARTS:
            if by_part[part]:
                judged = _judge(candidate, part, tuple(by_part[part]))
                if isinstance(judged, PurgeUnit):
                    due.append(judged)
                else:
                    kept.append(judged)
    except ConflictError as error:
        why = f"unreadable: {error.fields['key']}"
        return PurgePlan(kept=tuple(Kept(why, run=run.id, part=part) for part in PARTS))
    unknown = sorted(redact(entry.key) for entry in by_part[None])
    return PurgePlan(tuple(due), tuple(kept), tuple(unknown))


def _judge(candidate: _Candidate, part: Part, entries: tuple[Entry, ...]) -> PurgeUnit | Kept:
    """Decide on a part of a run, these of its objects; one whose purge was begun is due."""
    run = candidate.run
    begun = candidate.begun.get((run.id, part))
    if begun is not None:
        return PurgeUnit(begun, entries, resumed=True)
    kept = candidate.verdict(part)
    if kept is not None:
        return kept._replace(run=run.id, part=part)
    is_unfinished = candidate.state.end == "never"
    record = _record(candidate, part, entries)
    return PurgeUnit(record, entries, abandons=is_unfinished)


def _record(candidate: _Candidate, part: Part, entries: Sequence[Entry]) -> Purged:
    context = candidate.context
    run = candidate.run
    state = candidate.state
    is_closed = candidate.closed is not None
    has_report = is_closed or run.summary is not None or state.end != "committed"
    folders = (entry.key.removeprefix(run.keys.base).rpartition("/")[0] for entry in entries)
    return Purged(
        run=run.id,
        part=part,
        at=context.adapters.now(),
        by=redact(context.adapters.actor),
        since=state.since,
        setting=term_of(part, context.issuer.retention, state.end).setting,
        objects=dict(Counter(folder or "." for folder in folders)),
        bytes=sum(entry.size for entry in entries),
        verdict=candidate.status.state if has_report else "cancelled",
        rows={fate: getattr(candidate.status, fate) for fate in FIGURES},
    )
