"""Purge what is due by the issuer's retention: plan first, then delete exactly what was planned.

A record is written, create-only, before the first delete of a part: killed after it, the next purge
finishes. Objects are deleted by keys that were listed and recognised, never by prefix; unknown
objects are named and stay. Never due is what is unsent, unanswered or a break.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from io import BytesIO
from typing import Any, Literal, NamedTuple

import polars as pl

from flows.operations.remediation import CommittedError, abandon
from flows.redaction import redact
from flows.results.attribution import sort_breaks
from flows.results.lineage import REPEATED_BY
from flows.runs import documents
from flows.runs.chunks import Item
from flows.runs.claim import OLD, ClaimedError, held
from flows.runs.closings import closed_breaks
from flows.runs.context import IssuerContext
from flows.runs.documents import read_end, read_summary
from flows.runs.errors import AbandonedError
from flows.runs.identity import canonical
from flows.runs.keys import (
    DROPPED,
    RunId,
    RunKeys,
    deliveries,
    keys_of,
    probes,
    prompted_prefix,
    purged,
    runs,
)
from flows.runs.outbox import outbox
from flows.runs.run_status import RunStatus
from flows.runs.single_links import ANSWER, answer_key
from flows.runs.store import Cleaner, ConflictError, Entry, Store, StoreDeniedError, read
from flows.runs.threads import concurrently
from flows.runs.versions import read_events
from schemas.breaks import Break
from schemas.manifest import Manifest
from schemas.records import PARTS, Abandoned, Part, Purged
from schemas.settings import Retention

KEPT: Literal["kept"] = "kept"
LEFT: Literal["left"] = "left"
# by versions that read extracts in parts
_LEFT = re.compile(r"exchanged/[0-9a-f]{16}-\d{4}-\w+\.parquet")
_KEPT = re.compile(r"plan\.json|manifest\.json|(events|reseals|closed)/[^/]+\.json")
_LEDGER = re.compile(
    r"ledger/part-(\d{4}-)?\d{5}\.parquet"
    r"|outcomes/[0-9a-f]{24}\.parquet"
    r"|seals/\d{5}-\d{3}\.json"
    r"|claims/\d{6}\.json"
    r"|selection\.parquet"
    r"|single/\d+-\d+(-answer)?\.json"
    r"|placements/(part-(\d{4}-)?\d{5}\.parquet|claims/\d{6}\.json"
    r"|messages/part-(\d{4}-)?\d{5}/\d{9}-\d{8}T\d{12}-[0-9a-f]{8}\.json)"
    r"|report/((rejects|held|errors|chunks|awaiting|breaks|questions|links(-\d{5})?)\.csv|summary\.json|audit\.zip|report\.(html|xlsx)"
    r"|(rows|links)/part-(\d{4}-)?\d{5}\.parquet)"
)
End = Literal["committed", "abandoned", "never"]


class State(NamedTuple):
    """The state of a run: when something last happened to it, and what is still open, in words.

    `links_until` is the last day one of its links can be opened. `end` is how it ended: an abandoned run has neither
    answers nor cardholders, one never committed must be abandoned before it is deleted.
    """

    since: datetime
    open: tuple[str, ...] = ()
    links_until: date | None = None
    end: End = "committed"


def part_of(keys: RunKeys, key: str) -> Part | Literal["kept", "left"] | None:
    """Return the part of a run that an object belongs to: KEPT for good, LEFT by workers, None for
    what is not ours.
    """
    name = key.removeprefix(keys.base)
    if re.fullmatch(rf"(chunks|sealed/\d+)/{keys.run}-\d{{5}}\.[a-z0-9.]+", name):
        return "chunks"
    if _LEDGER.fullmatch(name):
        return "ledger"
    return KEPT if _KEPT.fullmatch(name) else LEFT if _LEFT.fullmatch(name) else None


def verdict(
    part: Part, state: State, settings: Retention, now: datetime
) -> tuple[str, date | None] | None:
    """Return why a part of a run stays, and the day it is due where only its age keeps it; None
    where it is due.

    Anything open in the run keeps all of it.
    """
    name, length = setting(part, settings, state.end)
    if state.open:
        return "; ".join(state.open), None
    if (due := state.since + length) > now:
        return f"{name}: not before {due:%Y-%m-%d}", due.date()
    if part == "ledger" and state.links_until is not None and state.links_until >= now.date():
        return f"it has links valid until {state.links_until}", state.links_until
    return None


def setting(part: Part, settings: Retention, end: End = "committed") -> tuple[str, timedelta]:
    """Return the setting that decides on a part, as written in the TOML, and its length.

    An abandoned run goes whole with its chunks; one that never ended stays as long as a ledger
    does.
    """
    decides = part if end == "committed" else "chunks" if end == "abandoned" else "ledger"
    days = settings.chunks_days if decides == "chunks" else settings.ledger_days
    return f"{decides}_days = {days}", timedelta(days=days)


def open_reasons(
    items: Collection[Item], awaiting: Mapping[int, int], breaks: Sequence[Break], *, closed: bool
) -> list[str]:
    """Return what is still open in a committed run, in words.

    `awaiting` has the rows without an answer, by chunk: those of an answered chunk are open unless an operator
    `closed` a break of the run, since then they need no answer. A cancelled chunk expects none.
    """
    states = Counter(item.state for item in items)
    answered = {item.chunk.number for item in items if item.state == "answered"}
    lacking = 0 if closed else sum(rows for chunk, rows in awaiting.items() if chunk in answered)
    reported = {
        "chunks not uploaded": states["waiting"],
        "chunks held": states["held"],
        "chunks without an answer": states["uploaded"],
        "rows without an answer": lacking,
        **{f"rows in break {one.name}": one.rows for one in breaks},
    }
    return [
        f"{number:,} {what}"
        for what, number in reported.items()
        if number or what.startswith("rows in break")
    ]


def last_answer(committed: datetime, events: Iterable[Mapping[str, Any]]) -> datetime:
    """Return when a run was last answered or its chunks cancelled, by its events.

    A result file counts from its first event: an unattributed one is ingested again and again.
    """
    first: dict[str, datetime] = {}
    for event in events:
        if event["what"] in ("committed", "answered", "cancelled"):
            at = datetime.fromisoformat(event["at"])
            for name in event.get("digests") or [event["at"]]:
                first[name] = min(at, first.get(name, at))
    return max(first.values(), default=committed)


def state_of(context: IssuerContext, keys: RunKeys, entries: Sequence[Entry]) -> State:
    """Return the state of a run that has these objects."""
    end = read_end(context.adapters.store, keys)
    if isinstance(end, Manifest):
        state = _committed(context, keys, entries)
        return (
            state._replace(open=(*state.open, "written by a newer cardlink"))
            if end.newer
            else state
        )
    holder = held(context.adapters.store, keys.claims, context.adapters.now())
    working = (f"claimed by {holder.holder}",) if holder else ()
    if isinstance(end, Abandoned):
        return State(end.at, working, end="abandoned")
    return State(max(entry.modified for entry in entries), working, end="never")


def _committed(context: IssuerContext, keys: RunKeys, entries: Sequence[Entry]) -> State:
    store, summary = context.adapters.store, read_summary(context.adapters.store, keys)
    items = outbox(context.adapters, str(keys.run))
    events = read_events(store, [entry for entry in entries if entry.key.startswith(keys.events)])
    written = {entry.key: entry.modified for entry in entries}
    committed = min((item.clock for item in items), default=written[keys.manifest])
    since = last_answer(committed, events)
    if summary is None:  # a run that was cancelled as a whole never has one
        lacks = ["no report yet"] if any(item.state == "answered" for item in items) else []
        return State(since, (*open_reasons(items, {}, (), closed=False), *lacks))
    breaks = [Break(**{name: one[name] for name in Break._fields}) for one in summary["breaks"]]
    chunks = pl.read_csv(BytesIO(read(store, keys.report("chunks.csv"))), infer_schema=False)
    awaiting = dict(chunks.select(pl.col("chunk", "awaiting").cast(pl.UInt32)).iter_rows())
    closings = closed_breaks(store, keys)
    still, _ = sort_breaks(breaks, closings)
    reasons = open_reasons(
        items, awaiting, [one for one in still if not one.notice], closed=bool(closings)
    )
    until = max(_links_until(store, keys, summary), default=None)
    return State(since, (*reasons, *_stale_report_notes(keys, entries, summary)), until)


def _links_until(store: Store, keys: RunKeys, summary: Mapping[str, Any]) -> Iterator[date]:
    """Yield the last day on which links of a run, and of the runs that resent its rows, are valid.

    The extract still has a corrected row as this run sent it: without this run's ledger it would
    seem changed.
    """
    # a link without a date has expired before any ledger is due
    yield from (date.fromisoformat(day) for day in summary["expires"] if day)
    for entry in list(store.keys(keys.events)):
        found = REPEATED_BY.search(entry.key)
        later = keys_of(found[1]) if found else None
        reported = read_summary(store, later) if later else None
        if later is not None and reported is not None:
            yield from _links_until(store, later, reported)


def _stale_report_notes(
    keys: RunKeys, entries: Sequence[Entry], summary: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what the report does not show: results newer than it, breaks beyond its list,
    unanswered single links.
    """
    written = next(entry.modified for entry in entries if entry.key == keys.report("summary.json"))
    if any(entry.modified > written for entry in entries if entry.key.startswith(keys.outcomes)):
        yield "results newer than its report"
    if summary["more_breaks"] and not summary["breaks"][-1]["notice"]:  # notices are listed last
        yield "more breaks than the report lists"
    asked = {entry.key for entry in entries if entry.key.startswith(keys.singles)}
    if unknown := [
        key for key in asked if not key.endswith(ANSWER) and answer_key(key) not in asked
    ]:
        yield f"{len(unknown)} single links with unknown outcome"


