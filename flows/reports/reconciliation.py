"""Reconcile across the runs of an issuer: read their reports, find overdue answers, alert once.

Reads the runs' own reports and leaves them unchanged; everything it writes is below `<issuer>/reconciliation/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from io import BytesIO
from itertools import chain
from typing import Any

import polars as pl

from flows.reports import across, lists
from flows.reports.across import ReportTerms, RunFacts, WaitingChunk
from flows.reports.hours import hours_of
from flows.reports.page import across_page
from flows.reports.summary import HELD, MISSING, missing, waiting_since
from flows.results.lineage import Cardholders, run_rows
from flows.runs.attempts import active_twice
from flows.runs.chains import commits_since
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, manifests, read_ledger, read_purged, read_summary, without_ledger
from flows.runs.frames import csv_pieces, read_rows
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, placements, reconciliation
from flows.runs.links import prompted_links
from flows.runs.store import ObjectMissingError, Store, read
from schemas.ledger import AWAITING, ERROR, LINKED, REJECTED
from schemas.manifest import Manifest

LIFE = timedelta(days=62)  # of a link (interface.md 8): cardholders of older runs are in a later extract or gone
READERS = 16  # runs read at a time
OVERDUE, ARRIVED = "overdue.json", "overdue-closed.json"  # at most one of each in a run's history


def reconcile_runs(context: IssuerContext, start: date | None = None, end: date | None = None) -> dict[str, Any]:
    """Write the report across the issuer's committed runs of these business dates, and return its facts.

    An overdue answer is reported once, and closed once when it has come. Without `start` every run counts, but
    cardholders only those of the runs of the last LIFE, since that reads every row.
    """
    store, issuer = context.adapters.store, context.issuer
    terms = ReportTerms(context.adapters.now(), issuer.portal.answer_within_hours)
    runs = [one for one in manifests(store, issuer.issuer) if (start or one.as_of) <= one.as_of <= (end or one.as_of)]
    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(lambda run: _facts(store, run, terms), runs))
    since = start or terms.now.date() - LIFE
    gone = without_ledger(store, issuer.issuer)
    lately = [run for run in runs if run.as_of >= since and run.run not in gone]
    typed = prompted_links(store, issuer.issuer)
    done = lists.settled(chain((frame for run in lately for frame in _states(store, run)), [typed]))
    cards = lists.unlinked((frame for run in lately for frame in _attempts(store, run)), done)
    twice = active_twice(store, issuer.issuer, terms.now.date(), list(commits_since(store, issuer.issuer)))
    facts = {
        "issuer": issuer.issuer,
        "from": start.isoformat() if start else None,
        "to": end.isoformat() if end else None,
        "cardholders_since": since.isoformat(),
        **across.across(found, cards, terms),
        "cardholders": _cardholders(store, issuer.issuer, lately, typed),
        "hours": hours_of((one.hours for one in found), issuer.portal.link_within_hours),
        "active_twice": twice.height,
        "alerts": _alert(context, found, terms),
        "funnel": _funnel(store, issuer.issuer),
    }
    folder = reconciliation(issuer.issuer)
    tables = {"outstanding": across.outstanding(found, terms), "unlinked": lists.listed(cards)}
    for name, table in (tables | {"active-twice": lists.listed(twice)}).items():
        store.replace(f"{folder}{name}.csv", csv_pieces([table], table.columns))
    store.replace(f"{folder}summary.json", [canonical(facts)])
    store.replace(f"{folder}report.html", [across_page(facts).encode()])
    return facts


def _funnel(store: Store, issuer: str) -> dict[str, Any] | None:
    """Return the funnel of placements as `cardlink placements` last wrote it; None before the first time."""
    try:
        funnel: dict[str, Any] = json.loads(read(store, f"{placements(issuer)}summary.json"))["funnel"]
    except ObjectMissingError:
        return None
    return funnel


def _cardholders(store: Store, issuer: str, runs: Sequence[Manifest], typed: pl.DataFrame) -> dict[str, int]:
    """Count the cardholders of these runs and of links typed in, each once, by its last state."""
    turns = {link.run: turn for turn, link in enumerate(commits_since(store, issuer))}
    held = Cardholders()
    for run in sorted(runs, key=lambda one: turns.get(one.run, -1)):
        held.add(run_rows(store, run))
    held.add([typed])
    return held.count()


def _facts(store: Store, manifest: Manifest, terms: ReportTerms) -> RunFacts:
    """Return a run's facts from its report or the record of its purge; without either every sent row is awaiting."""
    keys = keys_of(manifest.run)
    summary = read_summary(store, keys)
    gone = read_purged(store, keys, "ledger") if summary is None else None
    if gone is not None:
        reasons = {"submit": sorted(manifest.reasons.items()), "partner": []}
        return RunFacts(manifest.run, manifest.as_of, gone.verdict, gone.rows, reasons, {}, ())
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
        reported.get("hours", {}).get("spread", {}),
    )


