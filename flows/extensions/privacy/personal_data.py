"""All that is stored of cardholders, object by object: where, why, and until when.

It reads every ledger of the issuer, and looks nothing up in what is derived from them (book,
report, lists), so what it finds is what an erasure has to remove, and an export has to show.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import chain

import polars as pl

from flows.extensions import hooks
from flows.runs.adapters import Adapters
from flows.runs.answers import run_answers
from flows.runs.context import IssuerContext
from flows.runs.decisions import CARDS, LINKS, decisions
from flows.runs.erased import IDENTITY, Mention, NamedPeople, People, Place, rows_of
from flows.runs.keys import results
from flows.runs.persons import by_holder, holders_of
from flows.runs.single_links import SingleLink, prompted_singles
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.ledger import SUBMITTED
from schemas.manifest import LedgerPart
from schemas.records import GivingUp, KeptLink, LinkKept, NamedCard

PLACES = {
    "extracts": Place(
        "all that the issuer wrote: name, address, e-mail, phone",
        "to make the request for a link",
        "the issuer's lifecycle rule; delete the person at the source, too",
        erased=False,
    ),
    "corrections": Place(
        "the fields of rows that somebody corrected",
        "to send these rows again",
        "the issuer's lifecycle rule",
        erased=False,
    ),
    "chunks": Place(
        "the row as it was sent, encrypted to the partner",
        "to be uploaded",
        "[retention] chunks_days after the last answer",
        erased=False,
    ),
    "results": Place(
        "what the partner wrote: cuid, last 4, link, error",
        "evidence of what the partner answered",
        "the issuer's lifecycle rule, not before [retention] ledger_days",
        erased=False,
    ),
    "ledger": Place(
        "cuid, last 4, expiry month, what was decided; of name and address a checksum of 32 bits",
        "to send nobody twice, and to say where each stands; book and reports repeat it",
        "[retention] ledger_days after the last answer",
        erased=True,
    ),
    "outcomes": Place(
        "cuid, last 4, personal link and its last day, the partner's reason",
        "so that links arrive; lists, pages and reports repeat it",
        "[retention] ledger_days after the last answer",
        erased=True,
    ),
    "single": Place(
        "cuid, last 4, expiry month, link, who requested it",
        "a link is never requested twice",
        "[retention] ledger_days; one that was typed in, until its link ends",
        erased=True,
    ),
    "decisions": Place(
        "cuid and last 4, the reason that an operator typed, who decided",
        "decisions bind later runs, and are evidence of who decided",
        "not purged; an erasure leaves what was decided, and not about whom",
        erased=True,
    ),
    "unfinished": Place(
        "the ledger of a run that was never committed",
        "to go on with the run",
        "the run is abandoned, and purged",
        erased=False,
    ),
}


@cache
def places() -> dict[str, Place]:
    """Return all places by name, those of extensions too."""
    every = dict(PLACES)
    for of_extension in hooks("places"):
        every |= of_extension()
    return every


def place_of(name: str) -> Place:
    """Return a place by its name."""
    return places()[name]


def mentions(context: IssuerContext, people: People) -> Iterator[Mention]:
    """Yield every object of an issuer that names some of these cardholders, run by run."""
    stored = StoredRuns(context.adapters, context.issuer.issuer)
    kept = [stored.run(run) for run in stored.ids if str(run) not in stored.without_ledger]
    in_runs = list(chain.from_iterable(concurrently(lambda run: list(_in_run(run, people)), kept)))
    yield from in_runs
    issuer = context.issuer.issuer
    runs = {each.run for each in in_runs if each.rows}
    for mentioned in hooks("mentions"):
        yield from mentioned(context, people, runs)
    singles = [
        single for single in prompted_singles(context.adapters, issuer) if _is_of(single, people)
    ]
    yield from map(_single, singles)
    if isinstance(people, NamedPeople):
        yield from _decisions(context.adapters, issuer, people)


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
    """Yield what a part of the ledger has, and the chunks with its rows."""
    names = run.ledger_part(part, IDENTITY)
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


def _decisions(adapters: Adapters, issuer: str, people: People) -> Iterator[Mention]:
    """Yield the decisions that are about cardholders, with these cards alone."""
    holders = holders_of(adapters, issuer)
    known = pl.Series(sorted(holders.values()), dtype=pl.String)
    own_holders = frozenset(known.filter(people.named_by(known)))
    given_up = decisions(adapters, issuer, CARDS, GivingUp)
    kept = decisions(adapters, issuer, LINKS, LinkKept)
    named: list[tuple[GivingUp | LinkKept, Sequence[NamedCard | KeptLink]]] = [
        *((record, by_holder(record.cards, holders)) for record in given_up),
        *((record, by_holder(record.links, holders)) for record in kept),
    ]
    for record, cards in named:
        own = [card._asdict() for card in cards if card.holder in own_holders]
        if own:
            facts = record.model_dump(mode="json")
            shown = {name: facts[name] for name in ("at", "by", "reason", "what")}
            where = f"database: decision of {record.at.isoformat()}"
            yield Mention("decisions", where, [{**shown, "cards": own}])