DEAD = timedelta(days=1)  # longer than any race probe or run takes
_LINKS = re.compile(r"/\d{6}/links(-\d{5})?\.(csv|parquet)$")


class PurgeUnit(NamedTuple):
    """What is deleted together, usually a part of a run: its objects, the record of it and the
    record's key.

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
    """What a purge deletes, what it keeps, what it does not know, and whether the store only hides
    what is deleted.

    `leftovers` are half-written files and uploads never completed; `temporary` are objects of race probes and
    of the workers of a run.
    """

    lots: tuple[PurgeUnit, ...]
    kept: tuple[KeptPart, ...]
    unknown: tuple[str, ...]
    leftovers: tuple[Entry, ...]
    temporary: tuple[Entry, ...]
    hides: bool | None = None


def plan_purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Return what of an issuer is due for deletion and why the rest is kept; nothing is changed."""
    store, issuer, now = context.adapters.store, context.issuer.issuer, context.adapters.now()
    found = concurrently(lambda run: _inspect_run(context, run), documents.run_ids(store, issuer))
    parts = [part for inspected, _, _ in found for part in inspected]
    probe = re.compile(rf"{probes(issuer)}[0-9a-f]{{16}}/\d")
    temporary = [entry for _, _, left in found for entry in left]
    temporary += (entry for entry in store.keys(probes(issuer)) if probe.fullmatch(entry.key))
    folders = (entry.key for entry in store.keys(f"{issuer}/", shallow=True))
    leftovers = list[Entry]()
    # without the right to list uploads they stay until the store's own rules act
    with suppress(StoreDeniedError):
        # there only we write
        for folder in (one for one in folders if one.endswith("/") and not DROPPED.match(one)):
            leftovers += cleaner.leftovers(folder, now - OLD)
    return PurgePlan(
        (*(part for part in parts if isinstance(part, PurgeUnit)), *_links_of_no_run(context)),
        tuple(part for part in parts if isinstance(part, KeptPart)),
        tuple(key for _, unknown, _ in found for key in unknown),
        tuple(leftovers),
        tuple(entry for entry in temporary if entry.modified < now - DEAD),
        cleaner.hides(),
    )


