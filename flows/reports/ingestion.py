"""Ingest: take in new result files, then bring the reports of all runs they touch up to date."""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from flows.errors import TryAgainError
from flows.reports.behind import runs_behind
from flows.reports.rebuild import RunReport, rebuild_lasting
from flows.reports.verdicts import OUT_OF_BALANCE
from flows.results.batches import ResultObject
from flows.results.dropped import as_decided, result_files
from flows.results.intake import IngestedFile, take_in
from flows.results.lineage import newest_first
from flows.results.markers import (
    Basis,
    Waiting,
    basis_of,
    read_markers,
    read_waiting,
    write_markers,
    write_waiting,
)
from flows.results.masking import mask_key
from flows.results.opening import AWAITED
from flows.results.problems import is_temporary
from flows.runs.adapters import Adapters
from flows.runs.claim import clean_up
from flows.runs.context import IssuerContext
from flows.runs.erased import NOBODY, ErasedPeople, erased_people
from flows.runs.keys import ingested, keys_of
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.tracing import stage


class ListedLateError(TryAgainError):
    """The store does not list an object just written, so a report would miss it."""

    message = (
        "{key} was written, but the store does not list it yet."
        " The run's report was left unchanged."
    )
    next_step = "Run {same_command} again in a minute."


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


class _TakenIn(NamedTuple):
    """The result files that are not done: those read now, and those that need not be read."""

    read: list[IngestedFile]
    skipped: dict[str, Waiting]  # not read, since what they wait for has not changed
    basis: Basis  # what the outcomes of all depend on
    unjudged: int

    def after(self, later: "_TakenIn") -> "_TakenIn":
        """Return the same once some of its files were read again (`later`)."""
        anew = {file.result.entry.key for file in later.read}
        before = [file for file in self.read if file.result.entry.key not in anew]
        return self._replace(read=[*before, *later.read], unjudged=self.unjudged + later.unjudged)

    @property
    def done(self) -> dict[str, Entry]:
        """The objects of those of `read` that need not be read again, by their marks."""
        return {file.result.mark: file.result.entry for file in self.read if file.done}

    @property
    def with_new_outcome(self) -> list[IngestedFile]:
        """Those of `read` that are new, or have another outcome than when they were read last."""
        return [file for file in self.read if not file.known]


def ingest(context: IssuerContext, also: str = "") -> Ingested:
    """Attribute every new result file, rebuild the reports of the runs they touch, mark the files.

    The run `also` is reported too, those whose report is behind what is recorded (`behind.py`), and
    runs whose rows were resent by those runs, since the state of their rows has changed. The
    markers come last: killed before, the next call does it all again, with the same outcome.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    markers = read_markers(store, issuer)
    waiting = read_waiting(store, issuer)
    files = [file for file in result_files(context.adapters, issuer) if file.mark not in markers]
    with stage("match results", files=len(files)):
        taken = _take_in_lasting(context, files, waiting)
    reported = taken.with_new_outcome
    runs = StoredRuns(context.adapters, issuer)
    others = {run.id for run in runs_behind(context, runs)} | ({also} - {""})
    purged = runs.without_ledger if reported else frozenset()
    reports = _report_runs(context, runs, reported, others)
    still_waiting = taken.skipped | _waiting_records(taken, waiting, purged)
    if still_waiting != waiting:
        write_waiting(store, issuer, still_waiting)
    write_markers(store, issuer, taken.done)
    return Ingested(
        files=len(reported),
        rows=sum(file.rows for file in reported),
        breaks=tuple(still_waiting[file.result.mark].told for file in reported if not file.settled),
        reports=reports,
        open_files=_count_open_files(context.adapters, still_waiting.values()),
        unjudged=taken.unjudged,
    )


def _take_in_lasting(
    context: IssuerContext, files: Sequence[ResultObject], waiting: Mapping[str, Waiting]
) -> _TakenIn:
    """Read these files, and again those whose outcomes were behind when they were stored.

    Another process may have stored what follows from a later decision, and we wrote over it.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    erased = erased_people(store, issuer) if files else NOBODY
    taken = _take_in(context, files, waiting, erased)
    while kept := [file for file in taken.read if file.kept]:
        erased_by_now = erased_people(store, issuer)
        behind = _behind(context, kept, whatever=erased.digests != erased_by_now.digests)
        if not behind:
            break
        erased = erased_by_now
        answered = {file.mark: _as_stored(file, old.runs) for file, old in behind}
        taken = taken.after(_take_in(context, [file for file, _ in behind], answered, erased))
    return taken


