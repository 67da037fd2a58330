"""Ingest result files: open and read them, attribute every row to the run and row it answers, store the outcomes.

A file gets its ingest marker last, and only if all of its rows were attributed: any other is tried again each time.
Killed half-way, or ingested again, a file has the same outcome.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

import polars as pl

from flows.errors import CardlinkError, OperatorError
from flows.redaction import redact
from flows.results.attribution import ByHand, attribute_claims, read_claims
from flows.results.decisions import affected_runs, by_hand
from flows.results.match import Candidates, named_in
from flows.results.read import LIMIT, TOO_LARGE, Arrived, ResultRows, read_results
from flows.results.sent_rows import SentIndex
from flows.runs.context import IssuerContext, record_event
from flows.runs.documents import keys_of
from flows.runs.identity import canonical, local_day
from flows.runs.keys import ingested
from flows.runs.openpgp import looks_like_message
from flows.runs.outcomes import OUTCOME, Attributed, RunOutcomes, StoredOutcomes, write_outcomes
from flows.runs.sealing import Opener
from flows.runs.store import Entry, ObjectMissingError, Store, prefetch, read
from schemas.records import Attribution

CHUNKS = 50  # reconciled together, and result files attributed together: so a report reads back what was stored at once
BATCH_PREFIX = "files-"  # of an object with the markers of many files; version 0.1 wrote one object per marker
READERS = 16
MISSING = "file.content.missing"


class MarkSpoiledError(OperatorError):
    """An object among the ingest markers is not one."""

    message = "{key} is not an ingest marker. Nothing was ingested."
    next_step = (
        "Move it away, then run the same command again: the files it named are ingested again, with the same outcome."
    )


def marker_key(entry: Entry, decisions: int) -> str:
    """Return the ingest marker of a result file with so many decisions of operators about it."""
    identity = f"{entry.key}|{entry.size}|{entry.version}" + (f"|{decisions}" if decisions else "")
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def read_markers(store: Store, issuer: str) -> frozenset[str]:
    """Return the ingest markers of all ingested result files; MarkSpoiledError where they cannot be read."""
    prefix = ingested(issuer)
    names = [entry.key.removeprefix(prefix).removesuffix(".json") for entry in store.keys(prefix)]
    batches = {name for name in names if name.startswith(BATCH_PREFIX)}
    with ThreadPoolExecutor(READERS) as readers:
        together = readers.map(lambda name: _read(store, f"{prefix}{name}.json"), batches)
        return frozenset(names).difference(batches).union(*together)


def write_markers(store: Store, issuer: str, files: Mapping[str, Entry]) -> None:
    """Store the ingest markers of result files, with the key of each file."""
    if files:
        name = hashlib.sha256("".join(sorted(files)).encode()).hexdigest()[:32]
        reported = {marker: redact(entry.key) for marker, entry in files.items()}
        store.create(f"{ingested(issuer)}{BATCH_PREFIX}{name}.json", canonical(reported))


def _read(store: Store, key: str) -> frozenset[str]:
    try:
        reported = json.loads(read(store, key))
    except ValueError:  # raised below without a chain
        reported = None
    if not isinstance(reported, dict):
        raise MarkSpoiledError(key=key)
    return frozenset(reported)


class ResultObject(NamedTuple):
    """A result file, and what operators decided about it."""

    entry: Entry
    decided: tuple[Attribution, ...] = ()

    @property
    def mark(self) -> str:
        """Its ingest marker."""
        return marker_key(self.entry, len(self.decided))


class Batch(NamedTuple):
    """Some result files, their rows, and what these claim."""

    found: Sequence[ResultObject]
    files: Sequence[ResultRows]
    claims: pl.DataFrame

    @property
    def forced(self) -> list[ByHand]:
        """The rows that an operator attributed."""
        numbered = enumerate(zip(self.found, self.files, strict=True))
        return [one for at, (found, file) in numbered for one in by_hand(at, file.digest, found.decided)]


class IngestedFile(NamedTuple):
    """One ingested result file: its runs, its rows, and how many of them (`lost`) belong to no sent row."""

    found: ResultObject
    digest: str
    problems: tuple[str, ...]
    rows: int
    runs: frozenset[str]
    lost: int
    kept: tuple[str, ...] = ()  # keys of the stored outcomes

    @property
    def settled(self) -> bool:
        """True where every row was attributed: only then the file is not read again."""
        return not self.lost and not self.problems

    def trouble(self, purged: Set[str]) -> str:
        """Return what was not attributed, and why; to `purged` runs, whose ledgers are gone, nothing can be."""
        named = purged & {run for run, _ in named_in(self.found.entry.key)}
        unknown = f"run {min(named)} is purged" if named else "no run of this issuer sent them"
        why = ", ".join(self.problems) or unknown
        return f"{redact(self.found.entry.key)}: {self.lost} of {self.rows} rows belong to no sent row ({why})"


def examine(context: IssuerContext, found: ResultObject) -> tuple[ResultRows, Attributed]:
    """Read and attribute one result file as an ingest would; nothing is stored."""
    store = context.adapters.store
    with context.opener() as opener:
        files = _read_files(context.issuer.time_zone, [found.entry], [_content(store, opener, found.entry)])
    searched = _search(SentIndex(store, context.issuer.issuer), Batch([found], files, read_claims(files)))
    return files[0], _attribute(context, *searched)[1][0]


def take_in(context: IssuerContext, fresh: Sequence[ResultObject]) -> Iterator[IngestedFile]:
    """Attribute result files, a batch at a time, and store their outcomes."""
    books = SentIndex(context.adapters.store, context.issuer.issuer)
    with (
        context.opener() as opener,
        ThreadPoolExecutor(context.adapters.connections) as readers,
        closing(prefetch(_read_all(context, opener, readers, fresh))) as batches,
        closing(prefetch(map(partial(_search, books), batches))) as searched,
        closing(prefetch(starmap(partial(_attribute, context), searched))) as attributed,
    ):
        yield from chain.from_iterable(starmap(partial(_keep, context), attributed))


def _read_all(
    context: IssuerContext, opener: Opener | None, readers: ThreadPoolExecutor, fresh: Sequence[ResultObject]
) -> Iterator[Batch]:
    """Fetch and read result files, a batch at a time."""
    for start in range(0, len(fresh), CHUNKS):
        batch = fresh[start : start + CHUNKS]
        entries = [found.entry for found in batch]
        contents = readers.map(lambda entry: _content(context.adapters.store, opener, entry), entries)
        files = _read_files(context.issuer.time_zone, entries, list(contents))
        yield Batch(batch, files, read_claims(files))


def _search(books: SentIndex, batch: Batch) -> tuple[Batch, Candidates]:
    """Load the sent rows that a batch may answer."""
    return batch, books.candidates([one.name for one in batch.files], batch.claims, batch.forced)


def _attribute(
    context: IssuerContext, batch: Batch, sent: Candidates
) -> tuple[Sequence[ResultObject], list[Attributed]]:
    hosts = context.issuer.portal.allowed_hosts
    return batch.found, attribute_claims(batch.files, batch.claims, sent, hosts, batch.forced)


def _read_files(time_zone: str, entries: Sequence[Entry], contents: Sequence[tuple[bytes, str]]) -> list[ResultRows]:
    """Read result files; why one could not be opened is one more problem of it, or its only one."""
    arrived = [  # a file name may hold a card number
        Arrived(content, redact(entry.key.rpartition("/")[2]), local_day(entry.modified, time_zone))
        for entry, (content, _) in zip(entries, contents, strict=True)
    ]
    return [
        one._replace(problems=(*one.problems, problem) if content else (problem,)) if problem else one
        for one, (content, problem) in zip(read_results(arrived), contents, strict=True)
    ]


def _content(store: Store, opener: Opener | None, entry: Entry) -> tuple[bytes, str]:
    """Return a result's bytes, decrypted where sealed, and a code where that failed: other files go on."""
    if entry.size > LIMIT:
        return b"", TOO_LARGE  # never in memory
    try:
        content = read(store, entry.key)
    except ObjectMissingError:  # removed since it was listed, or its name is no valid key
        return b"", MISSING
    if opener is None or not looks_like_message(content):
        return content, ""
    try:
        return opener.open(content, LIMIT), ""
    except CardlinkError as error:
        return content, f"file.seal.{type(error).__name__}"


