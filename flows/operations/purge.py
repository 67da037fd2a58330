"""Purge what is due by the issuer's retention: plan first, then delete exactly what was planned.

A record is written, create-only, before the first delete of a part: killed after it, the next purge finishes. Objects
are deleted by keys that were listed and recognised, never by prefix; unknown objects are named and stay.
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
from flows.runs.attempts import answer_key
from flows.runs.claim import OLD, ClaimedError
from flows.runs.context import IssuerContext
from flows.runs.documents import AbandonedError, RunStatus, read_end, read_purged, read_summary, run_ids, run_status
from flows.runs.identity import canonical
from flows.runs.keys import RunId, RunKeys, deliveries, drops, probes, prompted_prefix, purged, runs
from flows.runs.store import Cleaner, ConflictError, Entry, Store, StoreDeniedError
from schemas.records import PARTS, Abandoned, Part, Purged

READERS = 16  # runs read, and objects deleted, at a time
DEAD = timedelta(days=1)  # longer than any race probe or run takes
_LINKS = re.compile(r"/\d{6}/links(-\d{5})?\.(csv|parquet)$")
_PROBE = re.compile(r"[0-9a-f]{16}/\d")


class PurgeUnit(NamedTuple):
    """What is deleted together, usually a part of a run: its objects, the record of it and the record's key.

    `resumed` where the record exists already: a purge that was killed is finished.
    """

    key: str
    record: Purged
    entries: tuple[Entry, ...]
    resumed: bool = False
    abandons: bool = False  # a run that was never committed


class KeptPart(NamedTuple):
    """One part of a run that stays, why, and until when where only its age keeps it."""

    run: str
    part: Part
    why: str
    until: date | None = None


class PurgePlan(NamedTuple):
    """What a purge deletes, what it keeps, what it does not know, and whether the store only hides what is deleted.

    `leftovers` are half-written files and uploads never completed; `temporary` are objects of race probes and of the
    workers of a run.
    """

    lots: tuple[PurgeUnit, ...]
    kept: tuple[KeptPart, ...]
    unknown: tuple[str, ...]
    leftovers: tuple[Entry, ...]
    temporary: tuple[Entry, ...]
    before: datetime
    hides: bool | None = None


class _Inspected(NamedTuple):
    """What a purge finds in one run."""

    parts: list[PurgeUnit | KeptPart]
    unknown: list[str]
    temporary: list[Entry]


def plan_purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Return what of an issuer is due for deletion and why the rest is kept; nothing is changed."""
    store, issuer, now = context.adapters.store, context.issuer.issuer, context.adapters.now()
    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(lambda run: _inspect_run(context, run), run_ids(store, issuer)))
    parts = [part for one in found for part in one.parts]
    return PurgePlan(
        (*(part for part in parts if isinstance(part, PurgeUnit)), *_links_of_no_run(context)),
        tuple(part for part in parts if isinstance(part, KeptPart)),
        tuple(key for one in found for key in one.unknown),
        tuple(entry for folder in _ours(store, issuer) for entry in _leftovers(cleaner, folder, now - OLD)),
        (*(entry for one in found for entry in one.temporary), *_probes(store, issuer, now - DEAD)),
        now - OLD,
        cleaner.hides(),
    )


def purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Delete what is due and return it, as `plan_purge` would.

    A run that was planned and never committed is abandoned first, so that nothing resumes it meanwhile.
    """
    due = plan_purge(context, cleaner)
    if due.lots:  # a missing right to delete shows here, before any record is written; no such object exists
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
    """Abandon a run for good; False where it was resumed just now, so that it stays."""
    try:
        abandon(context.adapters, lot.record.run, f"never committed, {lot.record.setting}")
    except AbandonedError:  # with its other part
        return True
    except (ClaimedError, CommittedError):
        return False
    return True


def _ours(store: Store, issuer: str) -> list[str]:
    """Return the folders of an issuer that only we write to; half-written files elsewhere are not ours."""
    folders = [entry.key for entry in store.keys(f"{issuer}/", shallow=True) if entry.key.endswith("/")]
    return [folder for folder in folders if folder not in drops(issuer)]


def _links_of_no_run(context: IssuerContext) -> Iterator[PurgeUnit]:
    """Yield the single links requested from no run, and the delivered links, that are older than a ledger may be."""
    store, issuer, now = context.adapters.store, context.issuer.issuer, context.adapters.now()
    name, length = retention.setting("ledger", context.issuer.retention)
    asked = {entry.key: entry for entry in store.keys(prompted_prefix(issuer)) if entry.modified + length <= now}
    answers = {key: answer for key in asked if (answer := asked.get(answer_key(key)))}
    sent = [
        entry for entry in store.keys(deliveries(issuer)) if _LINKS.search(entry.key) and entry.modified + length <= now
    ]
    single = [one for key, answer in answers.items() for one in (asked[key], answer)]
    for kind, mine in (("single", single), ("deliveries", sent)):
        if mine:
            since, size = max(entry.modified for entry in mine), sum(entry.size for entry in mine)
            record = Purged(
                run="", part="ledger", at=now, by=redact(context.adapters.actor), since=since, setting=name,
                objects={kind: len(mine)}, bytes=size,
            )  # fmt: skip
            yield PurgeUnit(f"{purged(issuer)}{kind}/{now:%Y%m%dT%H%M%S%f}.json", record, tuple(mine))


def _probes(store: Store, issuer: str, before: datetime) -> Iterator[Entry]:
    """Yield the objects of race probes that were killed or could not delete them."""
    for entry in store.keys(probes(issuer)):
        if _PROBE.fullmatch(entry.key.removeprefix(probes(issuer))) and entry.modified < before:
            yield entry


def _leftovers(cleaner: Cleaner, folder: str, before: datetime) -> Iterator[Entry]:
    with suppress(StoreDeniedError):  # without the right to list uploads they stay until the store's own rules act
        yield from cleaner.leftovers(folder, before)


def _inspect_run(context: IssuerContext, run: RunId) -> _Inspected:
    """Return every part of a run with whether it is due; a run with an unreadable document stays whole."""
    try:
        return _inspect_parts(context, run)
    except ConflictError as error:
        return _Inspected([KeptPart(str(run), part, f"unreadable: {error.fields['key']}") for part in PARTS], [], [])


def _inspect_parts(context: IssuerContext, run: RunId) -> _Inspected:
    keys, now = RunKeys(run), context.adapters.now()
    entries = list(context.adapters.store.keys(keys.base))
    parts = {entry.key: retention.part_of(keys, entry.key) for entry in entries}
    temporary = [entry for entry in entries if retention.passing(keys, entry.key)]
    unknown = [redact(key) for key, part in parts.items() if part is None and not retention.passing(keys, key)]
    # the last link of the claim's chain stays: the next claim continues from its number
    last_claim = max((entry.key for entry in entries if entry.key.startswith(keys.claims)), default="")
    found = []
    for part in PARTS:
        mine = tuple(entry for entry in entries if parts[entry.key] == part and entry.key != last_claim)
        if mine:
            found.append(_judge(context, keys, part, entries, mine))
    return _Inspected(found, unknown, [entry for entry in temporary if entry.modified < now - DEAD])


def _judge(
    context: IssuerContext, keys: RunKeys, part: Part, entries: Sequence[Entry], mine: tuple[Entry, ...]
) -> PurgeUnit | KeptPart:
    """Decide on a part of a run, `mine` of its `entries`; one whose purge was begun is due."""
    store, settings, now = context.adapters.store, context.issuer.retention, context.adapters.now()
    record = read_purged(store, keys, part)
    if record is not None:
        return PurgeUnit(keys.purged(part), record, mine, resumed=True)
    found = retention.kept_by_age(part, keys.run, settings, now)
    chunks_kept = retention.kept_by_age("chunks", keys.run, settings, now)
    # all of an abandoned run goes with its chunks
    if found is None or (chunks_kept is None and isinstance(read_end(store, keys), Abandoned)):
        state = state_of(context, keys, entries)
        found = retention.verdict(part, state, settings, now)
        if found.due:
            record = _record(context, keys, part, state, found, mine)
            return PurgeUnit(keys.purged(part), record, mine, abandons=state.end == "never")
    return KeptPart(str(keys.run), part, found.why, found.until)


def _record(
    context: IssuerContext, keys: RunKeys, part: Part, state: State, found: RetentionVerdict, mine: Sequence[Entry]
) -> Purged:
    status = run_status(context.adapters.store, keys.run)
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
        verdict=status.state if reported else "cancelled",
        rows={name: getattr(status, name) for name in RunStatus._fields[2:-1]},
    )
