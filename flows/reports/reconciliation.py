"""Reconcile across the runs of an issuer: read their reports, find overdue answers and what is to be done.

Reads the runs' own reports and leaves them unchanged; everything it writes is below `<issuer>/reconciliation/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.reports import across, lists
from flows.reports.across import OPERATOR, RunFacts, Work, worklist
from flows.reports.across import table as worklist_table
from flows.reports.page import across_page
from flows.reports.summary import ReportTerms, WaitingChunk, waiting_chunks
from flows.reports.tally import hours_of
from flows.reports.workbook import across_workbook
from flows.results.intake import read_waiting
from flows.results.lineage import Cardholders, run_rows
from flows.results.masking import spreadsheet_safe
from flows.runs import documents
from flows.runs.attempts import active_twice, prompted_links
from flows.runs.chains import commits_since, last_record
from flows.runs.chunks import chunk_states
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, deliveries, placements, reconciliation
from flows.runs.store import Store, read
from flows.runs.versions import read_facts
from schemas.ledger import ERROR, REJECTED
from schemas.manifest import Manifest
from schemas.records import Delivery

LIFE = timedelta(days=62)  # of a link (interface.md 8): cardholders of older runs are in a later extract or gone
READERS = 16  # runs read at a time
BATCH = 100_000  # rows looked at together
NO_ATTEMPTS = pl.DataFrame(schema=lists.TRIED)


class Survey(NamedTuple):
    """What is known across the runs: each run's facts, what is to be done, and the tables of `cards` without a link."""

    runs: list[RunFacts]
    cards: pl.DataFrame
    cardholders: dict[str, int]
    work: list[Work]
    terms: ReportTerms
    since: date


def survey(context: IssuerContext, start: date | None = None, end: date | None = None) -> Survey:
    """Return what is known of the issuer's committed runs of these business dates; nothing is written.

    Without `start` every run counts, but cardholders only those of the runs of the last LIFE, since that reads every
    row: once.
    """
    store, issuer = context.adapters.store, context.issuer
    terms = ReportTerms(context.adapters.now(), issuer.portal.answer_within_hours)
    every = list(documents.manifests(store, issuer.issuer))
    runs = [one for one in every if (start or one.as_of) <= one.as_of <= (end or one.as_of)]
    since = start or terms.now.date() - LIFE
    gone = documents.without_ledger(store, issuer.issuer)
    turns = {link.run: turn for turn, link in enumerate(commits_since(store, issuer.issuer))}
    lately = [run for run in runs if run.as_of >= since and run.run not in gone]
    held, tried = Cardholders(), list[pl.DataFrame]()

    def rows_of(run: Manifest) -> pl.DataFrame:
        rows = pl.concat([part.select(*lists.CARD, "state", "reasons") for part in run_rows(store, run)])
        return rows.with_columns(pl.lit(run.run).alias("run"))

    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(lambda run: _facts(store, run), runs))
        in_order = sorted(lately, key=lambda one: turns.get(one.run, -1))
        for some in batched(readers.map(rows_of, in_order)):  # a frame costs more than its rows, where runs are small
            held.add([some])
            tried.append(_attempts(some))
    held.add([prompted_links(store, issuer.issuer)])
    days = pl.DataFrame({"run": pl.Series([run.run for run in in_order], dtype=pl.String)}).with_row_index("turn")
    attempts = pl.concat([NO_ATTEMPTS, *tried]).join(days, on="run").sort("turn", maintain_order=True)
    cards = lists.unlinked([attempts.select(*lists.TRIED)], held.settled())
    refused = documents.refusals(store, issuer.issuer, every)
    work = worklist(issuer.issuer, found, cards, refused, _strays(store, issuer.issuer), terms)
    work = sorted([*work, *_unconfirmed(store, issuer.issuer)])
    return Survey(found, cards, held.count(), work, terms, since)


