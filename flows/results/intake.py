"""Take in result files: open, read, attribute every row to the run and row it answers, keep the outcome.

A file gets its ingest marker last, once all of its rows found their place. Killed half-way, or fed again, it gives
the same outcome; a file of no run we know gets none and is tried again each time.
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
from flows.results.read import TOO_LARGE, Arrived, ResultRows, read_results
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

CHUNKS = 50  # chunks reconciled together

BATCH_PREFIX = (
    "files-"  # begins the name of a mark of many files; older versions left one object each, named by its mark
)
READERS = 16

BATCH = CHUNKS  # result files attributed at a time: a report mostly reads back just what was kept together
MISSING = "file.content.missing"
LARGEST = 64 << 20  # bytes a result file may have, sealed or opened


class MarkSpoiledError(OperatorError):
    """An object among the ingest markers was not written by an ingest."""

    message = "{key} is not an ingest marker. Nothing was ingested."
    next_step = (
        "Move it away, then run the same command again: the files it named are ingested again, with the same outcome."
    )


def marker_key(entry: Entry, decisions: int) -> str:
    """Return the mark of a result file about which so much was decided by hand."""
    identity = f"{entry.key}|{entry.size}|{entry.version}" + (f"|{decisions}" if decisions else "")
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def read_markers(store: Store, issuer: str) -> frozenset[str]:
    """Return the marks of all result files that are taken up; MarkSpoiledError where one cannot be read."""
    prefix = ingested(issuer)
    names = [entry.key.removeprefix(prefix).removesuffix(".json") for entry in store.keys(prefix)]
    with ThreadPoolExecutor(READERS) as readers:
        together = readers.map(lambda name: _read(store, f"{prefix}{name}.json"), filter(_is_batch_marker, names))
        return frozenset(name for name in names if not _is_batch_marker(name)).union(*together)


def write_markers(store: Store, issuer: str, files: Mapping[str, Entry]) -> None:
    """Mark result files, each under its mark, as taken up."""
    if files:
        name = hashlib.sha256("".join(sorted(files)).encode()).hexdigest()[:32]
        reported = {marker: redact(entry.key) for marker, entry in files.items()}
        store.create(f"{ingested(issuer)}{BATCH_PREFIX}{name}.json", canonical(reported))


def _is_batch_marker(name: str) -> bool:
    return name.startswith(BATCH_PREFIX)


def _read(store: Store, key: str) -> frozenset[str]:
    try:
        reported = json.loads(read(store, key))
    except ValueError:  # no JSON, and raised below without a chain
        reported = None
    if not isinstance(reported, dict):
        raise MarkSpoiledError(key=key)
    return frozenset(reported)


class ResultObject(NamedTuple):
    """A result file, and what was decided about it by hand."""

    entry: Entry
    decided: tuple[Attribution, ...] = ()

    @property
    def mark(self) -> str:
        """What it is marked by once it is taken up."""
        return marker_key(self.entry, len(self.decided))


class Batch(NamedTuple):
    """Some result files, read, and what their rows claim."""

    found: Sequence[ResultObject]
    files: Sequence[ResultRows]
    claims: pl.DataFrame

    @property
    def forced(self) -> list[ByHand]:
        """The rows that were given their place by hand."""
        numbered = enumerate(zip(self.found, self.files, strict=True))
        return [one for at, (found, file) in numbered for one in by_hand(at, file.digest, found.decided)]


class IngestedFile(NamedTuple):
    """One result file, attributed and kept: the runs it touches, its rows, how many of them belong to no sent row."""

    found: ResultObject
    digest: str
    problems: tuple[str, ...]
    rows: int
    runs: frozenset[str]
    lost: int
    kept: tuple[str, ...] = ()  # keys of the outcomes written

    @property
    def settled(self) -> bool:
        """True where every row found its place: only then the file need not be looked at again."""
        return not self.lost and not self.problems

    def trouble(self, purged: Set[str]) -> str:
        """Say what found no place; `purged` are the runs whose ledgers are gone: nothing can be placed there."""
        named = purged & {run for run, _ in named_in(self.found.entry.key)}
        nobody = f"run {min(named)} is purged" if named else "no run of this issuer sent them"
        why = ", ".join(self.problems) or nobody
        lost = f"{self.lost} of {self.rows} rows belong to no sent row ({why})"
        return f"{redact(self.found.entry.key)}: {lost}"


def examine(context: IssuerContext, found: ResultObject) -> tuple[ResultRows, Attributed]:
    """Read and attribute one result file as an ingest would; nothing is kept."""
    store = context.adapters.store
    with context.opener() as opener:
        files = _read_files(context.issuer.time_zone, [found.entry], [_content(store, opener, found.entry)])
    searched = _search(SentIndex(store, context.issuer.issuer), Batch([found], files, read_claims(files)))
    return files[0], _attribute(context, *searched)[1][0]


def take_in(context: IssuerContext, fresh: Sequence[ResultObject]) -> Iterator[IngestedFile]:
    """Attribute result files, a batch at a time, and keep their outcomes."""
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
    """Fetch and read result files, a batch at a time, and what their rows claim."""
    for start in range(0, len(fresh), BATCH):
        batch = fresh[start : start + BATCH]
        entries = [found.entry for found in batch]
        contents = readers.map(lambda entry: _content(context.adapters.store, opener, entry), entries)
        files = _read_files(context.issuer.time_zone, entries, list(contents))
        yield Batch(batch, files, read_claims(files))


def _search(books: SentIndex, batch: Batch) -> tuple[Batch, Candidates]:
    """Find the sent rows that a batch may answer."""
    return batch, books.candidates([one.name for one in batch.files], batch.claims, batch.forced)


def _attribute(
    context: IssuerContext, batch: Batch, sent: Candidates
) -> tuple[Sequence[ResultObject], list[Attributed]]:
    hosts = context.issuer.portal.allowed_hosts
    return batch.found, attribute_claims(batch.files, batch.claims, sent, hosts, batch.forced)


def _read_files(time_zone: str, entries: Sequence[Entry], contents: Sequence[tuple[bytes, str]]) -> list[ResultRows]:
    """Read result files; what kept one from being opened is one more problem of it, or its only one."""
    arrived = [
        # whoever names a result may name it after a card
        Arrived(content, redact(entry.key.rpartition("/")[2]), local_day(entry.modified, time_zone))
        for entry, (content, _) in zip(entries, contents, strict=True)
    ]
    return [
        one._replace(problems=(*one.problems, problem) if content else (problem,)) if problem else one
        for one, (content, problem) in zip(read_results(arrived), contents, strict=True)
    ]


def _content(store: Store, opener: Opener | None, entry: Entry) -> tuple[bytes, str]:
    """Return a result's bytes, opened where sealed, and a code where that did not work: one stops no others."""
    if entry.size > LARGEST:
        return b"", TOO_LARGE  # nothing of it is taken into memory
    try:
        content = read(store, entry.key)
    except ObjectMissingError:  # taken away since, or under a name that no key can have
        return b"", MISSING
    if opener is None or not looks_like_message(content):
        return content, ""
    try:
        return opener.open(content, LARGEST), ""
    except CardlinkError as error:
        return content, f"file.seal.{type(error).__name__}"


