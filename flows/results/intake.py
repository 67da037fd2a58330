"""Ingest result files: read them, attribute every row to the row it answers, store the answers.

What a batch of files says is stored in one act. So an ingest that is killed leaves files that are
ingested whole, and files of which nothing is known yet. Whatever one file holds, the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import accumulate
from typing import NamedTuple

import polars as pl
from sqlalchemy import update

from flows.results.attribution import attribute_claims
from flows.results.batches import Batch, ResultObject, claims_of, read_batches, read_file
from flows.results.confirmed_forms import link_rules
from flows.results.known_files import Basis
from flows.results.links import LinkRules
from flows.results.masking import mask_key
from flows.results.opening import AWAITED
from flows.results.problems import describe, is_temporary
from flows.results.read import UNFORESEEN, ResultRows, failed
from flows.results.sent_rows import ByHand, SentIndex, named_in
from flows.runs.answers import FileState, ReadResult, store_results
from flows.runs.context import IssuerContext
from flows.runs.erased import NOBODY, ErasedPeople
from flows.runs.events import ANSWERED
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from flows.runs.outcomes import Attributed
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import prefetch
from schemas.breaks import FOREIGN_FILE, KINDS, NO_LINK, UNKNOWN_CUID, BreakKind
from schemas.database import RESULT_FILE

LATE = "Leave the file, and ask the partner why it comes so late."


class IngestedFile(NamedTuple):
    """One ingested result file: its runs, its rows, how many (`lost`) belong to no sent row."""

    result: ResultObject
    problems: tuple[str, ...]
    rows: int
    runs: frozenset[str]
    lost: int
    refused: bool  # it has URLs that are no links, or days that cannot be read, by the settings
    lost_as: str = ""  # the break of the lost rows; of several the first
    outcome: str = ""  # a digest of what came of its rows, where that may change
    told: str = ""  # what is reported of it; empty where the report of its run says all
    left: frozenset[str] = frozenset()  # runs that it answered before
    known: bool = False  # reported before, with this outcome

    @property
    def settled(self) -> bool:
        """True where every row was attributed."""
        return not self.lost and not self.problems

    @property
    def done(self) -> bool:
        """True where nothing can change its outcome any more: it is not read again."""
        return self.settled and not self.refused

    def trouble(self, purged: Set[str]) -> str:
        """Return what was not attributed, why, and what to do.

        Nothing is attributed to `purged` runs, whose ledgers are gone.
        """
        wrong, then = describe(self.problems)
        if self.lost:
            why = wrong or self._why_lost(purged)
            wrong = f"{self.lost} of {self.rows} rows belong to no sent row ({why})"
            advice = LATE if self._purged_runs(purged) else str(self._lost_kind.then)
            then = advice if self.lost == self.rows else then or advice
        return f"{mask_key(self.result.entry.key)}: {wrong}. {then}"

    def _why_lost(self, purged: Set[str]) -> str:
        named = self._purged_runs(purged)
        if named:
            return f"run {min(named)} is purged"
        if self.lost_as in ("", UNKNOWN_CUID, FOREIGN_FILE):
            return "no run of this issuer sent them"
        return self._lost_kind.meaning.rstrip(".")

    def _purged_runs(self, purged: Set[str]) -> Set[str]:
        return purged & {run for run, _ in named_in(self.result.entry.key)}

    @property
    def _lost_kind(self) -> BreakKind:
        if self.lost == self.rows:
            return KINDS[FOREIGN_FILE]
        return KINDS[self.lost_as or UNKNOWN_CUID]


def examine(context: IssuerContext, result: ResultObject) -> tuple[ResultRows, Attributed]:
    """Read and attribute one result file as an ingest would; nothing is stored."""
    with context.opener() as opener:
        file = read_file(context, opener, result)
    claims = claims_of([file])
    [attributed] = _attribute(_sent_index(context), link_rules(context), Batch([file], claims))
    return claims.files[0], attributed


def take_in(
    context: IssuerContext, fresh: Sequence[ResultObject], basis: Basis, erased: ErasedPeople
) -> Iterator[IngestedFile]:
    """Attribute result files, a batch at a time, and store what they say.

    `basis`: what their outcomes depended on before anything was read. Those known with the same
    outcome are not stored again, nor is anything of who was `erased`.
    """
    index = _sent_index(context)
    rules = link_rules(context)
    purged = StoredRuns(context.adapters, context.issuer.issuer).without_ledger
    with (
        context.opener() as opener,
        ThreadPoolExecutor(context.adapters.connections) as readers,
        closing(prefetch(read_batches(context, opener, readers, fresh))) as batches,
        closing(prefetch(_attribute_all(index, rules, batches, erased))) as attributed,
    ):
        for results, outcomes in attributed:
            yield from _keep(context, results, outcomes, basis, purged)


def _sent_index(context: IssuerContext) -> SentIndex:
    return SentIndex(StoredRuns(context.adapters, context.issuer.issuer))


# Attributing
# --------------------------------------------------------------------------------------------------


def _attribute_all(
    index: SentIndex, rules: LinkRules, batches: Iterable[Batch], erased: ErasedPeople
) -> Iterator[tuple[list[ResultObject], list[Attributed]]]:
    """Attribute batches; where that fails unforeseen, file by file.

    A file that fails alone is one without rows.
    """
    for batch in batches:
        try:
            attributed = _attribute(index, rules, batch, erased)
        except UNFORESEEN as error:
            problem = failed(error)
        else:
            yield batch.results, attributed
            continue
        yield from _attribute_all(index, rules, batch.split(problem), erased)


def _attribute(
    index: SentIndex, rules: LinkRules, batch: Batch, erased: ErasedPeople = NOBODY
) -> list[Attributed]:
    """Attribute result files among the sent rows that they may answer; nothing is kept of those
    that name an `erased` cardholder.
    """
    files, claims = batch.claims or claims_of(batch.files)
    forced = list[ByHand]()
    for number, (result, file) in enumerate(zip(batch.results, files, strict=True)):
        forced += result.forced(number, file.digest)
    # as they were dropped: of a name that is kept in part only, the chunk may be left out
    names = [result.entry.key.rpartition("/")[2] for result in batch.results]
    sent = index.candidates(names, claims, forced)
    attributed = attribute_claims(files, claims, sent, rules, forced)
    return _without_erased(attributed, claims["claim"], erased) if erased else attributed


def _without_erased(
    files: Sequence[Attributed], claimed: pl.Series, erased: ErasedPeople
) -> list[Attributed]:
    """Return files without the rows whose cuid, as it was received, is an erased cardholder's."""
    is_others = ~erased.named_by(claimed)
    ends = accumulate(file.outcomes.height for file in files)
    return [
        file._replace(outcomes=file.outcomes.filter(is_others[end - file.outcomes.height : end]))
        for file, end in zip(files, ends, strict=True)
    ]


