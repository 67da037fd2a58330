"""Reconcile across the runs of an issuer: read what their reports say, tell silence by its age, alert once.

Nothing of a run's own report is changed; what is written here lies below `<issuer>/reconciliation/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.reports import across
from flows.reports import lists as unlinked
from flows.reports.across import ReportTerms, RunFacts, WaitingChunk
from flows.reports.page import across_page
from flows.reports.summary import HELD, MISSING, missing, waiting_since
from flows.results.lineage import Cardholders, run_rows
from flows.runs.chains import commits_since
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, manifests, read_ledger, read_purged, read_summary, without_ledger
from flows.runs.frames import csv_pieces, read_rows
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, placements, reconciliation
from flows.runs.store import ObjectMissingError, Store, read
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import Manifest

LIFE = timedelta(days=62)  # of a link (interface.md 8): who has none after that was in a later extract, or is gone
READERS = 16  # runs looked at at a time
OVERDUE, ARRIVED = "overdue.json", "overdue-closed.json"  # one of each in a run's history, whatever is asked how often


class Alerts(NamedTuple):
    """Runs whose answer is overdue: told of for the first time now, told of before, and closed now."""

    opened: tuple[str, ...]
    standing: tuple[str, ...]
    closed: tuple[str, ...]


def reconcile_runs(context: IssuerContext, start: date | None = None, end: date | None = None) -> dict[str, Any]:
    """Write the report across the issuer's committed runs of these business dates, and return its facts.

    An overdue answer is told of once, and closed once when it has come. Without `start` every run counts, but
    cardholders are looked for in those of the last LIFE only: their rows are read, one by one.
    """
    store, issuer = context.adapters.store, context.issuer
    terms = ReportTerms(context.adapters.now(), issuer.portal.answer_within_hours)
    runs = [one for one in manifests(store, issuer.issuer) if (start or one.as_of) <= one.as_of <= (end or one.as_of)]
    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(lambda run: _facts(store, run, terms), runs))
    since = start or terms.now.date() - LIFE
    gone = without_ledger(store, issuer.issuer)
    lately = [run for run in runs if run.as_of >= since and run.run not in gone]
    cards = _unlinked(store, lately)
    facts = {
        "issuer": issuer.issuer,
        "from": start.isoformat() if start else None,
        "to": end.isoformat() if end else None,
        "cardholders_since": since.isoformat(),
        **across.across(found, cards, terms),
        "cardholders": _cardholders(store, issuer.issuer, lately),
        "alerts": _alert(context, found, terms)._asdict(),
        "funnel": _funnel(store, issuer.issuer),
    }
    _write(store, issuer.issuer, facts, across.outstanding(found, terms), unlinked.listed(cards))
    return facts


def _funnel(store: Store, issuer: str) -> dict[str, Any] | None:
    """Return the funnel of placements as `cardlink placements` last wrote it; None before the first time."""
    try:
        funnel: dict[str, Any] = json.loads(read(store, f"{placements(issuer)}summary.json"))["funnel"]
    except ObjectMissingError:
        return None
    return funnel


def _cardholders(store: Store, issuer: str, runs: Sequence[Manifest]) -> dict[str, int]:
    """Count the cardholders of these runs, each once, by its last state."""
    turns = {link.run: turn for turn, link in enumerate(commits_since(store, issuer))}
    held = Cardholders()
    for run in sorted(runs, key=lambda one: turns.get(one.run, -1)):
        held.add(run_rows(store, run))
    return held.count()


def _unlinked(store: Store, runs: Sequence[Manifest]) -> pl.DataFrame:
    done = unlinked.settled(frame for run in runs for frame in _states(store, run))
    return unlinked.unlinked((frame for run in runs for frame in _attempts(store, run)), done)


def _facts(store: Store, manifest: Manifest, terms: ReportTerms) -> RunFacts:
    """Return what a run's report says, or the record that it is purged; without one all that was sent is awaiting."""
    keys = keys_of(manifest.run)
    summary = read_summary(store, keys)
    gone = read_purged(store, keys, "ledger") if summary is None else None
    if gone is not None:
        whys = {"submit": sorted(manifest.reasons.items()), "partner": []}
        return RunFacts(manifest.run, manifest.as_of, gone.verdict, gone.rows, whys, {}, ())
    counts = manifest.counts
    unanswered = {
        "read": counts.read, "linked": 0, "error": 0, "awaiting": counts.submitted,
        "rejected": counts.rejected, "duplicate": counts.duplicate, "suppressed": counts.suppressed,
    }  # fmt: skip
    reported = summary or {"verdict": "committed, to be uploaded", "rows": unanswered, "expires": {}, "reasons": {}}
    partner = [(one["code"], one["rows"]) for one in reported["reasons"].get("partner", ())]
    return RunFacts(
        manifest.run,
        manifest.as_of,
        reported["verdict"],
        reported["rows"],
        {"submit": sorted(manifest.reasons.items()), "partner": partner},
        {date.fromisoformat(day) if day else None: links for day, links in reported["expires"].items()},
        tuple(_waiting(store, keys, manifest, terms, reported=summary is not None)),
    )


