"""The history of a run, read from the immutable objects it left: who, when, which object, how many, what outcome.

Nothing is written for it: plan, claims, events, records and manifest are the audit trail, each created once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from flows.runs.chains import records
from flows.runs.claim import IN_PROCESS
from flows.runs.documents import UnknownRunError, keys_of, read_end, read_plan, read_purged
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import Store, read
from flows.runs.versions import read_events
from flows.submissions.plan import dismissals
from schemas.records import PARTS, Abandoned, Closing, Reseal


class HistoryEvent(NamedTuple):
    """One thing that happened: when (ISO), what, by whom (empty where the object does not say), and its facts."""

    at: str
    what: str
    by: str
    facts: dict[str, Any]


def history(store: Store, run: str) -> list[HistoryEvent]:
    """Return everything that happened to a run, oldest first; UnknownRunError where no run has that id."""
    keys = keys_of(run)
    noted = read_events(store, list(store.keys(keys.events)))
    events = (HistoryEvent(event.pop("at"), event.pop("what"), event.pop("by"), event) for event in noted)
    found = [*_planned(store, keys), *_claimed(store, keys), *events, *_ended(store, keys)]
    found += _records(store, keys)
    if not found:
        raise UnknownRunError(run=run)
    return sorted(found, key=lambda one: datetime.fromisoformat(one.at))


def _planned(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    plan = read_plan(store, keys)
    if plan is not None:
        source = {"extract": plan.source.key, "version": plan.source.version, "sha256": plan.source.sha256}
        facts = {"as_of": str(plan.as_of), "settings": plan.settings_sha256, "sealed to": list(plan.recipients)}
        why = {"reason": plan.reason} if plan.reason else {}
        yield HistoryEvent(
            _written(store, keys.plan), "planned", "", {**source, "bytes": plan.source.size, **facts, **why}
        )


def _claimed(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    """Yield who claimed the run and who gave it back; renewals are left out."""
    holder = ""  # empty once the claim was given back
    for claim in read_events(store, list(store.keys(keys.claims))):
        since, until = (datetime.fromisoformat(claim[name]) for name in ("since", "until"))
        returned = until <= since
        if returned or claim["holder"] != holder:
            name = claim["holder"].partition(IN_PROCESS)[0]
            yield HistoryEvent(since.isoformat(), "claim given back" if returned else "claimed", name, {})
        holder = "" if returned else claim["holder"]


def _ended(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    end = read_end(store, keys)
    if isinstance(end, Abandoned):
        yield HistoryEvent(end.at.isoformat(), "abandoned", end.by, {"reason": end.reason})
    elif end is not None:
        rows = end.counts.model_dump(exclude={"lines"}, exclude_none=True)
        sha256 = digest(read(store, keys.manifest))
        facts = {**rows, "chunks": len(end.chunks), "sha256": sha256}
        yield HistoryEvent(_written(store, keys.manifest), "manifest written", "", facts)


def _records(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    """Yield what was added after the commit: breaks closed, chunks sealed anew, extract dismissed, parts purged."""
    facts: dict[str, Any]
    for closing in records(store, keys.closed, Closing):
        facts = {"break": closing.name, "place": closing.place, "rows": closing.rows, "reason": closing.reason}
        yield HistoryEvent(closing.at.isoformat(), f"break {closing.what}", closing.by, facts)
    for reseal in records(store, keys.reseals, Reseal):
        facts = {"chunks": [one.name for one in reseal.chunks], "sealed to": list(reseal.recipients)}
        yield HistoryEvent(reseal.at.isoformat(), "sealed anew", reseal.by, {**facts, "reason": reseal.reason})
    plan = read_plan(store, keys)
    for one in dismissals(store, keys.run.issuer, plan.source.sha256) if plan else ():
        facts = {"extract": one.key, "reason": one.reason}
        yield HistoryEvent(one.at.isoformat(), f"extract {one.what}", one.by, facts)
    for part in PARTS:
        gone = read_purged(store, keys, part)
        if gone is not None:
            facts = {"objects": sum(gone.objects.values()), "bytes": gone.bytes, "setting": gone.setting}
            yield HistoryEvent(gone.at.isoformat(), f"{part} purged", gone.by, facts)


def _written(store: Store, key: str) -> str:
    with store.open(key) as source:
        return source.entry.modified.isoformat()