def _behind(
    context: IssuerContext, kept: Sequence[IngestedFile], *, whatever: bool
) -> list[tuple[ResultObject, IngestedFile]]:
    """Return the files about which more was decided by now (`whatever`: all), each with what was
    stored of it.
    """
    entries = [file.result.entry for file in kept]
    now = as_decided(context.adapters, context.issuer.issuer, entries)
    files = zip(now, kept, strict=True)
    return [(result, file) for result, file in files if whatever or result != file.result]


def _as_stored(file: ResultObject, runs: Iterable[str]) -> Waiting:
    """Return the record of a file that is to be read again, and had answered these runs."""
    name = mask_key(file.entry.key)
    return Waiting(file=name, basis="", outcome="", runs=tuple(sorted(runs)), told="")


def _take_in(
    context: IssuerContext,
    files: Sequence[ResultObject],
    waiting: Mapping[str, Waiting],
    erased: ErasedPeople,
) -> _TakenIn:
    """Read these files, except those that wait for something that has not changed."""
    if not files:
        return _TakenIn([], {}, Basis("", ""), unjudged=0)
    basis = basis_of(context)
    skipped: dict[str, Waiting] = {}
    fresh: list[ResultObject] = []
    for file in files:
        record = waiting.get(file.mark)
        if record is not None and record.basis in basis:
            skipped[file.mark] = record
        else:
            fresh.append(file)
    opened = list(take_in(context, fresh, waiting, erased)) if fresh else []
    judged = [file for file in opened if file.problems != (AWAITED,)]
    return _TakenIn(judged, skipped, basis, len(opened) - len(judged))


def _report_runs(
    context: IssuerContext, runs: StoredRuns, files: Sequence[IngestedFile], others: Set[str]
) -> tuple[RunReport, ...]:
    """Bring the reports of the runs that these files touch, and of others, up to date."""
    touched = set(others)
    stored: set[str] = set()
    for file in files:
        touched |= (file.runs | file.left) - runs.without_ledger
        stored |= set(file.kept)
    prefixes = [keys_of(run).base for run in touched]
    clean_up(context.adapters, ingested(context.issuer.issuer), *prefixes)
    in_order = newest_first(StoredRun.by_id(context.adapters, run) for run in touched)
    return tuple(_report(context, runs, run, stored) for run in in_order)


def _report(
    context: IssuerContext, runs: StoredRuns, run: StoredRun, stored: Set[str]
) -> RunReport:
    """Rebuild a run's report.

    Raises ListedLateError where the store does not list yet what was stored just now.
    """
    prefix = run.keys.outcomes
    listed = {entry.key for entry in run.store.keys(prefix)}
    hidden = [key for key in stored if key.startswith(prefix) and key not in listed]
    if hidden:
        raise ListedLateError(key=min(hidden))
    with stage("report", run=run.id):
        return rebuild_lasting(context, run, runs)


def _waiting_records(
    taken: _TakenIn, waiting: Mapping[str, Waiting], purged: Set[str]
) -> dict[str, Waiting]:
    """Return the records of the files that were read and are not done."""
    return {
        file.result.mark: _waiting_record(file, waiting, taken.basis, purged)
        for file in taken.read
        if not file.done
    }


def _waiting_record(
    file: IngestedFile, waiting: Mapping[str, Waiting], basis: Basis, purged: Set[str]
) -> Waiting:
    """Return the record of a file that waits.

    It is read again when its basis changes, or each time.
    """
    return Waiting(
        file=mask_key(file.result.entry.key),
        basis=_depends_on(file, basis),
        outcome=file.outcome,
        runs=tuple(sorted(file.runs)),
        told=_reported(file, waiting, purged),
    )


def _depends_on(file: IngestedFile, basis: Basis) -> str:
    """Return the digest of what can change a file's outcome; empty where it is read each time."""
    if is_temporary(file.problems):
        return ""
    # Every row found its sent row, so what waits is a URL that is no link: only what links are
    # judged by can change that. Other rows may also find a run that is committed later.
    return basis.links if file.settled else basis.all


def _reported(file: IngestedFile, waiting: Mapping[str, Waiting], purged: Set[str]) -> str:
    """Return what is reported of a file; empty where the report of its run says all."""
    if file.known:
        return waiting[file.result.mark].told
    if file.settled:
        return ""
    return file.trouble(purged)


def _count_open_files(adapters: Adapters, waiting: Iterable[Waiting]) -> int:
    """Count the files not fully matched: of no run, or of a run that is out of balance."""
    reported = [file for file in waiting if file.told]
    runs = set(chain.from_iterable(file.runs for file in reported))
    broken = {run for run in runs if _is_out_of_balance(adapters, run)}
    return sum(not file.runs or not broken.isdisjoint(file.runs) for file in reported)


def _is_out_of_balance(adapters: Adapters, run: str) -> bool:
    summary = StoredRun.by_id(adapters, run).summary
    return summary is not None and summary["verdict"] == OUT_OF_BALANCE