def _waiting(
    store: Store, keys: RunKeys, manifest: Manifest, terms: ReportTerms, *, reported: bool
) -> Iterator[WaitingChunk]:
    """Yield the chunks with unanswered rows; without a report that is all of them."""
    moment = waiting_since(store, keys, manifest, terms.now)
    if not reported:
        for one in manifest.chunks:
            lacks = HELD if one.number in moment.resting else MISSING
            yield WaitingChunk(manifest.run, one.number, one.name, lacks, one.rows, one.rows, moment.since(one.number))
        return
    content = read(store, keys.report("chunks.csv"))
    counts = pl.col("chunk", "sent", "answers", "awaiting").cast(pl.UInt32)
    table = pl.read_csv(BytesIO(content), infer_schema=False).with_columns(counts).filter(pl.col("awaiting") > 0)
    waiting = table.select("chunk", "name", missing(), "sent", "awaiting")
    for chunk, name, lacks, sent, rows in waiting.iter_rows():
        kind = HELD if chunk in moment.resting else lacks
        yield WaitingChunk(manifest.run, chunk, name, kind, sent, rows, moment.since(chunk))


def _states(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    """Yield cuid, last_4, state of the rows a run sent; rows cancelled before their upload do not count."""
    for rows in run_rows(store, manifest):
        yield rows.filter(pl.col("state").is_in([LINKED, ERROR, AWAITING])).select(*lists.CARD, "state")


def _attempts(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    """Yield the attempts of a run that gave no link (`lists.TRIED`): errors of the partner, refusals of ours."""
    keys, run = keys_of(manifest.run), pl.lit(manifest.run).alias("run")
    code = pl.col("reasons").list.first().str.split("|").list.last().alias("reason")
    if read_summary(store, keys) is not None:
        for rows in read_rows(store, keys, manifest.ledger, [*lists.CARD, "state", "reasons"], lists.FAILED):
            yield rows.select(*lists.CARD, run, pl.lit("partner").alias("stage"), code)
    columns = [*lists.CARD, "fate", "reasons"]
    for records in read_ledger(store, keys, manifest.ledger, columns, pl.col("fate") == REJECTED):
        yield records.select(*lists.CARD, run, pl.lit("submit").alias("stage"), code)


def _alert(context: IssuerContext, runs: Sequence[RunFacts], terms: ReportTerms) -> dict[str, list[str]]:
    """Open an alert for each run with an overdue chunk and close it when the answers have come; each only once."""
    store = context.adapters.store
    alerts: dict[str, list[str]] = {"opened": [], "standing": [], "closed": []}
    for run in runs:
        late = [one for one in run.waiting if terms.overdue(one)]
        if late:
            alerts["opened" if _note_once(context, run.run, OVERDUE, late) else "standing"].append(run.run)
        elif any(store.keys(keys_of(run.run).events + OVERDUE)) and _note_once(context, run.run, ARRIVED, late):
            alerts["closed"].append(run.run)
    return alerts


def _note_once(context: IssuerContext, run: str, name: str, late: Sequence[WaitingChunk]) -> bool:
    """Write an event under a fixed name, create-only, so that of many processes only one reports it."""
    adapters = context.adapters
    event = {
        "what": name.removesuffix(".json"),
        "at": adapters.now().isoformat(),
        "by": adapters.actor,
        "chunks": len(late),
        "rows": sum(one.awaiting for one in late),
    }
    return adapters.store.create(keys_of(run).events + name, canonical(event))
