"""Purge what is due by the issuer's retention; look first, and delete exactly what was looked at.

A record is written, create-only, before the first delete of a part: killed after it, the next purge finishes. Objects
go by keys that were listed and recognised, never by prefix; what is not ours is named and stays.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.core.errors import CardlinkError
from flows.core.names import RunId, RunKeys, probes
from flows.core.ports import Entry, Store, Sweeper
from flows.core.redaction import redact
from flows.core.run import retention
from flows.core.run.planning import canonical
from flows.core.run.retention import State
from flows.steps.edges import IssuerEdges, read
from flows.steps.outbox import outbox
from flows.steps.purged import read_purged
from flows.steps.runs import read_manifest, read_summary, run_ids
from flows.steps.sweep import OLD
from schemas.purged import PARTS, Part, Purged

READERS = 16  # runs looked at, and objects deleted, at a time
PROBE = timedelta(days=1)  # no race probe takes as long
_PROBE = re.compile(r"[0-9a-f]{16}/\d")


class Lot(NamedTuple):
    """One part of a run that is due: its record, and the objects that go; `resumed` where the record stood already."""

    keys: RunKeys
    record: Purged
    entries: tuple[Entry, ...]
    resumed: bool = False


class Kept(NamedTuple):
    """One part of a run that stays, and why."""

    run: str
    part: Part
    why: str


class Due(NamedTuple):
    """What a purge deletes, what it keeps, what it does not know, and whether the store only hides what is deleted.

    `leftovers` are half-written files and uploads never completed, `temporary` what race probes left.
    """

    lots: tuple[Lot, ...]
    kept: tuple[Kept, ...]
    unknown: tuple[str, ...]
    leftovers: tuple[Entry, ...]
    temporary: tuple[Entry, ...]
    before: datetime
    hides: bool | None = None


class _Look(NamedTuple):
    lots: list[Lot]
    kept: list[Kept]
    unknown: list[str]


def look(edges: IssuerEdges, sweeper: Sweeper) -> Due:
    """Return what of an issuer is due to go and why the rest is kept; nothing is changed."""
    store, issuer, now = edges.edges.store, edges.issuer.issuer, edges.edges.now()
    with ThreadPoolExecutor(READERS) as readers:
        looks = list(readers.map(lambda run: _look(edges, run), run_ids(store, issuer)))
    return Due(
        tuple(lot for one in looks for lot in one.lots),
        tuple(kept for one in looks for kept in one.kept),
        tuple(key for one in looks for key in one.unknown),
        tuple(_leftovers(sweeper, issuer, now - OLD)),
        tuple(_probes(store, issuer, now - PROBE)),
        now - OLD,
        sweeper.hides(),
    )


def purge(edges: IssuerEdges, sweeper: Sweeper) -> Due:
    """Delete what is due and return it, as `look` would have."""
    due = look(edges, sweeper)
    with ThreadPoolExecutor(READERS) as deleters:
        for lot in due.lots:
            if not lot.resumed:
                edges.edges.store.create(lot.keys.purged(lot.record.part), canonical(lot.record))
            list(deleters.map(lambda entry: sweeper.delete(entry.key), lot.entries))
        list(deleters.map(lambda entry: sweeper.delete(entry.key), due.temporary))
    if due.leftovers:
        sweeper.sweep(f"{edges.issuer.issuer}/", due.before)
    return due


def _probes(store: Store, issuer: str, before: datetime) -> Iterator[Entry]:
    """Yield what race probes left behind whose process was killed, or could not delete."""
    for entry in store.keys(probes(issuer)):
        if _PROBE.fullmatch(entry.key.removeprefix(probes(issuer))) and entry.modified < before:
            yield entry


def _leftovers(sweeper: Sweeper, issuer: str, before: datetime) -> Iterator[Entry]:
    with suppress(CardlinkError):  # a store that may not list uploads keeps them: its own rules end them
        yield from sweeper.leftovers(f"{issuer}/", before)


def _look(edges: IssuerEdges, run: RunId) -> _Look:
    """Look at one run: every object of it, and of each part whether it is due."""
    keys = RunKeys(run)
    entries = list(edges.edges.store.keys(keys.base))
    parts = {entry.key: retention.part_of(keys, entry.key) for entry in entries}
    look = _Look([], [], [key for key, part in parts.items() if part is None])
    for part in PARTS:
        mine = tuple(entry for entry in entries if parts[entry.key] == part and entry.key != _last_claim(keys, entries))
        found = _judge(edges, keys, part, entries, mine) if mine else None
        if isinstance(found, Lot):
            look.lots.append(found)
        elif found is not None:
            look.kept.append(found)
    return look


def _judge(
    edges: IssuerEdges, keys: RunKeys, part: Part, entries: Sequence[Entry], mine: tuple[Entry, ...]
) -> Lot | Kept:
    """Tell whether a part of a run, these objects of `entries`, is due; one that was begun is."""
    store, settings, now = edges.edges.store, edges.issuer.retention, edges.edges.now()
    record = read_purged(store, keys, part)
    if record is not None:
        return Lot(keys, record, mine, resumed=True)
    found = retention.too_young(part, keys.run, settings, now)
    if found is None:
        state = _state(edges, keys, entries)
        found = retention.verdict(part, state, settings, now)
        if found.due:
            return Lot(keys, _record(edges, keys, part, state, mine), mine)
    return Kept(str(keys.run), part, found.why)


def _state(edges: IssuerEdges, keys: RunKeys, entries: Sequence[Entry]) -> State:
    store = edges.edges.store
    manifest, summary = read_manifest(store, keys), read_summary(store, keys)
    if manifest is None:
        return State(keys.run, max(entry.modified for entry in entries), ("never committed",))
    items = outbox(edges.edges, str(keys.run))
    events = [json.loads(read(store, entry.key)) for entry in entries if entry.key.startswith(keys.events)]
    told = retention.still_open(items, summary, _awaiting(store, keys) if summary else {})
    if summary is not None:
        told += retention.open_breaks(summary)
    if _stale(keys, entries):
        told.append("results newer than its report")
    return State(
        keys.run,
        retention.last_answer(min((item.clock for item in items), default=_written(keys, entries)), events),
        tuple(told),
        retention.links_until(summary) if summary else None,
    )


def _awaiting(store: Store, keys: RunKeys) -> dict[int, int]:
    """Return the rows that wait for an answer, by chunk, as the run's report has them."""
    table = pl.read_csv(BytesIO(read(store, keys.report("chunks.csv"))), infer_schema=False)
    return dict(table.select(pl.col("chunk", "awaiting").cast(pl.UInt32)).iter_rows())