def purge(context: IssuerContext, cleaner: Cleaner) -> PurgePlan:
    """Delete what is due and return it, as `plan_purge` would.

    A run that was planned and never committed is abandoned first, so that nothing resumes it
    meanwhile.
    """
    due = plan_purge(context, cleaner)
    # a missing right to delete shows here, before any record is written; no such object exists
    if due.lots:
        cleaner.delete(f"{runs(context.issuer.issuer)}purge")
    done = list[PurgeUnit]()
    for lot in due.lots:
        try:
            if lot.abandons:
                abandon(context.adapters, lot.record.run, f"never committed, {lot.record.setting}")
        except AbandonedError:  # with its other part
            pass
        except (ClaimedError, CommittedError):  # it was resumed just now, so it stays
            continue
        if not lot.resumed:
            context.adapters.store.create(lot.key, canonical(lot.record))
        concurrently(lambda entry: cleaner.delete(entry.key), lot.entries)
        done.append(lot)
    concurrently(lambda entry: cleaner.delete(entry.key), due.temporary)
    concurrently(cleaner.discard, due.leftovers)
    return due._replace(lots=tuple(done))


def _links_of_no_run(context: IssuerContext) -> Iterator[PurgeUnit]:
    """Yield the single links requested from no run, and the delivered links, that are older than a
    ledger may be.
    """
    store, issuer, now = context.adapters.store, context.issuer.issuer, context.adapters.now()
    name, length = setting("ledger", context.issuer.retention)
    asked = {
        entry.key: entry
        for entry in store.keys(prompted_prefix(issuer))
        if entry.modified + length <= now
    }
    answers = {key: answer for key in asked if (answer := asked.get(answer_key(key)))}
    sent = [
        entry
        for entry in store.keys(deliveries(issuer))
        if _LINKS.search(entry.key) and entry.modified + length <= now
    ]
    single = [one for key, answer in answers.items() for one in (asked[key], answer)]
    for kind, mine in (("single", single), ("deliveries", sent)):
        if mine:
            since, size = max(entry.modified for entry in mine), sum(entry.size for entry in mine)
            record = Purged(
                run="", part="ledger", at=now, by=redact(context.adapters.actor), since=since, setting=name,
                objects={kind: len(mine)}, bytes=size,
            )  # fmt: skip
            yield PurgeUnit(
                f"{purged(issuer)}{kind}/{now:%Y%m%dT%H%M%S%f}.json", record, tuple(mine)
            )


