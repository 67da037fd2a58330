"""Rebuild a run's report from its ledger and answers; it may be deleted at any time."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from flows.extensions import hooks
from flows.installed import installed_build
from flows.reports import lists
from flows.reports.business_result import with_attempts
from flows.reports.charts import TREND
from flows.reports.hours import run_hours
from flows.reports.links import verified_links, write_links
from flows.reports.lists import write_unsent
from flows.reports.reconciled import AT_A_TIME, ReconciledPart, reconciled_parts, reportable
from flows.reports.summary import summarise
from flows.reports.tally import Tally, add
from flows.results.lineage import attempts_after
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.events import REPORTED
from flows.runs.frames import csv_pieces, write_parquet
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter, last_number
from flows.runs.run_status import reported_status
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently, prefetch
from schemas.breaks import Break
from schemas.ledger import AWAITING
from schemas.tables import Awaiting, Questions, Refusals

SENT_ROW = {
    "row": pl.UInt32,
    "cuid": pl.String,
    "last_4": pl.String,
    "chunk": pl.UInt32,
    "trouble": pl.String,
}


class RunReport(NamedTuple):
    """A run's breaks, and the facts of summary.json."""

    breaks: tuple[Break, ...]
    summary: dict[str, Any]


def rebuild(context: IssuerContext, run: StoredRun, listed: StoredRuns | None = None) -> RunReport:
    """Reconcile a committed run, as it is stored now, with its outcomes and write its report.

    Each file is written atomically; then a journal entry lets everybody read the run again.
    `listed`: the issuer's runs, where somebody has listed them. Raises as `reportable`.
    """
    run = reportable(run)
    recorded = run.records_to_report  # before they are read, so that none is missing unnoticed
    issuer = context.issuer
    now = context.adapters.now()
    tallies: list[Tally] = []
    with (
        closing(prefetch(reconciled_parts(run, now.date()))) as parts,
        closing(prefetch(_keep_parts(run, parts, tallies))) as links,
    ):
        _in_parallel(
            lambda: write_links(run, links, issuer.links),
            lambda: write_unsent(run, run.committed(), portfolio=issuer.full_portfolio),
        )
    total = add(tallies)
    summary = _summary(context, run, total, now)
    summary["open"]["recorded"] = recorded
    chunks = lists.chunks(run.manifest_as_sealed, total.chunks)
    within = timedelta(hours=issuer.portal.answer_within_hours)
    runs = listed or StoredRuns(run.adapters, run.issuer)
    _in_parallel(
        lambda: _write_lists(run, total, now, within),
        lambda: _write_pages(run, runs, summary, chunks, context.forms_url),
    )
    # last: a report whose facts are there is whole
    content = canonical(summary)
    run.store.replace(run.keys.report("summary.json"), [content])

    def note(act: Act) -> None:
        act.facts["report"] = digest(content)

    enter(context.adapters, issuer.issuer, REPORTED, note, run=run.id)
    return RunReport(tuple(sorted(total.breaks)), summary)


def rebuild_lasting(
    context: IssuerContext, run: StoredRun, listed: StoredRuns | None = None
) -> RunReport:
    """Rebuild a run's report until no input was added during it, so that none is missing."""
    while True:
        inputs = _report_inputs(run)
        report = rebuild(context, run, listed)
        if _report_inputs(run) == inputs:
            return report


def _report_inputs(run: StoredRun) -> int:
    """Return what shows that something was added after a run's commit that its report is made of:
    the number of its last journal entry but for reports.
    """
    return last_number(run.adapters, run.issuer, run.id, apart=REPORTED)


def _keep_parts(
    run: StoredRun, parts: Iterable[ReconciledPart], tallies: list[Tally]
) -> Iterator[pl.DataFrame]:
    """Write the reconciled rows of each part (`report/rows/`), and yield its links.

    Their tallies are added to `tallies`.
    """
    for part in parts:
        write_parquet(run.store, run.rows_key(part.part), part.rows)
        tallies += part.tallies
        links = verified_links(part.rows)
        write_parquet(run.store, run.keys.report(f"links/{part.part.name}"), links)
        del part  # freed before waiting for the next
        yield links
        del links


