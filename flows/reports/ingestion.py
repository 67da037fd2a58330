"""Ingest: take in new result files, then bring the reports of all runs they touch up to date."""

from collections.abc import Iterable, Sequence, Set
from itertools import chain
from typing import NamedTuple

from flows.reports.behind import runs_behind
from flows.reports.rebuild import RunReport, rebuild_lasting
from flows.reports.verdicts import OUT_OF_BALANCE
from flows.results.batches import ResultObject
from flows.results.dropped import as_decided, result_files
from flows.results.intake import IngestedFile, take_in
from flows.results.known_files import KnownFile, basis_of, forget_told, known_files
from flows.results.lineage import newest_first
from flows.results.opening import AWAITED
from flows.runs.adapters import Adapters
from flows.runs.answers import file_id
from flows.runs.claim import clean_up
from flows.runs.context import IssuerContext
from flows.runs.erased import NOBODY, erased_people
from flows.runs.keys import keys_of
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.tracing import stage


class Ingested(NamedTuple):
    """What one call took in: files, their rows, breaks, and the reports it brought up to date.

    `breaks`: what is wrong with new files that were not fully matched; `open_files`: how many such
    files there are, earlier ones included.
    """

    files: int
    rows: int
    breaks: tuple[str, ...]
    reports: tuple[RunReport, ...]
    open_files: int = 0
    unjudged: int = 0  # files that were not read, since the malware scanner has not judged them

    @property
    def open_breaks(self) -> int:
        """How many breaks are open in the runs whose reports it brought up to date."""
        breaks = chain.from_iterable(report.breaks for report in self.reports)
        return sum(not run_break.notice for run_break in breaks)


def ingest(context: IssuerContext, also: str = "") -> Ingested:
    """Attribute every new result file, and rebuild the reports of the runs they touch.

    The run `also` is reported too, those whose report is behind what is recorded (`behind.py`), and
    runs whose rows were resent by those runs, since the state of their rows has changed. Killed
    between, the next call goes on: with the files that are left, and with reports that are behind.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    files = result_files(adapters, issuer)
    unsettled = [file for file in files if file.known is None or not file.known.is_done]
    with stage("match results", files=len(unsettled)):
        opened = _take_in_lasting(context, unsettled) if unsettled else []
    read = [file for file in opened if file.problems != (AWAITED,)]
    fresh = [file for file in read if not file.known]
    runs = StoredRuns(adapters, issuer)
    others = {run.id for run in runs_behind(context, runs)} | ({also} - {""})
    reports = _report_runs(context, runs, fresh, others)
    return Ingested(
        files=len(fresh),
        rows=sum(file.rows for file in fresh),
        breaks=tuple(file.told for file in fresh if not file.settled),
        reports=reports,
        open_files=_count_open_files(adapters, _waiting(adapters, issuer, files)),
        unjudged=len(opened) - len(read),
    )


def _take_in_lasting(context: IssuerContext, files: Sequence[ResultObject]) -> list[IngestedFile]:
    """Read these files, except those that wait for something that has not changed; and again those
    about which more was decided by the time they were stored.

    Another process may have stored what follows from a later decision, and we wrote over it.
    """
    issuer = context.issuer.issuer
    basis = basis_of(context)
    fresh = [file for file in files if file.known is None or file.known.basis not in basis]
    taken = dict[str, IngestedFile]()
    erased = erased_people(context.adapters, issuer) if fresh else NOBODY
    while fresh:
        read = {file.result.entry.key: file for file in take_in(context, fresh, basis, erased)}
        taken |= {key: _after(taken.get(key), file) for key, file in read.items()}
        stored = [file for file in read.values() if not file.known]
        before = erased
        erased = erased_people(context.adapters, issuer)
        fresh = _behind(context, stored, whatever=erased.digests != before.digests)
    return list(taken.values())


def _after(before: IngestedFile | None, file: IngestedFile) -> IngestedFile:
    """Return what came of a file that was read twice."""
    if before is None:
        return file
    left = (before.runs | before.left | file.left) - file.runs
    return file._replace(left=left, known=before.known and file.known)


def _behind(
    context: IssuerContext, files: Sequence[IngestedFile], *, whatever: bool
) -> list[ResultObject]:
    """Return the files about which more was decided by now (`whatever`: all)."""
    entries = [file.result.entry for file in files]
    now = as_decided(context.adapters, context.issuer.issuer, entries)
    pairs = zip(now, files, strict=True)
    return [result for result, file in pairs if whatever or result.decided != file.result.decided]


def _report_runs(
    context: IssuerContext, runs: StoredRuns, files: Sequence[IngestedFile], others: Set[str]
) -> tuple[RunReport, ...]:
    """Bring the reports of the runs that these files touch, and of others, up to date."""
    touched = set(others)
    for file in files:
        touched |= (file.runs | file.left) - runs.without_ledger
    clean_up(context.adapters, *(keys_of(run).base for run in touched))
    in_order = newest_first(StoredRun.by_id(context.adapters, run) for run in touched)
    return tuple(_report(context, runs, run) for run in in_order)


def _report(context: IssuerContext, runs: StoredRuns, run: StoredRun) -> RunReport:
    with stage("report", run=run.id):
        return rebuild_lasting(context, run, runs)


def _waiting(adapters: Adapters, issuer: str, listed: Iterable[ResultObject]) -> list[KnownFile]:
    """Return the files that wait, of those that are listed; of others nothing is told any more."""
    present = {file_id(file.entry.key) for file in listed}
    waiting = [file for file in known_files(adapters, issuer).values() if not file.is_done]
    gone = [file for file in waiting if file.file not in present and file.told]
    forget_told(adapters, issuer, gone)
    return [file for file in waiting if file.file in present]


def _count_open_files(adapters: Adapters, waiting: Iterable[KnownFile]) -> int:
    """Count the files not fully matched: of no run, or of a run that is out of balance."""
    reported = [file for file in waiting if file.told]
    runs = set(chain.from_iterable(file.runs for file in reported))
    broken = {run for run in runs if _is_out_of_balance(adapters, run)}
    return sum(not file.runs or not broken.isdisjoint(file.runs) for file in reported)


def _is_out_of_balance(adapters: Adapters, run: str) -> bool:
    summary = StoredRun.by_id(adapters, run).summary
    return summary is not None and summary["verdict"] == OUT_OF_BALANCE
