"""Write anew or delete what names erased cardholders, object by object.

What is written once is written anew under another key, which is recorded, before the old object
goes; so a process that is killed leaves either, and whoever goes on finds what is left. Rows stay
where they were counted: their records have their place and a reason, and nothing of a person.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import polars as pl

from flows.book.upkeep import forget_book
from flows.extensions import hooks
from flows.operations.personal_data import are_outcomes_of, is_in_placements
from flows.reports.across import reconcile_runs
from flows.reports.lists import write_unsent
from flows.reports.rebuild import rebuild_lasting
from flows.runs.adapters import Adapters
from flows.runs.answers import erase_answers
from flows.runs.context import IssuerContext
from flows.runs.decisions import LEDGER, count_decisions, decide, decisions_by_subject
from flows.runs.erased import Mention, People
from flows.runs.frames import from_parquet, write_parquet
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from flows.runs.keys import reconciliation
from flows.runs.persons import forget_persons
from flows.runs.placements import mark_check, placements_key, read_placements
from flows.runs.single_links import remove_singles, with_ids
from flows.runs.store import Cleaner, read, write_once
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import LedgerPart
from schemas.reasons import ERASED
from schemas.records import LedgerRewritten, RewrittenPart
from schemas.tables import parquet

_IN_RUN = ("ledger", "outcomes", "placements", "single")
_PLACE_OF_ROW = ("row", "line", "fate", "chunk", "position", "origin")


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
    parts = _write_ledger_anew(context.adapters, run, rows, signed)
    for anew in parts:
        for entry in list(run.store.keys(run.keys.ledger + anew.name.removesuffix(".parquet"))):
            if _number_of(entry.key) < _number_of(anew.now):  # a later one is another erasure's
                cleaner.delete(entry.key)


def _write_ledger_anew(
    adapters: Adapters, run: StoredRun, rows: Sequence[int], signed: Mapping[str, Any]
) -> tuple[RewrittenPart, ...]:
    """Write and record what the ledger is without these rows; once more where another erasure
    recorded its own meanwhile, and may have removed what we wrote.
    """
    while True:
        now = run.fresh()
        number = count_decisions(adapters, run.issuer, LEDGER, run.id)
        rewritten = [_rewritten(now, part, rows) for part in now.committed().ledger]
        parts = tuple(part for part in rewritten if part is not None)
        record = LedgerRewritten(**signed, parts=parts)
        if not parts or _is_recorded(adapters, run, record, number, len(rows)):
            return parts


def _is_recorded(
    adapters: Adapters, run: StoredRun, record: LedgerRewritten, seen: int, rows: int
) -> bool:
    """Record parts that are written anew without so many rows; False where there are more records
    than were seen.
    """

    def work(act: Act) -> bool:
        within = adapters.within(act.connection)
        if count_decisions(within, run.issuer, LEDGER, run.id) != seen:
            return False
        decide(act, LEDGER, run.id, record)
        act.facts["rows"] = rows
        return True

    return enter(adapters, run.issuer, "erased", work, run=run.id)


def _number_of(name: str) -> int:
    """Return how often a part of a ledger was written anew, by its name; 0 for the first."""
    number = name.removesuffix(".parquet").partition("-erased-")[2]
    return int(number or 0)


def _rewritten(run: StoredRun, part: LedgerPart, rows: Sequence[int]) -> RewrittenPart | None:
    """Write a part of the ledger anew without what it has of these rows; None where it has none."""
    ledger = run.ledger_part(part)
    is_erased = pl.col("row").is_in(rows)
    if not ledger.select(is_erased.any()).item():
        return None
    code = pl.concat_list("reasons", pl.lit(f"|{ERASED}"))
    facts = {name: pl.lit(None) for name in ledger.columns if name not in _PLACE_OF_ROW}
    facts |= {"cuid_made": pl.lit(value=False), "reasons": code}
    anew = ledger.with_columns(
        pl.when(is_erased).then(fact).otherwise(pl.col(name)).cast(ledger.schema[name]).alias(name)
        for name, fact in facts.items()
    )
    name = part.name.removesuffix(".parquet")
    count = 1 + sum(1 for _ in run.store.keys(f"{run.keys.ledger}{name}-erased-"))
    earlier = run.rewritten_parts.get(part.name)
    if earlier is not None:
        count = max(count, 1 + _number_of(earlier.now))
    now = f"{name}-erased-{count}.parquet"
    content = parquet(anew, compression="zstd", statistics=True)
    write_once(run.store, run.keys.ledger + now, content)
    return RewrittenPart(part.name, now, digest(content))


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
