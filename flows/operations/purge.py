"""Purge what is due by the issuer's retention; look first, and delete exactly what was looked at.

A record is written, create-only, before the first delete of a part: killed after it, the next purge finishes. Objects
go by keys that were listed and recognised, never by prefix; what is not ours is named and stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import NamedTuple

from flows.operations import retention
from flows.operations.remediation import CommittedError, abandon
from flows.operations.retention import RetentionVerdict, State, state_of
from flows.redaction import redact
from flows.runs.claim import OLD, ClaimedError
from flows.runs.context import IssuerContext
from flows.runs.documents import AbandonedError, RunStatus, read_end, read_purged, read_summary, run_ids, run_status
from flows.runs.identity import canonical
from flows.runs.keys import (
    RunId,
    RunKeys,
    corrections,
    extracts,
    probes,
    prompted_prefix,
    purged,
    results,
    runs,
    transactions,
)
from flows.runs.links import answer_key
from flows.runs.store import Cleaner, ConflictError, Entry, Store, StoreDeniedError
from schemas.records import PARTS, Abandoned, Part, Purged

READERS = 16  # runs looked at, and objects deleted, at a time
DEAD = timedelta(days=1)  # no race probe and no night takes as long
_PROBE = re.compile(r"[0-9a-f]{16}/\d")


class PurgeUnit(NamedTuple):
    """What goes together, a part of a run as a rule: the record of it and its key, and the objects.

    `resumed` where the record stood already: a purge that was killed is finished.
    """

    key: str
    record: Purged
    entries: tuple[Entry, ...]
    resumed: bool = False
    abandons: bool = False  # of a run that was never committed


class KeptPart(NamedTuple):
    """One part of a run that stays, why, and until when where only its age keeps it."""

    run: str
    part: Part
    why: str
    until: date | None = None


class PurgePlan(NamedTuple):
    """What a purge deletes, what it keeps, what it does not know, and whether the store only hides what is deleted.

    `leftovers` are half-written files and uploads never completed, `temporary` what race probes and the workers of
    a run left for each other.
    """

    lots: tuple[PurgeUnit, ...]
    kept: tuple[KeptPart, ...]
    unknown: tuple[str, ...]
    leftovers: tuple[Entry, ...]
    temporary: tuple[Entry, ...]
    before: datetime
    hides: bool | None = None


class _Look(NamedTuple):
    lots: list[PurgeUnit]
    kept: list[KeptPart]
    unknown: list[str]
    passing: list[Entry]


def plan_purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Return what of an issuer is due to go and why the rest is kept; nothing is changed."""
    store, issuer, now = context.adapters.store, context.issuer.issuer, context.adapters.now()
    with ThreadPoolExecutor(READERS) as readers:
        looks = list(readers.map(lambda run: _inspect_run(context, run), run_ids(store, issuer)))
    passing = [entry for one in looks for entry in one.passing]
    dead = [entry for folder in _ours(store, issuer) for entry in _leftovers(cleaner, folder, now - OLD)]
    return PurgePlan(
        (*(lot for one in looks for lot in one.lots), *_prompted_links(context)),
        tuple(kept for one in looks for kept in one.kept),
        tuple(key for one in looks for key in one.unknown),
        tuple(dead),
        (*passing, *_probes(store, issuer, now - DEAD)),
        now - OLD,
        cleaner.hides(),
    )


def purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Delete what is due and return it, as `plan_purge` would have.

    A run that was planned and never committed is abandoned first, so that nobody takes it up while it goes.
    """
    due = plan_purge(context, cleaner)
    if due.lots:  # who may not delete is told so before a record says that anything went; there is no such object
        cleaner.delete(f"{runs(context.issuer.issuer)}purge")
    lots = tuple(lot for lot in due.lots if not lot.abandons or _abandon(context, lot))
    with ThreadPoolExecutor(READERS) as deleters:
        for lot in lots:
            if not lot.resumed:
                context.adapters.store.create(lot.key, canonical(lot.record))
            list(deleters.map(lambda entry: cleaner.delete(entry.key), lot.entries))
        list(deleters.map(lambda entry: cleaner.delete(entry.key), due.temporary))
    for folder in _ours(context.adapters.store, context.issuer.issuer) if due.leftovers else ():
        cleaner.clean_up(folder, due.before)
    return due._replace(lots=lots)


def _abandon(context: IssuerContext, lot: PurgeUnit) -> bool:
    """Abandon a run for good; False where somebody took it up just now, so that it stays."""
    try:
        abandon(context.adapters, lot.record.run, f"never committed, {lot.record.setting}")
    except AbandonedError:  # for its other part
        return True
    except (ClaimedError, CommittedError):
        return False
    return True


def _ours(store: Store, issuer: str) -> list[str]:
    """Return the folders of an issuer where we write; what is half written in the others is somebody else's."""
    drops = {extracts(issuer), results(issuer), corrections(issuer), transactions(issuer)}
    return [
        entry.key
        for entry in store.keys(f"{issuer}/", shallow=True)
        if entry.key.endswith("/") and entry.key not in drops
    ]


