"""What is still open in a run, read from its documents: retention asks before anything of it goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any

import polars as pl

from flows.core.names import RunKeys
from flows.core.ports import Entry, Store
from flows.core.run import retention
from flows.core.run.lease import held
from flows.core.run.retention import State
from flows.steps.answers.lineage import REPEATED_BY
from flows.steps.edges import IssuerEdges, read
from flows.steps.mend.close import closed_breaks, open_breaks
from flows.steps.operate.outbox import outbox
from flows.steps.runs import keys_of, read_end, read_summary
from schemas.breaks import Break
from schemas.manifest import Manifest
from schemas.mended import Abandoned

_ASKED, _TOLD = re.compile(r"single/(\d+-\d+)\.json"), re.compile(r"single/(\d+-\d+)-answer\.json")


def state_of(edges: IssuerEdges, keys: RunKeys, entries: Sequence[Entry]) -> State:
    """Return how a run of these objects stands."""
    end = read_end(edges.edges.store, keys)
    if isinstance(end, Manifest):
        return _committed(edges, keys, entries)
    holder = held(edges.edges.store, keys.claims, edges.edges.now())
    working = (f"{holder.holder} works on it",) if holder else ()
    if isinstance(end, Abandoned):
        return State(end.at, working, end="abandoned")
    return State(max(entry.modified for entry in entries), working, end="never")


def _committed(edges: IssuerEdges, keys: RunKeys, entries: Sequence[Entry]) -> State:
    store, summary = edges.edges.store, read_summary(edges.edges.store, keys)
    items = outbox(edges.edges, str(keys.run))
    events = [json.loads(read(store, entry.key)) for entry in entries if entry.key.startswith(keys.events)]
    committed = min((item.clock for item in items), default=_written(keys.manifest, entries))
    since = retention.last_answer(committed, events)
    if summary is None:  # a run that was cancelled as a whole never has one
        lacks = ["no report yet"] if any(item.state == "answered" for item in items) else []
        return State(since, (*retention.still_open(items, {}, (), closed=False), *lacks))
    breaks = open_breaks(store, keys, _breaks(summary))
    closed = bool(closed_breaks(store, keys))
    told = retention.still_open(items, _awaiting(store, keys), breaks, closed=closed)
    return State(
        since, (*told, *_doubts(keys, entries, summary)), max(_links_until(store, keys, summary), default=None)
    )


def _links_until(store: Store, keys: RunKeys, summary: Mapping[str, Any]) -> Iterator[date]:
    """Yield until when links of a run live, and of those that repeat it.

    A corrected row stands in the extract as the repeated run has it: without that it would seem changed.
    """
    until = retention.links_until(summary)
    if until is not None:
        yield until
    for entry in list(store.keys(keys.events)):
        found = REPEATED_BY.search(entry.key)
        later = keys_of(found[1]) if found else None
        told = read_summary(store, later) if later else None
        if later is not None and told is not None:
            yield from _links_until(store, later, told)


def _breaks(summary: Mapping[str, Any]) -> list[Break]:
    return [Break(**{name: one[name] for name in Break._fields}) for one in summary["breaks"]]


def _awaiting(store: Store, keys: RunKeys) -> dict[int, int]:
    """Return the rows that wait for an answer, by chunk, as the run's report has them."""
    table = pl.read_csv(BytesIO(read(store, keys.report("chunks.csv"))), infer_schema=False)
    return dict(table.select(pl.col("chunk", "awaiting").cast(pl.UInt32)).iter_rows())


def _doubts(keys: RunKeys, entries: Sequence[Entry], summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the report does not show of the run: results taken up since by a process that was killed, and more."""
    written = _written(keys.report("summary.json"), entries)
    if any(entry.modified > written for entry in entries if entry.key.startswith(keys.outcomes)):
        yield "results newer than its report"
    if summary["more_breaks"] and not summary["breaks"][-1]["notice"]:  # notices are listed last
        yield "more breaks than the report lists"
    asked, told = (
        {found[1] for entry in entries if (found := name.fullmatch(entry.key.removeprefix(keys.base)))}
        for name in (_ASKED, _TOLD)
    )
    if asked - told:
        yield f"{len(asked - told)} single links of which nobody knows whether they were made"


def _written(key: str, entries: Sequence[Entry]) -> datetime:
    return next(entry.modified for entry in entries if entry.key == key)