def _inspect_run(
    context: IssuerContext, run: RunId
) -> tuple[list[PurgeUnit | KeptPart], list[str], list[Entry]]:
    """Return a run's parts, due or kept (all where a document is unreadable), unknown keys, what
    its workers left.
    """
    keys = RunKeys(run)
    entries = list(context.adapters.store.keys(keys.base))
    # the last link of the claim's chain stays: the next claim continues from its number
    last_claim = max(
        (entry.key for entry in entries if entry.key.startswith(keys.claims)), default=""
    )
    found = defaultdict[str | None, list[Entry]](list)
    for entry in entries:
        found[part_of(keys, entry.key) if entry.key != last_claim else KEPT].append(entry)
    try:
        parts = [
            _judge(context, keys, part, entries, tuple(found[part]))
            for part in PARTS
            if found[part]
        ]
    except ConflictError as error:
        return (
            [KeptPart(str(run), part, f"unreadable: {error.fields['key']}") for part in PARTS],
            [],
            [],
        )
    return parts, sorted(redact(entry.key) for entry in found[None]), found[LEFT]


def _judge(
    context: IssuerContext,
    keys: RunKeys,
    part: Part,
    entries: Sequence[Entry],
    mine: tuple[Entry, ...],
) -> PurgeUnit | KeptPart:
    """Decide on a part of a run, `mine` of its `entries`; one whose purge was begun is due."""
    store, settings, now = context.adapters.store, context.issuer.retention, context.adapters.now()
    record = documents.read_purged(store, keys, part)
    if record is not None:
        return PurgeUnit(keys.purged(part), record, mine, resumed=True)
    # its day alone keeps a young run: little is read of it
    unread = State(datetime.combine(keys.run.day, time(), UTC))
    kept = verdict(part, unread, settings, now)
    # all of an abandoned run goes with its chunks
    if not kept or (
        not verdict("chunks", unread, settings, now)
        and isinstance(read_end(store, keys), Abandoned)
    ):
        state = state_of(context, keys, entries)
        kept = verdict(part, state, settings, now)
        if not kept:
            record = _record(context, keys, part, state, mine)
            return PurgeUnit(keys.purged(part), record, mine, abandons=state.end == "never")
    return KeptPart(str(keys.run), part, *kept)


def _record(
    context: IssuerContext, keys: RunKeys, part: Part, state: State, mine: Sequence[Entry]
) -> Purged:
    status = documents.run_status(context.adapters.store, keys.run)
    reported = read_summary(context.adapters.store, keys) is not None or state.end != "committed"
    folders = Counter(entry.key.removeprefix(keys.base).rpartition("/")[0] or "." for entry in mine)
    rows = {name: getattr(status, name) for name in RunStatus._fields[2:-1]}
    name, _ = setting(part, context.issuer.retention, state.end)
    return Purged(
        run=str(keys.run), part=part, at=context.adapters.now(), by=redact(context.adapters.actor), since=state.since,
        setting=name, objects=dict(folders), bytes=sum(entry.size for entry in mine),
        verdict=status.state if reported else "cancelled", rows=rows,
    )  # fmt: skip