def reconcile_runs(context: IssuerContext, start: date | None = None, end: date | None = None) -> dict[str, Any]:
    """Write the report across the issuer's committed runs of these business dates, and return its facts."""
    store, issuer = context.adapters.store, context.issuer
    found = survey(context, start, end)
    runs, cards, terms = found.runs, found.cards, found.terms
    twice = active_twice(store, issuer.issuer, terms.now.date(), list(commits_since(store, issuer.issuer)))
    work = worklist_table(found.work, terms.now)
    facts = {
        "issuer": issuer.issuer,
        "from": start.isoformat() if start else None,
        "to": end.isoformat() if end else None,
        "cardholders_since": found.since.isoformat(),
        **across.across(runs, cards, terms),
        "worklist": work.head(across.LISTED).to_dicts(),
        "more_work": max(0, work.height - across.LISTED),
        "to_do": dict(work.group_by("kind", maintain_order=True).len().iter_rows()),
        "cardholders": found.cardholders,
        "hours": hours_of((one.hours for one in runs), issuer.portal.link_within_hours),
        "active_twice": twice.height,
        "funnel": (read_facts(store, f"{placements(issuer.issuer)}summary.json") or {}).get("funnel"),
    }
    folder = reconciliation(issuer.issuer)
    safe = spreadsheet_safe("cuid")
    tables = {"worklist": work, "unlinked": cards.with_columns(safe), "active-twice": twice.with_columns(safe)}
    for name, table in tables.items():
        store.replace(f"{folder}{name}.csv", documents.csv_pieces([table], table.columns))
    store.replace(f"{folder}summary.json", [canonical(facts)])
    store.replace(f"{folder}report.html", [across_page(facts).encode()])
    store.replace(f"{folder}report.xlsx", [across_workbook(tables)])
    return facts


def _strays(store: Store, issuer: str) -> dict[str, datetime]:
    """Return the result files with breaks that belong to no run, and since when each is there."""
    files = [one.file for one in read_waiting(store, issuer).values() if one.told and not one.runs]
    return {entry.key: entry.modified for file in files for entry in store.keys(file) if entry.key == file}


def _unconfirmed(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the last delivery of links, unless the receiving side has confirmed it."""
    number, last = last_record(store, deliveries(issuer), Delivery)
    if last is not None and not list(store.keys(f"{deliveries(issuer)}{number:06d}/confirmed.json")):
        changes, command = last.new + last.replaced + last.withdrawn, f"cardlink deliver {issuer} --confirm {number}"
        yield Work(
            last.at, "links to confirm", issuer, "", None, changes, last.at, OPERATOR, f"{command} --reason RECEIPT"
        )


def _facts(store: Store, manifest: Manifest) -> RunFacts:
    """Return a run's facts from its report or the record of its purge; without either every sent row is awaiting."""
    keys = keys_of(manifest.run)
    summary = documents.read_summary(store, keys)
    gone = documents.read_purged(store, keys, "ledger") if summary is None else None
    if gone is not None:
        reasons = {"submit": sorted(manifest.reasons.items()), "partner": []}
        return RunFacts(manifest.run, manifest.as_of, gone.verdict, gone.rows, reasons, {}, ())
    counts = dict.fromkeys(across.FIGURES, 0) | manifest.counts.model_dump(include=set(across.FIGURES))
    unanswered = {**counts, "awaiting": manifest.counts.submitted}
    reported = summary or {"verdict": "committed, to be uploaded", "rows": unanswered, "expires": {}, "reasons": {}}
    awaited = reported["rows"]["awaiting"]
    partner = [(one["code"], one["rows"]) for one in reported["reasons"].get("partner", ())]
    return RunFacts(
        manifest.run,
        manifest.as_of,
        reported["verdict"],
        reported["rows"],
        {"submit": sorted(manifest.reasons.items()), "partner": partner},
        {date.fromisoformat(day) if day else None: links for day, links in reported["expires"].items()},
        tuple(_waiting(store, keys, manifest, reported=summary is not None)) if awaited else (),
        [one for one in reported.get("breaks", ()) if not one["notice"]],
        reported.get("hours", {}).get("spread", {}),
    )


def _waiting(store: Store, keys: RunKeys, manifest: Manifest, *, reported: bool) -> list[WaitingChunk]:
    """Return the chunks with unanswered rows; without a report that is all of them."""
    names = ("chunk", "sent", "answers", "awaiting")
    if reported:
        table = pl.read_csv(BytesIO(read(store, keys.report("chunks.csv"))), columns=names, infer_schema=False)
    else:
        table = pl.DataFrame([(one.number, one.rows, 0, one.rows) for one in manifest.chunks], names, orient="row")
    return waiting_chunks(table.cast(pl.UInt32), chunk_states(store, keys, manifest))


def batched(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames joined to batches of at least BATCH rows."""
    batch: list[pl.DataFrame] = []
    for frame in frames:
        batch.append(frame)
        if sum(one.height for one in batch) >= BATCH:
            yield pl.concat(batch)
            batch = []
    if batch:
        yield pl.concat(batch)


def _attempts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts that gave no link (`lists.TRIED`): errors of the partner, refusals of ours."""
    code = pl.col("reasons").list.first().str.split("|").list.last().alias("reason")
    stages = {ERROR: "partner", REJECTED: "submit"}
    stage = pl.col("state").replace_strict(stages, default=None, return_dtype=pl.String).alias("stage")
    return rows.select(*lists.CARD, "run", stage, code).drop_nulls("stage")
