"""Ingest result files; rebuild a run's report from its ledger and outcomes; it may be deleted at
any time.

Ledger parts are reconciled one after the other, so that memory stays flat: no chunk spans two
parts.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing, suppress
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any, NamedTuple

import polars as pl

from flows.errors import TryAgainError
from flows.redaction import redact
from flows.reports import lists as tables
from flows.reports.lists import write_links, write_unsent
from flows.reports.summary import OUT_OF_BALANCE, summarise
from flows.reports.tally import Tally, add, run_hours, tally
from flows.results.decisions import chain_of, decisions
from flows.results.intake import CHUNKS, IngestedFile, ResultObject, take_in
from flows.results.lineage import attempts_after, newest_first
from flows.results.markers import (
    Basis,
    Waiting,
    basis_of,
    read_markers,
    read_waiting,
    write_markers,
    write_waiting,
)
from flows.results.opening import AWAITED, may_pass
from flows.results.reconcile import reconcile, with_single_links
from flows.runs import documents
from flows.runs.business_date import local_day
from flows.runs.chunks import OutboxChunk, as_it_lies, chunk_states
from flows.runs.claim import clean_up
from flows.runs.closings import closed_breaks
from flows.runs.context import IssuerContext
from flows.runs.documents import committed, read_summary, without_ledger
from flows.runs.frames import csv_pieces, write_parquet
from flows.runs.keys import RunKeys, ingested, keys_of, results
from flows.runs.outbox import outbox
from flows.runs.outcomes import StoredOutcomes
from flows.runs.prior_state import CHECKS
from flows.runs.single_links import single_links
from flows.runs.store import ConflictError, Entry, Store
from flows.runs.threads import concurrently, prefetch
from flows.runs.versions import NewerDocumentError, facts_as_stored, written_in
from schemas import ledger
from schemas import tables as reports
from schemas.breaks import Break
from schemas.ledger import AWAITING
from schemas.manifest import FACTS, LedgerPart, Manifest

AS_SENT = ["expiration", "origin", *CHECKS]  # kept with the outcome: later runs need them
RECORD = ["row", "cuid", "last_4", "fate", "chunk", "position", *AS_SENT, "reasons"]
SENT_ROW = {
    "row": pl.UInt32,
    "cuid": pl.String,
    "last_4": pl.String,
    "chunk": pl.UInt32,
    "trouble": pl.String,
}
TREND = 14  # runs in the trend
AT_A_TIME = 2  # threads


class RunReport(NamedTuple):
    """A run's breaks, and the facts of summary.json."""

    breaks: tuple[Break, ...]
    summary: dict[str, Any]


def rebuild(context: IssuerContext, run: str) -> RunReport:
    """Reconcile a committed run with all its outcomes and write its report, each file
    atomically.
    """
    store, keys, now = context.adapters.store, keys_of(run), context.adapters.now()
    manifest = _reportable(store, keys)
    counted: list[Tally] = []
    with (
        closing(prefetch(_settle(context, keys, manifest))) as parts,
        closing(prefetch(_kept(store, keys, parts, counted))) as links,
    ):
        _in_parallel(
            lambda: write_links(store, keys, links, context.issuer.links),
            lambda: write_unsent(store, keys, manifest, portfolio=context.issuer.full_portfolio),
        )
    total = add(counted)
    found, closed = tuple(sorted(total.breaks)), sorted(total.closed, key=lambda pair: pair[0])
    items, within = (
        outbox(context.adapters, run),
        timedelta(hours=context.issuer.portal.answer_within_hours),
    )
    versions = {
        "cardlink": version("cardlink"),
        "polars": pl.__version__,
        "python": platform.python_version(),
    }
    summary = summarise(manifest, total, context.issuer, items, now, versions, closed)
    summary["hours"] = run_hours(
        store, manifest, total.arrivals, context.issuer.portal.link_within_hours
    )
    if (
        funnel := context.funnel(store, manifest, local_day(now, context.issuer.time_zone))
    ) is not None:
        summary["funnel"] = funnel
    if (again := attempts_after(store, manifest, summary["rows"])) is not None:
        summary["attempts"] = again
    chunks = tables.chunks(as_it_lies(store, manifest), total.chunks)
    _in_parallel(
        lambda: _write_lists(store, keys, manifest, total, items, (now, within)),
        lambda: _write_pages(store, keys, summary, chunks),
    )
    return RunReport(found, summary)


