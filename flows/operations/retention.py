"""Which parts of a run are due for deletion, and why others are kept: never what is unsent, unanswered or a break."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from io import BytesIO
from typing import Any, Literal, NamedTuple

import polars as pl

from flows.results.attribution import sort_breaks
from flows.results.lineage import REPEATED_BY
from flows.runs.chunks import Item, closed_breaks, outbox
from flows.runs.claim import held
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, read_end, read_summary
from flows.runs.keys import RunId, RunKeys
from flows.runs.store import Entry, Store, read
from flows.runs.versions import read_events
from schemas.breaks import Break
from schemas.manifest import Manifest
from schemas.records import Abandoned, Part
from schemas.settings import Retention

KEPT: Literal["kept"] = "kept"
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
_UNCOMMITTED: dict[End, Part] = {"abandoned": "chunks", "never": "ledger"}

_ASKED, _REPORTED = re.compile(r"single/(\d+-\d+)\.json"), re.compile(r"single/(\d+-\d+)-answer\.json")


class State(NamedTuple):
    """The state of a run: when something last happened to it, and what is still open, in words.

    `links_until` is the last day one of its links can be opened. `end` is how it ended: an abandoned run has neither
    answers nor cardholders, one never committed must be abandoned before it is deleted.
    """

    since: datetime
    open: tuple[str, ...] = ()
    links_until: date | None = None
    end: End = "committed"


class RetentionVerdict(NamedTuple):
    """Whether a part of a run is due; `why` is what keeps it, or the setting that makes it due.

    `until` is the day it is due where only its age keeps it.
    """

    due: bool
    why: str
    until: date | None = None


def part_of(keys: RunKeys, key: str) -> Part | Literal["kept"] | None:
    """Return the part of a run that an object belongs to: KEPT for what stays for good, None for what is not ours."""
    name = key.removeprefix(keys.base)
    if re.fullmatch(rf"(chunks|sealed/\d+)/{keys.run}-\d{{5}}\.[a-z0-9.]+", name):
        return "chunks"
    if _LEDGER.fullmatch(name):
        return "ledger"
    return KEPT if _KEPT.fullmatch(name) else None


def passing(keys: RunKeys, key: str) -> bool:
    """Return whether an object was written by workers for each other, of no use once their run is over."""
    return re.fullmatch(r"exchanged/[0-9a-f]{16}-\d{4}-\w+\.parquet", key.removeprefix(keys.base)) is not None


def kept_by_age(part: Part, run: RunId, settings: Retention, now: datetime) -> RetentionVerdict | None:
    """Return the verdict where a run's business date alone keeps a part, so that little need be read, else None."""
    name, length = setting(part, settings)
    earliest = datetime.combine(run.day, time(), UTC) + length
    return _is_too_young(name, earliest) if earliest > now else None


def verdict(part: Part, state: State, settings: Retention, now: datetime) -> RetentionVerdict:
    """Return whether a part of a run is due; anything open in the run keeps all of it.

    An abandoned run goes whole with its chunks; one that never ended stays as long as a ledger does.
    """
    decides = part if state.end == "committed" else _UNCOMMITTED[state.end]
    name, length = setting(decides, settings)
    if state.open:
        return RetentionVerdict(False, "; ".join(state.open))
    if state.since + length > now:
        return _is_too_young(name, state.since + length)
    if part == "ledger" and state.links_until is not None and state.links_until >= now.date():
        return RetentionVerdict(False, f"it has links valid until {state.links_until}", state.links_until)
    return RetentionVerdict(True, name)


def _is_too_young(name: str, due: datetime) -> RetentionVerdict:
    return RetentionVerdict(False, f"{name}: not before {due:%Y-%m-%d}", due.date())


def setting(part: Part, settings: Retention) -> tuple[str, timedelta]:
    """Return the setting that decides on a part, as written in the TOML, and its length."""
    days = settings.chunks_days if part == "chunks" else settings.ledger_days
    return f"{part}_days = {days}", timedelta(days=days)


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
    return [f"{number:,} {what}" for what, number in reported.items() if number or what.startswith("rows in break")]


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
        return state._replace(open=(*state.open, "written by a newer cardlink")) if end.newer else state
    holder = held(context.adapters.store, keys.claims, context.adapters.now())
    working = (f"claimed by {holder.holder}",) if holder else ()
    if isinstance(end, Abandoned):
        return State(end.at, working, end="abandoned")
    return State(max(entry.modified for entry in entries), working, end="never")


def _committed(context: IssuerContext, keys: RunKeys, entries: Sequence[Entry]) -> State:
    store, summary = context.adapters.store, read_summary(context.adapters.store, keys)
    items = outbox(context.adapters, str(keys.run))
    events = read_events(store, [entry for entry in entries if entry.key.startswith(keys.events)])
    committed = min((item.clock for item in items), default=_written(keys.manifest, entries))
    since = last_answer(committed, events)
    if summary is None:  # a run that was cancelled as a whole never has one
        lacks = ["no report yet"] if any(item.state == "answered" for item in items) else []
        return State(since, (*open_reasons(items, {}, (), closed=False), *lacks))
    breaks = [Break(**{name: one[name] for name in Break._fields}) for one in summary["breaks"]]
    chunks = pl.read_csv(BytesIO(read(store, keys.report("chunks.csv"))), infer_schema=False)
    awaiting = dict(chunks.select(pl.col("chunk", "awaiting").cast(pl.UInt32)).iter_rows())
    closings = closed_breaks(store, keys)
    still, _ = sort_breaks(breaks, closings)
    reasons = open_reasons(items, awaiting, [one for one in still if not one.notice], closed=bool(closings))
    until = max(_links_until(store, keys, summary), default=None)
    return State(since, (*reasons, *_stale_report_notes(keys, entries, summary)), until)


def _links_until(store: Store, keys: RunKeys, summary: Mapping[str, Any]) -> Iterator[date]:
    """Yield the last day on which links of a run, and of the runs that resent its rows, are valid.

    The extract still has a corrected row as this run sent it: without this run's ledger it would seem changed.
    """
    # a link without a date has expired before any ledger is due
    yield from (date.fromisoformat(day) for day in summary["expires"] if day)
    for entry in list(store.keys(keys.events)):
        found = REPEATED_BY.search(entry.key)
        later = keys_of(found[1]) if found else None
        reported = read_summary(store, later) if later else None
        if later is not None and reported is not None:
            yield from _links_until(store, later, reported)


def _stale_report_notes(keys: RunKeys, entries: Sequence[Entry], summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the report does not show: results newer than it, breaks beyond its list, unanswered single links."""
    written = _written(keys.report("summary.json"), entries)
    if any(entry.modified > written for entry in entries if entry.key.startswith(keys.outcomes)):
        yield "results newer than its report"
    if summary["more_breaks"] and not summary["breaks"][-1]["notice"]:  # notices are listed last
        yield "more breaks than the report lists"
    asked, reported = (
        {found[1] for entry in entries if (found := name.fullmatch(entry.key.removeprefix(keys.base)))}
        for name in (_ASKED, _REPORTED)
    )
    if asked - reported:
        yield f"{len(asked - reported)} single links with unknown outcome"


def _written(key: str, entries: Sequence[Entry]) -> datetime:
    return next(entry.modified for entry in entries if entry.key == key)