def _keep(
    context: IssuerContext, batch: Sequence[ResultObject], outcomes: Sequence[Attributed]
) -> Iterator[IngestedFile]:
    """Store the outcomes of the files with each of their runs; rows of no run go with a file's first run."""
    answers: dict[str, list[RunOutcomes]] = {}
    parted = [_by_run(one.outcomes) for one in outcomes]
    for found, one, parts in zip(batch, outcomes, parted, strict=True):
        for run, rows in parts.items():
            answers.setdefault(run, []).append(RunOutcomes(found.entry, one, rows))
    kept = {run: _keep_run(context, run, reported) for run, reported in sorted(answers.items())}
    for found, one, parts in zip(batch, outcomes, parted, strict=True):
        runs = frozenset(parts)
        lost = one.outcomes["row"].null_count()
        left = affected_runs(found.decided) - runs  # also where an earlier ingest was killed
        store, key = context.adapters.store, found.entry.key
        stale = [run for run in sorted(left) if StoredOutcomes(store, keys_of(run)).has_results_for(key)]
        gone = [_withdraw_outcomes(context, run, found.entry, one) for run in stale]
        written = (*(kept[run] for run in runs), *gone)
        yield IngestedFile(found, one.digest, one.problems, one.outcomes.height, runs | left, lost, written)


def _withdraw_outcomes(context: IssuerContext, run: str, entry: Entry, one: Attributed) -> str:
    """Store that a file answers nothing of a run any more: an operator gave its rows to other runs."""
    keys, nothing = keys_of(run), pl.DataFrame({name: [None] for name in OUTCOME}, OUTCOME)
    record_event(context.adapters, keys, "answer taken back", results=[one.name], digests=[one.digest])
    return write_outcomes(context.adapters.store, keys, context.adapters.now(), [RunOutcomes(entry, one, nothing)])


def _by_run(outcomes: pl.DataFrame) -> dict[str, pl.DataFrame]:
    runs = outcomes["run"].unique().drop_nulls().sort().to_list()
    if len(runs) < 2:
        return dict.fromkeys(runs, outcomes)
    return {run: outcomes.filter(pl.col("run").fill_null(runs[0]) == run) for run in runs}


def _keep_run(context: IssuerContext, run: str, answers: Sequence[RunOutcomes]) -> str:
    keys, ones = keys_of(run), [answer.one for answer in answers]
    key = write_outcomes(context.adapters.store, keys, context.adapters.now(), answers)
    rows = sum(answer.rows.height for answer in answers)
    record_event(
        context.adapters,
        keys,
        "answered",
        results=[one.name for one in ones],
        digests=[one.digest for one in ones],
        rows=rows,
    )
    return key