def rebuild_lasting(context: IssuerContext, run: str) -> RunReport:
    """Rebuild a run's report until its inputs did not change meanwhile, so that the last report has
    them all.
    """
    while True:
        before = _report_inputs(context.adapters.store, keys_of(run))
        report = rebuild(context, run)
        if _report_inputs(context.adapters.store, keys_of(run)) == before:
            return report


def _report_inputs(store: Store, keys: RunKeys) -> list[Entry]:
    """List the objects added after a run's commit that its report is made of."""
    return [
        entry
        for prefix in (keys.outcomes, keys.closed, keys.singles)
        for entry in store.keys(prefix)
    ]


class Findings(NamedTuple):
    """The open breaks of a run, their rows (`broken`), and the rows sent that no result names
    (chunk, row).
    """

    breaks: tuple[Break, ...]
    broken: pl.DataFrame
    unanswered: pl.DataFrame


def find_breaks(context: IssuerContext, run: str) -> Findings:
    """Return the open breaks of a committed run as its outcomes are now; nothing is written."""
    keys = keys_of(run)
    counted, waiting = list[Tally](), [pl.DataFrame(schema={"chunk": pl.UInt32, "row": pl.UInt32})]
    for _, rows, tallies in _settle(context, keys, _reportable(context.adapters.store, keys)):
        counted += tallies
        waiting.append(
            rows.filter(pl.col("trouble").is_null(), state=AWAITING).select("chunk", "row")
        )
    total = add(counted)
    return Findings(
        tuple(one for one in sorted(total.breaks) if not one.notice),
        total.broken,
        pl.concat(waiting),
    )


def _reportable(store: Store, keys: RunKeys) -> Manifest:
    """Return a run's manifest; UnknownRunError where it is not committed, AbandonedError,
    LedgerPurgedError.
    """
    manifest = committed(store, str(keys.run))
    documents.refuse_purged(store, keys)
    with suppress(ConflictError):  # a damaged one is written anew
        if (written := written_in(documents.read_summary(store, keys) or {})) > FACTS:
            raise NewerDocumentError(key=keys.report("summary.json"), format=written)
    return manifest


# reconciled: its rows, a tally for each group of chunks
Settled = tuple[LedgerPart, pl.DataFrame, tuple[Tally, ...]]


def _kept(
    store: Store, keys: RunKeys, parts: Iterable[Settled], counted: list[Tally]
) -> Iterator[pl.DataFrame]:
    """Write the reconciled rows of each part (`report/rows/`), add its tallies to `counted`, and
    yield its links.
    """
    for part, rows, tallies in parts:
        write_parquet(store, documents.rows_key(keys, part), rows)
        counted += tallies
        links = tables.verified_links(rows)
        write_parquet(store, keys.report(f"links/{part.name}"), links)
        del rows  # freed before waiting for the next
        yield links
        del links


def _settle(context: IssuerContext, keys: RunKeys, manifest: Manifest) -> Iterator[Settled]:
    """Reconcile part by part, a few chunks at a time: answers take five times the memory of what
    was sent.
    """
    store, today, run = context.adapters.store, context.adapters.now().date(), manifest.run
    reported, alone, closings = (
        StoredOutcomes(store, keys),
        single_links(store, keys),
        closed_breaks(store, keys),
    )
    states = chunk_states(store, keys, manifest)
    cancelled = frozenset((run, item.chunk.number) for item in states if item.state == "cancelled")

    def settle(records: pl.DataFrame) -> tuple[pl.DataFrame, Tally]:
        sent = records.filter(fate=ledger.SUBMITTED).drop("reasons").with_columns(run=pl.lit(run))
        outcomes = reported.of(sent["chunk"].unique().to_list())
        mine = alone.join(records, on="row", how="semi")
        settled = with_single_links(reconcile(sent, outcomes, today, cancelled, closings), mine)
        rows = settled.rows.join(
            records.select("row", *AS_SENT), on="row", how="left", maintain_order="left"
        )
        return rows, tally(records, settled, outcomes, mine)

    def settle_part(part: LedgerPart) -> Settled:
        done = concurrently(settle, _groups(store, keys, part), AT_A_TIME)
        rows = pl.concat([rows for rows, _ in done])
        # chunks are mostly cut in row order
        in_order = rows if rows["row"].is_sorted() else rows.sort("row")
        return part, in_order, tuple(counted for _, counted in done)

    return map(settle_part, manifest.ledger)


