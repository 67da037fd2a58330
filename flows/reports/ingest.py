"""Ingest: take in new result files, then bring the reports of all runs they touch up to date."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from flows.errors import TryAgainError
from flows.reports.rebuild import RunReport, rebuild_lasting
from flows.results.decisions import chain_of, decisions
from flows.results.intake import ResultObject, read_markers, take_in, write_markers
from flows.results.lineage import newest_first
from flows.runs.claim import clean_up
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, without_ledger
from flows.runs.keys import ingested, results


class ListedLateError(TryAgainError):
    """The store does not list an object just written, so a report would miss it."""

    message = "{key} was written, but the store does not list it yet. The run's report was left unchanged."
    next_step = "Run the same command again in a minute."


class Ingested(NamedTuple):
    """What one call took in: files, their rows, rows it could not place, and the reports it brought up to date."""

    files: int
    rows: int
    breaks: tuple[str, ...]
    reports: tuple[RunReport, ...]


def ingest(context: IssuerContext, also: str = "") -> Ingested:
    """Attribute every new result file, rebuild the reports of the runs they touch (and of `also`), mark the files.

    Runs whose rows were resent by those runs are reported too, since the state of their rows has changed.
    The markers come last: killed before, the next call does it all again, with the same outcome.
    """
    store, name = context.adapters.store, context.issuer.issuer
    markers = read_markers(store, name)
    decided = decisions(store, name)
    files = [ResultObject(entry, decided.get(chain_of(name, entry.key), ())) for entry in store.keys(results(name))]
    fresh = [file for file in files if file.mark not in markers]
    taken = list(take_in(context, fresh)) if fresh else []
    purged = without_ledger(store, name) if taken else frozenset()
    touched = {run for one in taken for run in one.runs} - purged | ({also} if also else set())
    clean_up(context.adapters, ingested(name), *(keys_of(run).base for run in touched))
    kept = {key for one in taken for key in one.kept}
    reports = tuple(_report(context, run, kept) for run in newest_first(store, touched))
    write_markers(store, name, {one.found.mark: one.found.entry for one in taken if one.settled})
    rows = sum(one.rows for one in taken)
    return Ingested(len(taken), rows, tuple(one.trouble(purged) for one in taken if not one.settled), reports)


def _report(context: IssuerContext, run: str, kept: Set[str]) -> RunReport:
    """Rebuild a run's report; ListedLateError where the store does not list yet what was written just now."""
    store, prefix = context.adapters.store, keys_of(run).outcomes
    hidden = {key for key in kept if key.startswith(prefix)} - {entry.key for entry in store.keys(prefix)}
    if hidden:
        raise ListedLateError(key=min(hidden))
    return rebuild_lasting(context, run)
