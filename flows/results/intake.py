"""Ingest result files: read them, attribute every row to the row it answers, store the outcomes.

Killed half-way, or ingested again, a file has the same outcome. Whatever one file holds, the others
go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import NamedTuple, TypeVar

import polars as pl

from flows.errors import BugError, CardlinkError
from flows.redaction import redact
from flows.results.attribution import attribute_claims, read_claims
from flows.results.markers import Waiting, marker_key
from flows.results.opening import FAILED, LIMIT, MISSING, SEALED, STORE, TOO_LARGE
from flows.results.problems import describe
from flows.results.read import UNFORESEEN, ResultRows, failed, read_cells, tabulate
from flows.results.sent_rows import ByHand, SentIndex, named_in
from flows.runs import store as stores
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.events import record_event
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.openpgp import looks_like_message
from flows.runs.outcomes import OUTCOME, Attributed, RunOutcomes, write_outcomes
from flows.runs.sealing import Opener, SealedUnreadableError
from flows.runs.store import Entry, Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import prefetch
from schemas.breaks import FOREIGN_FILE, KINDS, UNKNOWN_CUID, URL_NOT_ALLOWED, BreakKind
from schemas.records import Attribution

T = TypeVar("T")
# reconciled together, and result files attributed together: so a report reads back what was stored
# at once
CHUNKS = 50
ROOM = 64 * 1024 * 1024  # bytes of cells attributed together: fewer files where they are large


class ResultObject(NamedTuple):
    """A result file, and what operators decided about it."""

    entry: Entry
    decided: tuple[Attribution, ...] = ()

    @property
    def mark(self) -> str:
        """Its ingest marker."""
        return marker_key(self.entry, len(self.decided))

    @property
    def decided_runs(self) -> frozenset[str]:
        """The runs that its rows were attributed to by the decisions, or before them."""
        runs = set[str]()
        for decision in self.decided:
            runs.update(decision.runs, [decision.run])
        return frozenset(runs - {""})

    def forced(self, file: int, content: str) -> list[ByHand]:
        """Return the last attribution of each row, if the file's bytes have this digest.

        `file`: its number among the files that are attributed together.
        """
        last = {
            decision.position: decision
            for decision in self.decided
            if decision.digest == content and decision.what != "again"
        }
        return [
            ByHand(file, decision.position, decision.run, decision.row)
            for decision in last.values()
            if decision.what == "attributed"
        ]


class ReadFile(NamedTuple):
    """A result file, and its rows as they were read."""

    result: ResultObject
    rows: ResultRows


class Claims(NamedTuple):
    """Result files with their tables, and what all their rows claim (`read_claims`)."""

    files: list[ResultRows]
    claims: pl.DataFrame


class Batch(NamedTuple):
    """Result files that are attributed together; `claims` is None where making them failed."""

    files: Sequence[ReadFile]
    claims: Claims | None = None

    @property
    def results(self) -> list[ResultObject]:
        """The files without their rows."""
        return [file.result for file in self.files]

    def split(self, problem: str) -> list[Batch]:
        """Return each file as a batch of its own, or without its rows where it is alone.

        `problem` is why the batch could not be attributed; BugError where not even a file without
        rows could be.
        """
        if len(self.files) > 1:
            return [Batch([file]) for file in self.files]
        [file] = self.files
        if file.rows.rows.is_empty():
            raise BugError(place="attribution", kind=problem.removeprefix(FAILED))
        return [Batch([file._replace(rows=file.rows.without_rows(problem))])]


class IngestedFile(NamedTuple):
    """One ingested result file: its runs, its rows, how many (`lost`) belong to no sent row."""

    result: ResultObject
    problems: tuple[str, ...]
    rows: int
    runs: frozenset[str]
    lost: int
    refused: bool  # it has links to hosts that are not allowed
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
            advice = self._lost_kind.then
            then = advice if self.lost == self.rows else then or advice
        return f"{redact(self.result.entry.key)}: {wrong}. {then}"

    def _why_lost(self, purged: Set[str]) -> str:
        named = purged & {run for run, _ in named_in(self.result.entry.key)}
        if named:
            return f"run {min(named)} is purged"
        if self.lost_as in ("", UNKNOWN_CUID, FOREIGN_FILE):
            return "no run of this issuer sent them"
        return self._lost_kind.meaning.rstrip(".")

    @property
    def _lost_kind(self) -> BreakKind:
        if self.lost == self.rows:
            return KINDS[FOREIGN_FILE]
        return KINDS[self.lost_as or UNKNOWN_CUID]


def examine(context: IssuerContext, result: ResultObject) -> tuple[ResultRows, Attributed]:
    """Read and attribute one result file as an ingest would; nothing is stored."""
    with context.opener() as opener:
        content = _content(context.adapters.store, opener, result.entry)
    file = ReadFile(result, _opened(context, result, content))
    claims = _claims_of([file])
    [attributed] = _attribute(context, _sent_index(context), Batch([file], claims))
    return claims.files[0], attributed


def take_in(
    context: IssuerContext, fresh: Sequence[ResultObject], waiting: Mapping[str, Waiting]
) -> Iterator[IngestedFile]:
    """Attribute result files, a batch at a time, and store their outcomes.

    Those known from `waiting` are not stored again.
    """
    index = _sent_index(context)
    with (
        context.opener() as opener,
        ThreadPoolExecutor(context.adapters.connections) as readers,
        closing(prefetch(_read_all(context, opener, readers, fresh))) as batches,
        closing(prefetch(_attribute_all(context, index, batches))) as attributed,
    ):
        for results, outcomes in attributed:
            yield from _keep(context, results, outcomes, waiting)


def _sent_index(context: IssuerContext) -> SentIndex:
    return SentIndex(StoredRuns(context.adapters.store, context.issuer.issuer))


# Reading
# --------------------------------------------------------------------------------------------------


def _read_all(
    context: IssuerContext,
    opener: Opener | None,
    readers: ThreadPoolExecutor,
    fresh: Sequence[ResultObject],
) -> Iterator[Batch]:
    """Fetch and read result files, a batch at a time: at most CHUNKS, and about ROOM bytes."""
    for group in parted(fresh, lambda result: result.entry.size):
        contents = readers.map(
            lambda result: _content(context.adapters.store, opener, result.entry), group
        )
        files = (
            ReadFile(result, _opened(context, result, content))
            for result, content in zip(group, contents, strict=True)
        )
        for batch in parted(files, lambda file: int(file.rows.rows.estimated_size())):
            claims = None
            with suppress(*UNFORESEEN):  # raised again, and judged, where the batch is attributed
                claims = _claims_of(batch)
            yield Batch(batch, claims)


def _claims_of(files: Sequence[ReadFile]) -> Claims:
    """Make the tables of some files, and read what their rows claim."""
    tables = tabulate([file.rows for file in files])
    return Claims(tables, read_claims(tables))


def parted(items: Iterable[T], size: Callable[[T], int], most: int = ROOM) -> Iterator[list[T]]:
    """Yield items in groups of at most CHUNKS that are hardly larger than `most`."""
    group = list[T]()
    room = most
    for item in items:
        group.append(item)
        room -= size(item)
        if room <= 0 or len(group) == CHUNKS:
            yield group
            group = []
            room = most
    if group:
        yield group


def _opened(context: IssuerContext, result: ResultObject, content: tuple[bytes, str]) -> ResultRows:
    """Read a result file; why it could not be opened is its only problem."""
    name = redact(result.entry.key.rpartition("/")[2])  # a file name may hold a card number
    data, problem = content
    file = read_cells(data, name, local_day(result.entry.modified, context.issuer.time_zone))
    return file.without_rows(problem) if problem else file


def _content(store: Store, opener: Opener | None, entry: Entry) -> tuple[bytes, str]:
    """Return a result's bytes, decrypted where sealed, and a problem code where that failed.

    Nothing of it is raised: other files go on.
    """
    if entry.size > LIMIT:
        return b"", TOO_LARGE  # never in memory
    try:
        # the version that was listed, and judged since
        with store.open(entry.key, entry) as stored:
            content = stored.read()
    except (stores.ObjectMissingError, stores.KeyRefusedError):
        return b"", MISSING  # removed since it was listed, or no valid key
    except stores.ABOUT_ONE_OBJECT as error:
        return b"", f"{STORE}{type(error).__name__}"
    if opener is None or not looks_like_message(content):
        return content, ""
    return _decrypted(opener, content)


def _decrypted(opener: Opener, message: bytes) -> tuple[bytes, str]:
    """Return what a message holds, or the message and why it could not be opened."""
    try:
        return opener.open(message, LIMIT), ""
    except SealedUnreadableError as error:
        return message, f"{SEALED}{error.fields['reason']}"
    except CardlinkError as error:
        return message, f"{SEALED}{type(error).__name__}"
    except UNFORESEEN as error:
        return message, failed(error)


# Attributing
# --------------------------------------------------------------------------------------------------


def _attribute_all(
    context: IssuerContext, index: SentIndex, batches: Iterable[Batch]
) -> Iterator[tuple[list[ResultObject], list[Attributed]]]:
    """Attribute batches; where that fails unforeseen, file by file.

    A file that fails alone is one without rows.
    """
    for batch in batches:
        try:
            attributed = _attribute(context, index, batch)
        except UNFORESEEN as error:
            problem = failed(error)
        else:
            yield batch.results, attributed
            continue
        yield from _attribute_all(context, index, batch.split(problem))


def _attribute(context: IssuerContext, index: SentIndex, batch: Batch) -> list[Attributed]:
    """Attribute result files among the sent rows that they may answer."""
    files, claims = batch.claims or _claims_of(batch.files)
    forced = list[ByHand]()
    for number, (result, file) in enumerate(zip(batch.results, files, strict=True)):
        forced += result.forced(number, file.digest)
    sent = index.candidates([file.name for file in files], claims, forced)
    return attribute_claims(files, claims, sent, context.issuer.portal.allowed_hosts, forced)


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
        kept[run] = _keep_run(context, run, run_answers, "answered", rows=height)
    return kept


def _take_back(context: IssuerContext, file: IngestedFile, attributed: Attributed) -> list[str]:
    """Store that a file answers some runs no longer; return the keys.

    An operator gave its rows to other runs.
    """
    entry = file.result.entry
    nothing = pl.DataFrame({name: [None] for name in OUTCOME}, OUTCOME)
    stale = [
        run
        for run in sorted(file.left)
        if StoredRun.by_id(context.adapters.store, run).outcomes.has_results_for(entry.key)
    ]
    answers = [RunOutcomes(entry, attributed, nothing)]
    return [_keep_run(context, run, answers, "answer taken back") for run in stale]


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
        refused=URL_NOT_ALLOWED in rows["trouble"].to_list(),
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
    adapters = context.adapters
    keys = keys_of(run)
    key = write_outcomes(adapters.store, keys, adapters.now(), answers)
    files = [attributed for _, attributed, _ in answers]
    names = [file.name for file in files]
    digests = [file.digest for file in files]
    record_event(adapters, keys, event, results=names, digests=digests, **facts)
    return key