def _groups(store: Store, keys: RunKeys, part: LedgerPart) -> list[pl.DataFrame]:
    """Return the records of a ledger part, some chunks together; rows not sent come with the
    first.
    """
    (records,) = documents.read_ledger(store, keys, [part], RECORD)
    group = pl.col("chunk").sub(1).floordiv(CHUNKS).fill_null(0).alias("group")
    return records.with_columns(group).partition_by("group", maintain_order=True, include_key=False)


def _write_lists(
    store: Store,
    keys: RunKeys,
    manifest: Manifest,
    total: Tally,
    items: list[OutboxChunk],
    terms: tuple[datetime, timedelta],
) -> None:
    """Write errors.csv, awaiting.csv, breaks.csv and questions.csv."""
    columns = ["row", "cuid", "last_4", "state", "message", "reasons"]
    failed = documents.read_rows(store, keys, manifest.ledger, columns, tables.FAILED)
    waiting = list(
        documents.read_rows(store, keys, manifest.ledger, [*SENT_ROW], pl.col("state") == AWAITING)
    )
    awaited = pl.concat([pl.DataFrame(schema=SENT_ROW), *waiting])
    listed = {
        "errors": (reports.Refusals.dtypes(), map(tables.errors, failed)),
        "awaiting": (reports.Awaiting.dtypes(), tables.awaiting(waiting, items)),
        "breaks": (tables.BREAKS, [tables.breaks(total.broken, total.breaks)]),
        "questions": (
            reports.Questions.dtypes(),
            [tables.questions(total.broken, awaited, items, *terms)],
        ),
    }
    for name, (head, frames) in listed.items():
        store.replace(keys.report(f"{name}.csv"), csv_pieces(frames, head))


def _write_pages(
    store: Store, keys: RunKeys, summary: dict[str, Any], chunks: pl.DataFrame
) -> None:
    # both take 60 ms to import, here while the lists are written
    from flows.reports.page import run_page
    from flows.reports.workbook import run_workbook

    store.replace(keys.report("chunks.csv"), csv_pieces([chunks], chunks.columns))
    store.replace(keys.report("summary.json"), [facts_as_stored(summary)])
    reported = {**summary, "trend": _trend(store, keys)}
    store.replace(keys.report("report.xlsx"), [run_workbook(reported, chunks)])
    store.replace(keys.report("report.html"), [run_page(reported, chunks).encode()])


def _in_parallel(*tasks: Callable[[], None]) -> None:
    """Run tasks side by side; raise the first error once all have ended."""
    concurrently(lambda task: task(), tasks, AT_A_TIME)


def _trend(store: Store, keys: RunKeys) -> list[dict[str, Any]]:
    """Return the status of the last runs up to this one, oldest first."""
    earlier = [
        run
        for run in documents.run_ids(store, keys.run.issuer)
        if run.day <= keys.run.day and run != keys.run
    ]
    runs = [*earlier, keys.run][-TREND:]
    return [
        {**documents.run_status(store, run)._asdict(), "as_of": run.day.isoformat()} for run in runs
    ]


# Ingest: take in new result files, then bring the reports of all runs they touch up to date.


class ListedLateError(TryAgainError):
    """The store does not list an object just written, so a report would miss it."""

    message = "{key} was written, but the store does not list it yet. The run's report was left unchanged."
    next_step = "Run the same command again in a minute."