def _prompted_links(context: IssuerContext) -> Iterator[PurgeUnit]:
    """Yield the links that were asked for from no run, where all that came of them is as old as a ledger may be."""
    issuer, now = context.issuer.issuer, context.adapters.now()
    entries = {entry.key: entry for entry in context.adapters.store.keys(prompted_prefix(issuer))}
    name, length = retention.setting("ledger", context.issuer.retention)
    pairs = [(entry, entries.get(answer_key(key))) for key, entry in entries.items()]
    old = [pair for pair in pairs if pair[1] is not None and pair[1].modified + length <= now]
    mine = tuple(entry for pair in old for entry in pair if entry is not None)
    if mine:
        since, size = max(entry.modified for entry in mine), sum(entry.size for entry in mine)
        record = Purged(
            run="", part="ledger", at=now, by=redact(context.adapters.actor), since=since, setting=name,
            objects={"single": len(mine)}, bytes=size,
        )  # fmt: skip
        yield PurgeUnit(f"{purged(issuer)}single/{now:%Y%m%dT%H%M%S%f}.json", record, mine)


def _probes(store: Store, issuer: str, before: datetime) -> Iterator[Entry]:
    """Yield what race probes left behind whose process was killed, or could not delete."""
    for entry in store.keys(probes(issuer)):
        if _PROBE.fullmatch(entry.key.removeprefix(probes(issuer))) and entry.modified < before:
            yield entry


def _leftovers(cleaner: Cleaner, folder: str, before: datetime) -> Iterator[Entry]:
    with suppress(StoreDeniedError):  # who may not list uploads keeps them: the store's own rules end them
        yield from cleaner.leftovers(folder, before)


def _inspect_run(context: IssuerContext, run: RunId) -> _Look:
    """Look at one run; where a document of it is not ours, all of it stays and nobody else's waits for it."""
    try:
        return _inspect_parts(context, run)
    except ConflictError as error:
        return _Look([], [KeptPart(str(run), part, f"not to be read: {error.fields['key']}") for part in PARTS], [], [])


def _inspect_parts(context: IssuerContext, run: RunId) -> _Look:
    """Look at one run: every object of it, and of each part whether it is due."""
    keys, now = RunKeys(run), context.adapters.now()
    entries = list(context.adapters.store.keys(keys.base))
    parts = {entry.key: retention.part_of(keys, entry.key) for entry in entries}
    passing = [entry for entry in entries if retention.passing(keys, entry.key)]
    unknown = [redact(key) for key, part in parts.items() if part is None and not retention.passing(keys, key)]
    found = _Look([], [], unknown, [entry for entry in passing if entry.modified < now - DEAD])
    for part in PARTS:
        mine = tuple(entry for entry in entries if parts[entry.key] == part and entry.key != _last_claim(keys, entries))
        judged = _judge(context, keys, part, entries, mine) if mine else None
        if isinstance(judged, PurgeUnit):
            found.lots.append(judged)
        elif judged is not None:
            found.kept.append(judged)
    return found


def _judge(
    context: IssuerContext, keys: RunKeys, part: Part, entries: Sequence[Entry], mine: tuple[Entry, ...]
) -> PurgeUnit | KeptPart:
    """Tell whether a part of a run, these objects of `entries`, is due; one that was begun is."""
    store, settings, now = context.adapters.store, context.issuer.retention, context.adapters.now()
    record = read_purged(store, keys, part)
    if record is not None:
        return PurgeUnit(keys.purged(part), record, mine, resumed=True)
    found = retention.kept_by_age(part, keys.run, settings, now)
    if found is None or _is_abandoned_run(context, keys):
        state = state_of(context, keys, entries)
        found = retention.verdict(part, state, settings, now)
        if found.due:
            record = _record(context, keys, part, state, found, mine)
            return PurgeUnit(keys.purged(part), record, mine, abandons=state.end == "never")
    return KeptPart(str(keys.run), part, found.why, found.until)


def _is_abandoned_run(context: IssuerContext, keys: RunKeys) -> bool:
    """Tell whether a run is an abandoned one, which goes whole with its chunks."""
    young = retention.kept_by_age("chunks", keys.run, context.issuer.retention, context.adapters.now())
    return young is None and isinstance(read_end(context.adapters.store, keys), Abandoned)


def _last_claim(keys: RunKeys, entries: Sequence[Entry]) -> str:
    """Return the last link of the claim's chain, which stays: whoever claims the run next goes on from its number."""
    return max((entry.key for entry in entries if entry.key.startswith(keys.claims)), default="")


def _record(
    context: IssuerContext, keys: RunKeys, part: Part, state: State, found: RetentionVerdict, mine: Sequence[Entry]
) -> Purged:
    stands = run_status(context.adapters.store, keys.run)
    reported = read_summary(context.adapters.store, keys) is not None or state.end != "committed"
    folders = Counter(entry.key.removeprefix(keys.base).rpartition("/")[0] or "." for entry in mine)
    return Purged(
        run=str(keys.run),
        part=part,
        at=context.adapters.now(),
        by=redact(context.adapters.actor),
        since=state.since,
        setting=found.why,
        objects=dict(folders),
        bytes=sum(entry.size for entry in mine),
        verdict=stands.state if reported else "cancelled",
        rows={name: getattr(stands, name) for name in RunStatus._fields[2:]},
    )
