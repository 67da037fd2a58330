"""All that is stored of cardholders, object by object, as `schemas.personal_data` names the places.

It reads every ledger of the issuer, and looks nothing up in what is derived from them (book,
report, lists), so what it finds is what an erasure has to remove, and an export has to show.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain

import polars as pl

from flows.extensions import hooks
from flows.runs.adapters import Adapters
from flows.runs.answers import run_answers
from flows.runs.context import IssuerContext
from flows.runs.decisions import CARDS, LINKS, decisions
from flows.runs.erased import Mention, NamedPeople, People, rows_of
from flows.runs.frames import from_parquet
from flows.runs.keys import placements, results
from flows.runs.persons import by_holder, holders_of
from flows.runs.placements import placements_key, read_placements
from flows.runs.single_links import SingleLink, prompted_singles
from flows.runs.store import Store, read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.runs.transactions import kept_reports
from schemas.ledger import SUBMITTED
from schemas.manifest import LedgerPart
from schemas.records import GivingUp, KeptLink, LinkKept, NamedCard

_IDENTITY = ["row", "cuid", "name_check", "address_check"]


def mentions(context: IssuerContext, people: People) -> Iterator[Mention]:
    """Yield every object of an issuer that names some of these cardholders, run by run."""
    stored = StoredRuns(context.adapters, context.issuer.issuer)
    kept = [stored.run(run) for run in stored.ids if str(run) not in stored.without_ledger]
    in_runs = list(chain.from_iterable(concurrently(lambda run: list(_in_run(run, people)), kept)))
    yield from in_runs
    store = context.adapters.store
    issuer = context.issuer.issuer
    runs = {each.run for each in in_runs if each.rows}
    for mentioned in hooks("mentions"):
        yield from mentioned(context, people, runs)
    singles = [
        single for single in prompted_singles(context.adapters, issuer) if _is_of(single, people)
    ]
    yield from map(_single, singles)
    yield from _in_reports(store, issuer, people)
    if isinstance(people, NamedPeople):
        yield from _decisions(context.adapters, issuer, people.cuids)


def _in_run(run: StoredRun, people: People) -> Iterator[Mention]:
    """Yield the objects of one run."""
    manifest = run.manifest
    if manifest is None:
        if any(True for _ in run.store.keys(run.keys.ledger)):
            yield Mention("unfinished", run.keys.ledger, (), run.id)
        return
    rows = set[int]()
    for part in manifest.ledger:
        named = list(_in_part(run, part, people))
        rows.update(chain.from_iterable(mention.rows for mention in named))
        yield from named
    yield from _in_outcomes(run, people, rows)
    singles = run.single_link_attempts
    yield from (_single(each) for each in singles if each.asked.row in rows or _is_of(each, people))
    if rows:
        numbers = tuple(sorted(rows))
        yield Mention("extracts", manifest.source.key, (), run.id, numbers)
        yield from _corrections(run, numbers)


def _corrections(run: StoredRun, rows: tuple[int, ...]) -> Iterator[Mention]:
    selection = run.committed().selection
    if selection is not None and selection.corrections is not None:
        yield Mention("corrections", selection.corrections.key, (), run.id, rows)


def _in_part(run: StoredRun, part: LedgerPart, people: People) -> Iterator[Mention]:
    """Yield what a part of the ledger has, the chunks with its rows, and their placements."""
    names = run.ledger_part(part, _IDENTITY)
    rows = names.filter(rows_of(people, names))["row"]
    if rows.is_empty():
        return
    ledger = run.ledger_part(part, None, pl.col("row").is_in(rows.implode()))
    numbers = tuple(rows.to_list())
    yield Mention("ledger", run.keys.ledger + part.name, ledger.to_dicts(), run.id, numbers)
    chunks = ledger.filter(fate=SUBMITTED)["chunk"].unique().sort()
    if run.purged_chunks is None:
        for number in chunks:
            yield Mention("chunks", run.sealed_chunks[number].key, (), run.id, numbers)
    known = read_placements(run, part).filter(pl.col("row").is_in(rows.implode()))
    if not known.is_empty():
        yield Mention("placements", placements_key(run, part), known.to_dicts(), run.id, numbers)
    folder = f"{run.keys.placements}messages/{part.name.partition('.')[0]}/"
    prefixes = tuple(f"{folder}{row:09d}-" for row in numbers)
    for entry in run.store.keys(folder):
        if entry.key.startswith(prefixes):
            text = read(run.store, entry.key).decode("utf-8", "replace")
            yield Mention("placements", entry.key, [{"message": text}], run.id, numbers)


def _in_outcomes(run: StoredRun, people: People, rows: Iterable[int]) -> Iterator[Mention]:
    """Yield what came of rows, and the result files that said so."""
    with run.adapters.database.snapshot() as connection:
        answers = run_answers(connection, run.issuer, run.id)
    named = answers.filter(are_outcomes_of(run, people, rows, answers))
    if named.is_empty():
        return
    facts = named.drop("content", "nth", "shape", "number").to_dicts()
    numbers = tuple(sorted(set(named["row"].drop_nulls())))
    yield Mention("outcomes", f"database, table answer, run {run.id}", facts, run.id, numbers)
    for name in named["file_name"].unique().sort():
        yield Mention("results", results(run.issuer) + name, (), run.id, numbers)


def are_outcomes_of(
    run: StoredRun, people: People, rows: Iterable[int], outcomes: pl.DataFrame
) -> pl.Series:
    """Return which outcomes are of these rows of a run, or name one of these cardholders."""
    is_row = (pl.col("run") == run.id) & pl.col("row").is_in(list(rows))
    return outcomes.select(is_row.fill_null(value=False)).to_series() | people.named_by(
        outcomes["cuid"]
    )


def _is_of(single: SingleLink, people: People) -> bool:
    return bool(people.named_by(pl.Series([single.asked.cuid])).item())


def is_under_way(single: Mention, since: datetime) -> bool:
    """Return whether a link was requested since then, and has no answer."""
    [facts] = single.facts
    return "outcome" not in facts and datetime.fromisoformat(facts["at"]) > since


def _single(single: SingleLink) -> Mention:
    answer = single.answered.model_dump(mode="json") if single.answered else {}
    facts = {**single.asked.model_dump(mode="json"), **answer}
    return Mention("single", single.place, [facts], single.run or "")


def _in_reports(store: Store, issuer: str, people: People) -> Iterator[Mention]:
    """Yield what is kept of the partner's transaction reports."""
    for key in kept_reports(store, issuer):
        report = from_parquet(read(store, key))
        named = report.filter(people.named_by(report["cuid"]))
        if not named.is_empty():
            yield Mention("placements", key, named.to_dicts())
            # the report itself was dropped by the partner
            yield Mention("results", f"{issuer}/transactions/", ())


def _decisions(adapters: Adapters, issuer: str, cuids: frozenset[str]) -> Iterator[Mention]:
    """Yield the decisions that are about cardholders, with these cards alone."""
    holders = holders_of(adapters, issuer)
    given_up = decisions(adapters, issuer, CARDS, GivingUp)
    kept = decisions(adapters, issuer, LINKS, LinkKept)
    named: list[tuple[GivingUp | LinkKept, Sequence[NamedCard | KeptLink]]] = [
        *((record, by_holder(record.cards, holders)) for record in given_up),
        *((record, by_holder(record.links, holders)) for record in kept),
    ]
    for record, cards in named:
        own = [card._asdict() for card in cards if card.holder in cuids]
        if own:
            facts = record.model_dump(mode="json")
            shown = {name: facts[name] for name in ("at", "by", "reason", "what")}
            where = f"database: decision of {record.at.isoformat()}"
            yield Mention("decisions", where, [{**shown, "cards": own}])


def is_in_placements(issuer: str, key: str) -> bool:
    """Return whether a key is of what is kept of transaction reports."""
    return key.startswith(f"{placements(issuer)}reports/")
