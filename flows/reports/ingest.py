"""Ingest: take in new result files, then bring the reports of all runs they touch up to date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from flows.errors import TryAgainError
from flows.redaction import redact
from flows.reports.rebuild import RunReport, rebuild_lasting
from flows.reports.summary import OUT_OF_BALANCE
from flows.results import intake
from flows.results.attribution import chain_of, decisions
from flows.results.intake import IngestedFile, ResultObject, Waiting
from flows.results.lineage import newest_first
from flows.results.opening import AWAITED, may_pass
from flows.runs.claim import clean_up
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, read_summary, without_ledger
from flows.runs.keys import ingested, results
from flows.runs.store import Store


class ListedLateError(TryAgainError):
    """The store does not list an object just written, so a report would miss it."""

    message = "{key} was written, but the store does not list it yet. The run's report was left unchanged."
    next_step = "Run the same command again in a minute."


class Ingested(NamedTuple):
    """What one call took in: files, their rows, rows it could not place, and the reports it brought up to date.

    Files whose outcome has not changed count only among `open_files`, those whose breaks are open.
    """

    files: int
    rows: int
    breaks: tuple[str, ...]
    reports: tuple[RunReport, ...]
    open_files: int = 0
    unjudged: int = 0  # files that were not read, since the malware scanner has not judged them


def ingest(context: IssuerContext, also: str = "") -> Ingested:
    """Attribute every new result file, rebuild the reports of the runs they touch (and of `also`), mark the files.

    Runs whose rows were resent by those runs are reported too, since the state of their rows has changed.
    The markers come last: killed before, the next call does it all again, with the same outcome.
    """
    store, name = context.adapters.store, context.issuer.issuer
    markers, waiting = intake.read_markers(store, name), intake.read_waiting(store, name)
    decided = decisions(store, name)
    files = [ResultObject(entry, decided.get(chain_of(name, entry.key), ())) for entry in store.keys(results(name))]
    new = [file for file in files if file.mark not in markers]
    basis = intake.basis_of(context) if new else None
    still = {file.mark: one for file in new if (one := waiting.get(file.mark)) and basis and one.basis in basis}
    fresh = [file for file in new if file.mark not in still]
    opened = list(intake.take_in(context, fresh, waiting)) if fresh else []
    taken = [one for one in opened if one.problems != (AWAITED,)]
    told = [one for one in taken if not one.known]
    purged = without_ledger(store, name) if told else frozenset()
    touched = {run for one in told for run in one.runs | one.left} - purged | ({also} if also else set())
    clean_up(context.adapters, ingested(name), *(keys_of(run).base for run in touched))
    kept = {key for one in told for key in one.kept}
    reports = tuple(_report(context, run, kept) for run in newest_first(store, touched))
    lasting = {one.found.mark: _waits(one, waiting, basis, purged) for one in taken if not one.done} if basis else {}
    if (now := still | lasting) != waiting:
        intake.write_waiting(store, name, now)
    intake.write_markers(store, name, {one.found.mark: one.found.entry for one in taken if one.done})
    breaks = tuple(now[one.found.mark].told for one in told if not one.settled)
    rows = sum(one.rows for one in told)
    return Ingested(len(told), rows, breaks, reports, _open_files(store, now.values()), len(opened) - len(taken))


def _waits(one: IngestedFile, waiting: Mapping[str, Waiting], basis: tuple[str, str], purged: Set[str]) -> Waiting:
    """Return the record of a file that waits: to be read again when its basis changes, or each time."""
    trouble = "" if one.settled or one.known else one.trouble(purged)
    told = waiting[one.found.mark].told if one.known else trouble
    known = "" if may_pass(one.problems) else basis[one.settled]
    runs = tuple(sorted(one.runs))
    return Waiting(file=redact(one.found.entry.key), basis=known, outcome=one.outcome, runs=runs, told=told)


def _open_files(store: Store, waiting: Iterable[Waiting]) -> int:
    """Count the files with open breaks: those of no run, and those of a run that is out of balance."""
    told = [one for one in waiting if one.told]
    runs = {run for one in told for run in one.runs}
    found = {run: read_summary(store, keys_of(run)) for run in runs}
    broken = {run for run, summary in found.items() if summary and summary["verdict"] == OUT_OF_BALANCE}
    return sum(not one.runs or not broken.isdisjoint(one.runs) for one in told)


def _report(context: IssuerContext, run: str, kept: Set[str]) -> RunReport:
    """Rebuild a run's report; ListedLateError where the store does not list yet what was written just now."""
    store, prefix = context.adapters.store, keys_of(run).outcomes
    hidden = {key for key in kept if key.startswith(prefix)} - {entry.key for entry in store.keys(prefix)}
    if hidden:
        raise ListedLateError(key=min(hidden))
    return rebuild_lasting(context, run)
