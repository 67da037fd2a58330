"""Ingest result files: read them, attribute every row to the row it answers, store the outcomes.

Killed half-way, or ingested again, a file has the same outcome. Whatever one file holds, the others
go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import accumulate
from typing import NamedTuple

import polars as pl

from flows.results.attribution import attribute_claims
from flows.results.batches import Batch, ResultObject, claims_of, read_batches, read_file
from flows.results.confirmed_forms import link_rules
from flows.results.links import LinkRules
from flows.results.markers import Waiting
from flows.results.masking import mask_key
from flows.results.problems import describe
from flows.results.read import UNFORESEEN, ResultRows, failed
from flows.results.sent_rows import ByHand, SentIndex, named_in
from flows.runs.context import IssuerContext
from flows.runs.erased import NOBODY, ErasedPeople
from flows.runs.events import ANSWERED, record_event
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.outcomes import OUTCOME, Attributed, RunOutcomes, write_outcomes
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import prefetch
from schemas.breaks import FOREIGN_FILE, KINDS, NO_LINK, UNKNOWN_CUID, BreakKind

LATE = "Leave the file, and ask the partner why it comes so late."


class IngestedFile(NamedTuple):
    """One ingested result file: its runs, its rows, how many (`lost`) belong to no sent row."""

    result: ResultObject
    problems: tuple[str, ...]
    rows: int
    runs: frozenset[str]
    lost: int
    refused: bool  # it has URLs that are no links as long as no other host or form is
    lost_as: str = ""  # the break of the lost rows; of several the first
    outcome: str = ""  # a digest of what came of its rows, where that may change
    left: frozenset[str] = frozenset()  # runs that it answered before
    kept: tuple[str, ...] = ()  # keys of the stored outcomes
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
    context: IssuerContext,
    fresh: Sequence[ResultObject],
    waiting: Mapping[str, Waiting],
    erased: ErasedPeople,
) -> Iterator[IngestedFile]:
    """Attribute result files, a batch at a time, and store their outcomes.

    Those known from `waiting` are not stored again, nor is anything of who was `erased`.
    """
    index = _sent_index(context)
    rules = link_rules(context)
    with (
        context.opener() as opener,
        ThreadPoolExecutor(context.adapters.connections) as readers,
        closing(prefetch(read_batches(context, opener, readers, fresh))) as batches,
        closing(prefetch(_attribute_all(index, rules, batches, erased))) as attributed,
    ):
        for results, outcomes in attributed:
            yield from _keep(context, results, outcomes, waiting)


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
    waiting: Mapping[str, Waiting],
) -> Iterator[IngestedFile]:
    """Store the outcomes of the files with each of their runs, except those known already."""
    files = [
        _ingested(result, attributed, waiting.get(result.mark))
        for result, attributed in zip(results, outcomes, strict=True)
    ]
    fresh = [
        (file, attributed)
        for file, attributed in zip(files, outcomes, strict=True)
        if not file.known
    ]
    kept = _keep_answers(context, fresh)
    yield from (file for file in files if file.known)
    for file, attributed in fresh:
        gone = _take_back(context, file, attributed)
        yield file._replace(kept=(*(kept[run] for run in file.runs), *gone))


def _keep_answers(
    context: IssuerContext, files: Iterable[tuple[IngestedFile, Attributed]]
) -> dict[str, str]:
    """Store the outcomes with each run that they answer; return the keys by run.

    Rows of no run go with a file's first run.
    """
    answers = dict[str, list[RunOutcomes]]()
    for file, attributed in files:
        for run, rows in _by_run(attributed.outcomes, sorted(file.runs)).items():
            answers.setdefault(run, []).append(RunOutcomes(file.result.entry, attributed, rows))
    kept = dict[str, str]()
    for run, run_answers in sorted(answers.items()):
        height = sum(answer.rows.height for answer in run_answers)
        kept[run] = _keep_run(context, run, run_answers, ANSWERED, rows=height)
    return kept


def _take_back(context: IssuerContext, file: IngestedFile, attributed: Attributed) -> list[str]:
    """Store that a file answers some runs no longer; return the keys.

    An operator gave its rows to other runs.
    """
    entry = file.result.entry
    stale = [
        run
        for run in sorted(file.left)
        if StoredRun.by_id(context.adapters, run).outcomes.has_results_for(entry.key)
    ]
    if not stale:
        return []
    nothing = pl.DataFrame({name: [None] for name in OUTCOME}, OUTCOME)
    answers = [RunOutcomes(entry, attributed, nothing)]
    for run in stale:  # first, since without its answers the run is not stale any more
        _note_files(context, run, answers, "answer taken back")
    return [_keep_rows(context, run, answers) for run in stale]


def _ingested(result: ResultObject, attributed: Attributed, before: Waiting | None) -> IngestedFile:
    """Return what came of a result file, and whether that is known from `before`."""
    # looked at as lists: with a thousand files, an expression for each takes longer
    rows = attributed.outcomes
    runs = frozenset(rows["run"].to_list()) - {None}
    before_runs = before.runs if before else ()  # also where one was killed
    file = IngestedFile(
        result,
        attributed.problems,
        rows=rows.height,
        runs=runs,
        lost=rows["row"].null_count(),
        refused=not set(NO_LINK).isdisjoint(rows["trouble"].to_list()),
        lost_as=_lost_as(rows),
        left=result.decided_runs.union(before_runs) - runs,
    )
    if file.done:
        return file
    outcome = _outcome_digest(attributed)
    return file._replace(outcome=outcome, known=before is not None and before.outcome == outcome)


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


def _by_run(outcomes: pl.DataFrame, runs: Sequence[str]) -> dict[str, pl.DataFrame]:
    if len(runs) < 2:
        return dict.fromkeys(runs, outcomes)
    return {run: outcomes.filter(pl.col("run").fill_null(runs[0]) == run) for run in runs}


def _keep_run(
    context: IssuerContext, run: str, answers: Sequence[RunOutcomes], event: str, **facts: int
) -> str:
    """Store the outcomes of files with a run, and record it; return the key."""
    key = _keep_rows(context, run, answers)
    _note_files(context, run, answers, event, **facts)
    return key


def _keep_rows(context: IssuerContext, run: str, answers: Sequence[RunOutcomes]) -> str:
    adapters = context.adapters
    return write_outcomes(adapters.store, keys_of(run), adapters.now(), answers)


def _note_files(
    context: IssuerContext, run: str, answers: Sequence[RunOutcomes], event: str, **facts: int
) -> None:
    """Record in the history of a run what came of result files."""
    files = [attributed for _, attributed, _ in answers]
    names = [file.name for file in files]
    digests = [file.digest for file in files]
    record_event(context.adapters, keys_of(run), event, results=names, digests=digests, **facts)