class Ingested(NamedTuple):
    """What one call took in: files, their rows, rows it could not place, and the reports it brought
    up to date.

    Files whose outcome has not changed count only among `open_files`, those whose breaks are open.
    """

    files: int
    rows: int
    breaks: tuple[str, ...]
    reports: tuple[RunReport, ...]
    open_files: int = 0
    unjudged: int = 0  # files that were not read, since the malware scanner has not judged them


def ingest(context: IssuerContext, also: str = "") -> Ingested:
    """Attribute every new result file, rebuild the reports of the runs they touch (and of `also`),
    mark the files.

    Runs whose rows were resent by those runs are reported too, since the state of their rows has
    changed. The markers come last: killed before, the next call does it all again, with the same
    outcome.
    """
    store, name = context.adapters.store, context.issuer.issuer
    markers, waiting = read_markers(store, name), read_waiting(store, name)
    decided = decisions(store, name)
    files = [
        ResultObject(entry, decided.get(chain_of(name, entry.key), ()))
        for entry in store.keys(results(name))
    ]
    new = [file for file in files if file.mark not in markers]
    basis = basis_of(context) if new else None
    still = {
        file.mark: one
        for file in new
        if (one := waiting.get(file.mark)) and basis and one.basis in basis
    }
    fresh = [file for file in new if file.mark not in still]
    opened = list(take_in(context, fresh, waiting)) if fresh else []
    taken = [one for one in opened if one.problems != (AWAITED,)]
    told = [one for one in taken if not one.known]
    purged = without_ledger(store, name) if told else frozenset()
    touched = {run for one in told for run in one.runs | one.left} - purged | (
        {also} if also else set()
    )
    clean_up(context.adapters, ingested(name), *(keys_of(run).base for run in touched))
    kept = {key for one in told for key in one.kept}
    reports = tuple(_report(context, run, kept) for run in newest_first(store, touched))
    lasting = (
        {one.result.mark: _waits(one, waiting, basis, purged) for one in taken if not one.done}
        if basis
        else {}
    )
    if (now := still | lasting) != waiting:
        write_waiting(store, name, now)
    write_markers(store, name, {one.result.mark: one.result.entry for one in taken if one.done})
    breaks = tuple(now[one.result.mark].told for one in told if not one.settled)
    rows = sum(one.rows for one in told)
    return Ingested(
        len(told), rows, breaks, reports, _open_files(store, now.values()), len(opened) - len(taken)
    )


def _waits(
    one: IngestedFile, waiting: Mapping[str, Waiting], basis: Basis, purged: Set[str]
) -> Waiting:
    """Return the record of a file that waits: to be read again when its basis changes, or each
    time.
    """
    trouble = "" if one.settled or one.known else one.trouble(purged)
    told = waiting[one.result.mark].told if one.known else trouble
    known = "" if may_pass(one.problems) else basis[one.settled]
    runs = tuple(sorted(one.runs))
    return Waiting(
        file=redact(one.result.entry.key), basis=known, outcome=one.outcome, runs=runs, told=told
    )


def _open_files(store: Store, waiting: Iterable[Waiting]) -> int:
    """Count the files with open breaks: those of no run, and those of a run that is out of
    balance.
    """
    told = [one for one in waiting if one.told]
    runs = {run for one in told for run in one.runs}
    found = {run: read_summary(store, keys_of(run)) for run in runs}
    broken = {
        run for run, summary in found.items() if summary and summary["verdict"] == OUT_OF_BALANCE
    }
    return sum(not one.runs or not broken.isdisjoint(one.runs) for one in told)


def _report(context: IssuerContext, run: str, kept: Set[str]) -> RunReport:
    """Rebuild a run's report; ListedLateError where the store does not list yet what was written
    just now.
    """
    store, prefix = context.adapters.store, keys_of(run).outcomes
    hidden = {key for key in kept if key.startswith(prefix)} - {
        entry.key for entry in store.keys(prefix)
    }
    if hidden:
        raise ListedLateError(key=min(hidden))
    return rebuild_lasting(context, run)
