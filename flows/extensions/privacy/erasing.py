"""Write anew or delete what names erased cardholders, object by object."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from flows.book.upkeep import forget_book
from flows.extensions import hooks
from flows.extensions.privacy.personal_data import are_outcomes_of
from flows.reports.across import reconcile_runs
from flows.reports.lists import write_unsent
from flows.reports.rebuild import rebuild_lasting
from flows.runs.answers import erase_answers
from flows.runs.context import IssuerContext
from flows.runs.decisions import LEDGER, decisions_by_subject
from flows.runs.erased import Mention, People
from flows.runs.journal import enter
from flows.runs.keys import reconciliation
from flows.runs.ledger_rewriting import erase_from_ledger
from flows.runs.persons import forget_persons
from flows.runs.single_links import remove_singles, with_ids
from flows.runs.store import Cleaner
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.records import LedgerRewritten

_IN_RUN = ("ledger", "outcomes", "single")


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
    for erase_others in hooks("erase"):
        erase_others(context, cleaner, people, named)
    rows = defaultdict[str, set[int]](set)
    for mention in named:
        if mention.place in _IN_RUN and mention.run:
            rows[mention.run].update(mention.rows)
    for run, numbers in sorted(rows.items()):
        stored = StoredRun.by_id(context.adapters, run)
        _erase_in_run(context, cleaner, stored, people, sorted(numbers), signed)
    _erase_singles(context, [key.partition("/")[2] for key in _keys_in("single", named)])
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
    erase_from_ledger(cleaner, run, rows, signed)


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
