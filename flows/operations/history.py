"""What happened to a run, told from the immutable objects it left: who, when, which object, how many, what outcome.

Nothing is written for it: plan, claims, events and manifest are the audit trail, each created once, never changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from flows.runs.chains import records
from flows.runs.documents import UnknownRunError, keys_of, read_end, read_plan, read_purged
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import Store, read
from schemas.records import PARTS, Abandoned, Closing, Reseal


class HistoryEvent(NamedTuple):
    """One thing that happened: when (ISO), what, by whom (empty where the object does not say), and its facts."""

    at: str
    what: str
    by: str
    facts: dict[str, Any]


class _Claim(NamedTuple):
    holder: str
    since: datetime
    until: datetime  # `since` again where it was given back


def history(store: Store, run: str) -> list[HistoryEvent]:
    """Return everything that happened to a run, oldest first; UnknownRunError where no run has that id."""
    keys = keys_of(run)
    built = [*_planned(store, keys), *_claimed(store, keys), *_events(store, keys), *_manifest(store, keys)]
    found = [*built, *_closed(store, keys), *_resealed(store, keys), *_purged(store, keys)]
    if not found:
        raise UnknownRunError(run=run)
    return sorted(found, key=lambda one: datetime.fromisoformat(one.at))


def _planned(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    plan = read_plan(store, keys)
    if plan is None:
        return
    for entry in list(store.keys(keys.plan)):
        source = {"extract": plan.source.key, "version": plan.source.version, "sha256": plan.source.sha256}
        facts = {"as_of": str(plan.as_of), "settings": plan.settings_sha256, "sealed to": list(plan.recipients)}
        why = {"reason": plan.reason} if plan.reason else {}
        yield HistoryEvent(_iso(entry.modified), "planned", "", {**source, "bytes": plan.source.size, **facts, **why})


def _claimed(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    """Yield who worked on it when: a claim taken, and given back; its renewals are left out."""
    before: _Claim | None = None
    for claim in _claims(store, keys):
        if claim.until <= claim.since:
            yield HistoryEvent(_iso(claim.since), "claim given back", claim.holder, {})
        elif before is None or before.holder != claim.holder or before.until <= before.since:
            yield HistoryEvent(_iso(claim.since), "claimed", claim.holder, {})
        before = claim


def _claims(store: Store, keys: RunKeys) -> Iterator[_Claim]:
    for entry in list(store.keys(keys.claims)):
        claim = json.loads(read(store, entry.key))
        yield _Claim(claim["holder"], *(datetime.fromisoformat(claim[name]) for name in ("since", "until")))


def _events(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    for entry in list(store.keys(keys.events)):
        event = json.loads(read(store, entry.key))
        yield HistoryEvent(event.pop("at"), event.pop("what"), event.pop("by"), event)


def _closed(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    for one in records(store, keys.closed, Closing):
        facts = {"break": one.name, "place": one.place, "rows": one.rows, "reason": one.reason}
        yield HistoryEvent(_iso(one.at), f"break {one.what}", one.by, facts)


def _resealed(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    for one in records(store, keys.reseals, Reseal):
        facts = {"chunks": [chunk.name for chunk in one.chunks], "sealed to": list(one.recipients)}
        yield HistoryEvent(_iso(one.at), "sealed anew", one.by, {**facts, "reason": one.reason})


def _manifest(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    manifest = read_end(store, keys)
    if isinstance(manifest, Abandoned):
        yield HistoryEvent(_iso(manifest.at), "abandoned", manifest.by, {"reason": manifest.reason})
        return
    if manifest is None:
        return
    for entry in list(store.keys(keys.manifest)):
        rows = manifest.counts.model_dump(exclude={"lines"}, exclude_none=True)
        sha256 = digest(read(store, keys.manifest))
        yield HistoryEvent(
            _iso(entry.modified), "manifest written", "", {**rows, "chunks": len(manifest.chunks), "sha256": sha256}
        )


def _purged(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    for part in PARTS:
        record = read_purged(store, keys, part)
        if record is not None:
            objects = {"objects": sum(record.objects.values()), "bytes": record.bytes, "setting": record.setting}
            yield HistoryEvent(_iso(record.at), f"{part} purged", record.by, objects)


def _iso(moment: datetime) -> str:
    return moment.isoformat()
