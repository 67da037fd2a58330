"""Write anew or delete what names erased cardholders, object by object."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import polars as pl

from flows.book.upkeep import forget_book
from flows.extensions import hooks
from flows.extensions.privacy.personal_data import are_outcomes_of, is_in_placements
from flows.reports.across import reconcile_runs
from flows.reports.lists import write_unsent
from flows.reports.rebuild import rebuild_lasting
from flows.runs.answers import erase_answers
from flows.runs.context import IssuerContext
from flows.runs.decisions import LEDGER, decisions_by_subject
from flows.runs.erased import Mention, People
from flows.runs.frames import from_parquet, write_parquet
from flows.runs.journal import enter
from flows.runs.keys import reconciliation
from flows.runs.ledger_rewriting import erase_from_ledger
from flows.runs.persons import forget_persons
from flows.runs.placements import mark_check, placements_key, read_placements
from flows.runs.single_links import remove_singles, with_ids
from flows.runs.store import Cleaner, read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import LedgerPart
from schemas.records import LedgerRewritten

_IN_RUN = ("ledger", "outcomes", "placements", "single")


def erase_mentions(
    context: IssuerContext,
    cleaner: Cleaner,
    people: People,
    named: Collection[Mention],
    signed: Mapping[str, Any],
    since: datetime,
) -> None:
    """Take these cardholders out of all but what others have to confirm first.

    `since`: when that began, perhaps by a process that died.
    """
    rows = defaultdict[str, set[int]](set)
    for mention in named:
        if mention.place in _IN_RUN and mention.run:
            rows[mention.run].update(mention.rows)
    for run, numbers in sorted(rows.items()):
        stored = StoredRun.by_id(context.adapters, run)
        _erase_in_run(context, cleaner, stored, people, sorted(numbers), signed)
    _erase_singles(context, [key.partition("/")[2] for key in _keys_in("single", named)])
    for erase_others in hooks("erase"):
        erase_others(context, cleaner, named)
    for key in _keys_in("placements", named):
        if is_in_placements(context.issuer.issuer, key):
            _erase_in_report(context, people, key)
    forget_persons(context.adapters, context.issuer.issuer, people)
    for run in sorted({*rows, *_rewritten_since(context, since)}):
        _report(context, StoredRun.by_id(context.adapters, run))
    _derive_anew(context, cleaner)


def _erase_singles(context: IssuerContext, ids: Collection[str]) -> None:
    if ids:
        removing = partial(remove_singles, which=with_ids(ids))
        enter(context.adapters, context.issuer.issuer, "single links erased", removing)


def _keys_in(place: str, named: Iterable[Mention]) -> list[str]:
    return [mention.key for mention in named if mention.place == place]


# A run
# --------------------------------------------------------------------------------------------------


def _erase_in_run(
    context: IssuerContext,
    cleaner: Cleaner,
    run: StoredRun,
    people: People,
    rows: Sequence[int],
    signed: Mapping[str, Any],
) -> None:
    """Take rows out of a run; last out of its ledger, by which they are found."""
    erase_answers(
        *(context.adapters, run.issuer, run.id),
        lambda answers: are_outcomes_of(run, people, rows, answers),
    )
    for part in run.committed().ledger:
        _erase_in_placements(cleaner, run, part, rows)
    erase_from_ledger(cleaner, run, rows, signed)


def _erase_in_placements(
    cleaner: Cleaner, run: StoredRun, part: LedgerPart, rows: Sequence[int]
) -> None:
    """Take rows out of what the service said of links."""
    known = read_placements(run, part)
    others = known.filter(~pl.col("row").is_in(rows))
    folder = f"{run.keys.placements}messages/{part.name.partition('.')[0]}/"
    prefixes = tuple(f"{folder}{row:09d}-" for row in rows)
    for entry in list(run.store.keys(folder)):
        if entry.key.startswith(prefixes):
            cleaner.delete(entry.key)
    if others.height < known.height:
        write_parquet(run.store, placements_key(run, part), others)
        mark_check(run)


def _rewritten_since(context: IssuerContext, since: datetime) -> Iterator[str]:
    """Yield the runs whose ledger was written anew since then: their reports may be older."""
    issuer = context.issuer.issuer
    purged = StoredRuns(context.adapters, issuer).without_ledger
    by_run = decisions_by_subject(context.adapters, issuer, LEDGER, LedgerRewritten)
    for run, records in by_run.items():
        if run not in purged and any(record.at >= since for record in records):
            yield run


def _report(context: IssuerContext, run: StoredRun) -> None:
    """Write the report of a run anew, or the lists that it had before it had a report."""
    fresh = run.fresh()
    if fresh.summary is not None:
        rebuild_lasting(context, fresh)
    elif any(True for _ in run.store.keys(run.keys.report(""))):
        write_unsent(fresh, fresh.committed(), portfolio=context.issuer.full_portfolio)


# An issuer
# --------------------------------------------------------------------------------------------------


def _erase_in_report(context: IssuerContext, people: People, key: str) -> None:
    """Take cardholders out of a transaction report that was kept."""
    store = context.adapters.store
    report = from_parquet(read(store, key))
    write_parquet(store, key, report.filter(~people.named_by(report["cuid"])))


def _derive_anew(context: IssuerContext, cleaner: Cleaner) -> None:
    """Discard the book and the report across runs, and make both anew."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    forget_book(context.adapters, issuer)
    across = list(store.keys(reconciliation(issuer)))
    for entry in across:
        cleaner.delete(entry.key)
    if across:
        reconcile_runs(context)