def _stale(keys: RunKeys, entries: Sequence[Entry]) -> bool:
    """Tell whether results were taken up since the report was written, by a process that was killed in between."""
    written = [entry.modified for entry in entries if entry.key == keys.report("summary.json")]
    return (
        any(entry.modified > written[0] for entry in entries if entry.key.startswith(keys.outcomes))
        if written
        else False
    )


def _last_claim(keys: RunKeys, entries: Sequence[Entry]) -> str:
    """Return the last link of the claim's chain, which stays: whoever claims the run next goes on from its number."""
    return max((entry.key for entry in entries if entry.key.startswith(keys.claims)), default="")


def _written(keys: RunKeys, entries: Sequence[Entry]) -> datetime:
    return next(entry.modified for entry in entries if entry.key == keys.manifest)


def _record(edges: IssuerEdges, keys: RunKeys, part: Part, state: State, mine: Sequence[Entry]) -> Purged:
    name, _ = retention.setting(part, edges.issuer.retention)
    told = (read_summary(edges.edges.store, keys) if part == "ledger" else None) or {}
    folders = Counter(entry.key.removeprefix(keys.base).rpartition("/")[0] or "." for entry in mine)
    return Purged(
        run=str(keys.run),
        part=part,
        at=edges.edges.now(),
        by=redact(edges.edges.actor),
        since=state.since,
        setting=name,
        objects=dict(folders),
        bytes=sum(entry.size for entry in mine),
        verdict=told.get("verdict", ""),
        rows=told.get("rows", {}),
        results=tuple(told.get("results", ())),
    )
