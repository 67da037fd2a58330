"""Reports that were made without something recorded since: which there are, how they are finished.

A command that records a decision or a single link makes the report of its run after that. Where it
was stopped in between, whoever comes next makes it: the same command, or the next ingest. Until
then the worklist has a line about the run.
"""

from collections.abc import Iterable

from flows.book.stored_book import open_runs
from flows.reports.rebuild import rebuild_lasting
from flows.results.lineage import newest_first
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently


def runs_behind(context: IssuerContext, stored: StoredRuns) -> list[StoredRun]:
    """Return the runs about which something is open whose report is behind what is recorded."""
    adapters = context.adapters
    runs = [StoredRun.by_id(adapters, run) for run in open_runs(adapters, stored)]
    are_behind = concurrently(lambda run: run.is_report_behind, runs, adapters.connections)
    return [run for run, is_behind in zip(runs, are_behind, strict=True) if is_behind]


def report_behind(context: IssuerContext, runs: Iterable[StoredRun]) -> None:
    """Make those of these runs' reports that are behind, and of the runs that they repeat."""
    for run in newest_first(run for run in runs if run.is_report_behind):
        rebuild_lasting(context, run)


def finish_reports(context: IssuerContext) -> None:
    """Finish what a command left that was stopped after it had recorded something."""
    stored = StoredRuns(context.adapters, context.issuer.issuer)
    report_behind(context, runs_behind(context, stored))