def _keep(
    context: IssuerContext, batch: Sequence[ResultObject], outcomes: Sequence[Attributed]
) -> Iterator[IngestedFile]:
    """Keep what the files say with every run they touch; rows of no run stay with a file's first."""
    answers: dict[str, list[RunOutcomes]] = {}
    parted = [_by_run(one.outcomes) for one in outcomes]
    for found, one, parts in zip(batch, outcomes, parted, strict=True):
        for run, rows in parts.items():
            answers.setdefault(run, []).append(RunOutcomes(found.entry, one, rows))
    kept = {run: _keep_run(context, run, reported) for run, reported in sorted(answers.items())}
    for found, one, parts in zip(batch, outcomes, parted, strict=True):
        runs = frozenset(parts)
        lost = one.outcomes["row"].null_count()
        left = affected_runs(found.decided) - runs  # reported again even where an ingest before this one was killed
        gone = [
            _withdraw_outcomes(context, run, found.entry, one)
            for run in sorted(left)
            if _has_results(context, run, found.entry)
        ]
        written = (*(kept[run] for run in runs), *gone)
        yield IngestedFile(found, one.digest, one.problems, one.outcomes.height, runs | left, lost, written)


def _has_results(context: IssuerContext, run: str, entry: Entry) -> bool:
    return StoredOutcomes(context.adapters.store, keys_of(run)).has_results_for(entry.key)


def _withdraw_outcomes(context: IssuerContext, run: str, entry: Entry, one: Attributed) -> str:
    """Keep that a file says nothing of a run any more, since its rows were given to other runs by hand."""
    keys, nothing = keys_of(run), pl.DataFrame({name: [None] for name in OUTCOME}, OUTCOME)
    record_event(context.adapters, keys, "answer taken back", results=[one.name], digests=[one.digest])
    return write_outcomes(context.adapters.store, keys, context.adapters.now(), [RunOutcomes(entry, one, nothing)])


def _by_run(outcomes: pl.DataFrame) -> dict[str, pl.DataFrame]:
    first = outcomes["run"].first()
    if first is not None and (outcomes["run"] == first).all(ignore_nulls=False):  # the usual file
        return {str(first): outcomes}
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