def _waiting(
    store: Store, keys: RunKeys, manifest: Manifest, terms: ReportTerms, *, reported: bool
) -> Iterator[WaitingChunk]:
    """Yield the chunks with rows not answered; without a report that is all of them."""
    moment = waiting_since(store, keys, manifest, terms.now)
    if not reported:
        for one in manifest.chunks:
            lacks = HELD if one.number in moment.resting else MISSING
            yield WaitingChunk(manifest.run, one.number, one.name, lacks, one.rows, one.rows, moment.since(one.number))
        return
    content = read(store, keys.report("chunks.csv"))
    counts = pl.col("chunk", "sent", "answers", "awaiting").cast(pl.UInt32)
    table = pl.read_csv(BytesIO(content), infer_schema=False).with_columns(counts).filter(pl.col("awaiting") > 0)
    waiting = table.select("chunk", "name", missing("answers", "sent"), "sent", "awaiting")
    for chunk, name, lacks, sent, rows in waiting.iter_rows():
        kind = HELD if chunk in moment.resting else lacks
        yield WaitingChunk(manifest.run, chunk, name, kind, sent, rows, moment.since(chunk))


def _states(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    """Yield cuid, last_4, state of the rows that a run sent; what was cancelled before its upload was not."""
    for rows in run_rows(store, manifest):
        yield rows.filter(pl.col("state").is_in([LINKED, ERROR, AWAITING])).select("cuid", "last_4", "state")


def _attempts(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    keys = keys_of(manifest.run)
    reported = read_summary(store, keys) is not None
    columns = ["cuid", "last_4", "state", "reasons"]
    rows = read_rows(store, keys, manifest.ledger, columns) if reported else iter(())
    records = read_ledger(store, keys, manifest.ledger, ["cuid", "last_4", "fate", "reasons"])
    yield from unlinked.attempts_of(manifest.run, rows, records)


def _alert(context: IssuerContext, runs: Sequence[RunFacts], terms: ReportTerms) -> Alerts:
    """Open an alert for every run with an overdue chunk, close those whose answers have come; each only once."""
    opened: list[str] = []
    standing: list[str] = []
    closed: list[str] = []
    for run in runs:
        late = [one for one in run.waiting if terms.overdue(one)]
        if late:
            (opened if _note_once(context, run.run, OVERDUE, late) else standing).append(run.run)
        elif _has(context.adapters.store, run.run, OVERDUE) and _note_once(context, run.run, ARRIVED, late):
            closed.append(run.run)
    return Alerts(tuple(opened), tuple(standing), tuple(closed))


def _note_once(context: IssuerContext, run: str, name: str, late: Sequence[WaitingChunk]) -> bool:
    """Write an event under a name of its own, create-only: of many who look at once, one tells."""
    adapters = context.adapters
    event = {
        "what": name.removesuffix(".json"),
        "at": adapters.now().isoformat(),
        "by": adapters.actor,
        "chunks": len(late),
        "rows": sum(one.awaiting for one in late),
    }
    return adapters.store.create(keys_of(run).events + name, canonical(event))


def _has(store: Store, run: str, name: str) -> bool:
    key = keys_of(run).events + name
    return any(entry.key == key for entry in store.keys(key))


def _write(store: Store, issuer: str, facts: dict[str, Any], waiting: pl.DataFrame, cards: pl.DataFrame) -> None:
    folder = reconciliation(issuer)
    store.replace(folder + "outstanding.csv", csv_pieces([waiting], waiting.columns))
    store.replace(folder + "unlinked.csv", csv_pieces([cards], cards.columns))
    store.replace(folder + "summary.json", [canonical(facts)])
    store.replace(folder + "report.html", [across_page(facts).encode()])