def _summary(context: IssuerContext, run: StoredRun, total: Tally, now: datetime) -> dict[str, Any]:
    """Return the facts of summary.json."""
    manifest = run.committed()
    closed = sorted(total.closed, key=lambda pair: pair[0])
    issuer = context.issuer
    lines = list(chain.from_iterable(lines(context, run) for lines in hooks("balance_lines")))
    summary = summarise(manifest, total, issuer, run.outbox, now, _versions(), closed, lines)
    within = issuer.portal.link_within_hours
    summary["hours"] = run_hours(run, total.arrivals, within)
    today = local_day(now, context.issuer.time_zone)
    for summary_facts in hooks("summary_facts"):
        summary |= summary_facts(run, today)
    attempts = attempts_after(run, summary["rows"])
    if attempts is not None:
        summary["attempts"] = attempts
        result = with_attempts(summary["open"]["result"], attempts["after"])
        summary["open"]["result"] = result
    return summary


def _versions() -> dict[str, str]:
    return {
        "cardlink": installed_build(),
        "polars": pl.__version__,
        "python": platform.python_version(),
    }


def _write_lists(run: StoredRun, total: Tally, now: datetime, within: timedelta) -> None:
    """Write errors.csv, awaiting.csv, breaks.csv and questions.csv."""
    items = run.outbox
    columns = ["row", "cuid", "last_4", "state", "message", "reasons"]
    failed = run.rows(columns, lists.FAILED)
    waiting = list(run.rows([*SENT_ROW], pl.col("state") == AWAITING))
    awaited = pl.concat([pl.DataFrame(schema=SENT_ROW), *waiting])
    questions = lists.questions(total.broken, awaited, items, now, within)
    breaks = lists.breaks(total.broken, total.breaks)
    _write_list(run, "errors", Refusals.dtypes(), map(lists.errors, failed))
    _write_list(run, "awaiting", Awaiting.dtypes(), lists.awaiting(waiting, items))
    _write_list(run, "breaks", lists.BREAKS, [breaks])
    _write_list(run, "questions", Questions.dtypes(), [questions])


def _write_list(
    run: StoredRun, name: str, columns: Iterable[str], frames: Iterable[pl.DataFrame]
) -> None:
    run.store.replace(run.keys.report(f"{name}.csv"), csv_pieces(frames, columns))


def _write_pages(
    run: StoredRun, runs: StoredRuns, summary: dict[str, Any], chunks: pl.DataFrame, forms: str
) -> None:
    # both take 60 ms to import, here while the lists are written
    from flows.reports.page import run_page
    from flows.reports.workbook import run_workbook

    _write_list(run, "chunks", chunks.columns, [chunks])
    reported = {**summary, "trend": _trend(run, runs, summary)}
    run.store.replace(run.keys.report("report.xlsx"), [run_workbook(reported, chunks)])
    page = run_page(reported, chunks, forms)
    run.store.replace(run.keys.report("report.html"), [page.encode()])


def _in_parallel(*tasks: Callable[[], None]) -> None:
    """Run tasks side by side; raise the first error once all have ended."""
    concurrently(lambda task: task(), tasks, AT_A_TIME)


def _trend(run: StoredRun, runs: StoredRuns, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the status of the last runs up to this one, oldest first."""
    own = run.keys.run
    earlier = [other for other in runs.ids if other.day <= own.day and other != own]
    statuses = [(other.day, runs.run(other).status) for other in earlier[1 - TREND :]]
    statuses.append((own.day, reported_status(run.id, summary)))
    return [{**status._asdict(), "as_of": day.isoformat()} for day, status in statuses]