# Storing
# --------------------------------------------------------------------------------------------------


def _keep(
    context: IssuerContext,
    results: Sequence[ResultObject],
    outcomes: Sequence[Attributed],
    basis: Basis,
    purged: Set[str],
) -> Iterator[IngestedFile]:
    """Store what the files say, except those known already and those nobody may read yet."""
    files = [
        (_ingested(result, attributed, purged), attributed)
        for result, attributed in zip(results, outcomes, strict=True)
    ]
    known = [file for file, _ in files if file.known]
    read = [(file, attributed) for file, attributed in files if not file.known]
    fresh = [(file, attributed) for file, attributed in read if file.problems != (AWAITED,)]
    yield from (file for file, attributed in read if file.problems == (AWAITED,))
    left = _store(context, known, fresh, basis)
    yield from known
    yield from (file._replace(left=runs) for (file, _), runs in zip(fresh, left, strict=True))


def _store(
    context: IssuerContext,
    known: Sequence[IngestedFile],
    fresh: Sequence[tuple[IngestedFile, Attributed]],
    basis: Basis,
) -> list[frozenset[str]]:
    """Store files in one act; return the runs that each of the fresh ones answers no more."""
    adapters = context.adapters
    taken = adapters.now()
    results = [
        ReadResult(file.result.entry, attributed, _state(file, basis)) for file, attributed in fresh
    ]

    def store(act: Act) -> list[frozenset[str]]:
        for file in known:
            number = file.result.known.number if file.result.known else 0
            waits = update(RESULT_FILE).where(act.row(RESULT_FILE, {"number": number}))
            act.connection.execute(waits.values(basis=_depends_on(file, basis)))
        return store_results(act, taken, results) if results else []

    if not known and not fresh:
        return []
    return enter(adapters, context.issuer.issuer, ANSWERED, store)


def _state(file: IngestedFile, basis: Basis) -> FileState:
    """Return what is stored of a file beside its rows."""
    entry = file.result.entry
    waits_for = None if file.done else _depends_on(file, basis)
    decisions = len(file.result.decided)
    return FileState(mask_key(entry.key), decisions, waits_for, file.outcome, file.told)


def _depends_on(file: IngestedFile, basis: Basis) -> str:
    """Return the digest of what can change a file's outcome; empty where it is read each time."""
    if is_temporary(file.problems):
        return ""
    # Every row found its sent row, so what waits is a URL that is no link: only what links are
    # judged by can change that. Other rows may also find a run that is committed later.
    return basis.links if file.settled else basis.all


def _ingested(result: ResultObject, attributed: Attributed, purged: Set[str]) -> IngestedFile:
    """Return what came of a result file, and whether that is known already."""
    rows = attributed.outcomes
    file = IngestedFile(
        result,
        attributed.problems,
        rows=rows.height,
        runs=attributed.runs,
        lost=rows["row"].null_count(),
        refused=_may_be_read_otherwise(rows),
        lost_as=_lost_as(rows),
    )
    if file.done:
        return file
    outcome = _outcome_digest(attributed)
    known = result.known
    if known is not None and known.outcome == outcome:
        return file._replace(outcome=outcome, told=known.told, known=True)
    return file._replace(outcome=outcome, told="" if file.settled else file.trouble(purged))


def _may_be_read_otherwise(rows: pl.DataFrame) -> bool:
    """Return whether other settings, or another version, may make more of a file's rows."""
    has_refused_links = not set(NO_LINK).isdisjoint(rows["trouble"].to_list())
    return has_refused_links or rows["expires_form"].null_count() < rows.height


def _lost_as(rows: pl.DataFrame) -> str:
    """Return the break of the rows that belong to no sent row; of several the first."""
    if not rows["row"].null_count():
        return ""
    return min(rows.filter(pl.col("row").is_null())["trouble"].drop_nulls(), default="")


def _outcome_digest(attributed: Attributed) -> str:
    """Return a digest of what came of a file's rows."""
    columns = ["position", "run", "chunk", "row", "state", "trouble", "content", "nth"]
    facts = attributed.outcomes.select(columns).write_csv()
    return digest("\n".join([*attributed.problems, facts]).encode())[:32]
