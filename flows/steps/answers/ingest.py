"""Take up result files: open, read, attribute every row to the run and row it answers, keep the outcome.

A file is marked as taken up last, once all of its rows found their place. Killed half-way, or fed again, it gives
the same outcome; a file of no run we know stays unmarked and is tried again each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

import polars as pl

from flows.core.errors import CardlinkError, TryAgainError
from flows.core.names import ingested, results
from flows.core.ports import Entry, Opener, Store
from flows.core.redaction import redact
from flows.core.results.attribution import OUTCOME, Attributed, ByHand, attribute_claims, read_claims
from flows.core.results.named import Candidates, spoken_of
from flows.core.results.results import TOO_LARGE, Arrived, ResultRows, read_results
from flows.core.run.calendar import local_day
from flows.core.sealing.openpgp import looks_like_message
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.ahead import ahead
from flows.steps.answers.lineage import latest_first
from flows.steps.answers.marks import mark_of, marked, set_marks
from flows.steps.answers.outcomes import Answer, Told, keep
from flows.steps.answers.report import CHUNKS, RunReport, rebuild_lasting
from flows.steps.answers.sent_books import SentBooks
from flows.steps.edges import IssuerEdges, note, read
from flows.steps.mend.decided import by_hand, chain_of, decisions, spoken_for
from flows.steps.night.sweep import sweep
from flows.steps.operate.purged import without_ledger
from flows.steps.runs import keys_of
from schemas.mended import Attribution

BATCH = CHUNKS  # result files attributed at a time: a report mostly reads back just what was kept together
MISSING = "file.content.missing"
LARGEST = 64 << 20  # bytes a result file may have, sealed or opened


class ListedLateError(TryAgainError):
    """What was just written is not listed, so a report would lack it."""

    message = "{key} was written but is not listed yet. Its report was left as it was."
    next_step = "The store's listing lags: run the same command again in a minute."


class Ingested(NamedTuple):
    """What one call took up: files, their rows, what found no place, and the reports it brought up to date."""

    files: int
    rows: int
    breaks: tuple[str, ...]
    reports: tuple[RunReport, ...]


class Found(NamedTuple):
    """A result file, and what was decided about it by hand."""

    entry: Entry
    decided: tuple[Attribution, ...] = ()

    @property
    def mark(self) -> str:
        """What it is marked by once it is taken up."""
        return mark_of(self.entry, len(self.decided))


class Batch(NamedTuple):
    """Some result files, read, and what their rows claim."""

    found: Sequence[Found]
    files: Sequence[ResultRows]
    claims: pl.DataFrame

    @property
    def forced(self) -> list[ByHand]:
        """The rows that were given their place by hand."""
        numbered = enumerate(zip(self.found, self.files, strict=True))
        return [one for at, (found, file) in numbered for one in by_hand(at, file.digest, found.decided)]


class Taken(NamedTuple):
    """One result file, attributed and kept: the runs it touches, its rows, how many of them belong to no sent row."""

    found: Found
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
        named = purged & {run for run, _ in spoken_of(self.found.entry.key)}
        nobody = f"run {min(named)} is purged" if named else "no run of this issuer sent them"
        why = ", ".join(self.problems) or nobody
        lost = f"{self.lost} of {self.rows} rows belong to no sent row ({why})"
        return f"{redact(self.found.entry.key)}: {lost}"


def ingest(edges: IssuerEdges, also: str = "") -> Ingested:
    """Attribute every result file that is not taken up yet, report the runs they touch (and the run `also`), mark them.

    The runs that those repeat are reported as well, since their rows have a new end.
    The marks come last: killed anywhere before, the next call does it all again, with the same outcome.
    """
    store, name = edges.edges.store, edges.issuer.issuer
    marks = marked(store, name)
    decided = decisions(store, name)
    there = [Found(entry, decided.get(chain_of(name, entry.key), ())) for entry in store.keys(results(name))]
    fresh = [found for found in there if found.mark not in marks]
    taken = list(_take_up(edges, fresh)) if fresh else []
    purged = without_ledger(store, name) if taken else frozenset()
    touched = {run for one in taken for run in one.runs} - purged | ({also} if also else set())
    sweep(edges.edges, ingested(name), *(keys_of(run).base for run in touched))
    kept = {key for one in taken for key in one.kept}
    reports = tuple(_report(edges, run, kept) for run in latest_first(store, touched))
    set_marks(store, name, {one.found.mark: one.found.entry for one in taken if one.settled})
    rows = sum(one.rows for one in taken)
    return Ingested(len(taken), rows, tuple(one.trouble(purged) for one in taken if not one.settled), reports)


def _report(edges: IssuerEdges, run: str, kept: Set[str]) -> RunReport:
    """Rebuild a run's report once the store lists what was kept just now."""
    store, prefix = edges.edges.store, keys_of(run).outcomes
    hidden = {key for key in kept if key.startswith(prefix)} - {entry.key for entry in store.keys(prefix)}
    if hidden:
        raise ListedLateError(key=min(hidden))
    return rebuild_lasting(edges, run)


def examine(edges: IssuerEdges, found: Found) -> tuple[ResultRows, Attributed]:
    """Read and attribute one result file as an ingest would; nothing is kept."""
    store = edges.edges.store
    with edges.opener() as opener:
        files = _read(edges.issuer.time_zone, [found.entry], [_content(store, opener, found.entry)])
    searched = _search(SentBooks(store, edges.issuer.issuer), Batch([found], files, read_claims(files)))
    return files[0], _attribute(edges, *searched)[1][0]


def _take_up(edges: IssuerEdges, fresh: Sequence[Found]) -> Iterator[Taken]:
    """Attribute result files, a batch at a time, and keep their outcomes."""
    books = SentBooks(edges.edges.store, edges.issuer.issuer)
    with (
        edges.opener() as opener,
        ThreadPoolExecutor(edges.edges.wires) as readers,
        closing(ahead(_read_all(edges, opener, readers, fresh))) as batches,
        closing(ahead(map(partial(_search, books), batches))) as searched,
        closing(ahead(starmap(partial(_attribute, edges), searched))) as attributed,
    ):
        yield from chain.from_iterable(starmap(partial(_keep, edges), attributed))


def _read_all(
    edges: IssuerEdges, opener: Opener | None, readers: ThreadPoolExecutor, fresh: Sequence[Found]
) -> Iterator[Batch]:
    """Fetch and read result files, a batch at a time, and what their rows claim."""
    for start in range(0, len(fresh), BATCH):
        batch = fresh[start : start + BATCH]
        entries = [found.entry for found in batch]
        contents = readers.map(lambda entry: _content(edges.edges.store, opener, entry), entries)
        files = _read(edges.issuer.time_zone, entries, list(contents))
        yield Batch(batch, files, read_claims(files))


def _search(books: SentBooks, batch: Batch) -> tuple[Batch, Candidates]:
    """Find the sent rows that a batch may answer."""
    return batch, books.candidates([one.name for one in batch.files], batch.claims, batch.forced)


def _attribute(edges: IssuerEdges, batch: Batch, sent: Candidates) -> tuple[Sequence[Found], list[Attributed]]:
    hosts = edges.issuer.portal.allowed_hosts
    return batch.found, attribute_claims(batch.files, batch.claims, sent, hosts, batch.forced)


def _read(time_zone: str, entries: Sequence[Entry], contents: Sequence[tuple[bytes, str]]) -> list[ResultRows]:
    """Read result files; what kept one from being opened is one more problem of it, or its only one."""
    arrived = [
        # whoever names a result may name it after a card
        Arrived(content, redact(entry.key.rpartition("/")[2]), local_day(entry.modified, time_zone))
        for entry, (content, _) in zip(entries, contents, strict=True)
    ]
    return [
        one._replace(problems=(*one.problems, trouble) if content else (trouble,)) if trouble else one
        for one, (content, trouble) in zip(read_results(arrived), contents, strict=True)
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


def _keep(edges: IssuerEdges, batch: Sequence[Found], outcomes: Sequence[Attributed]) -> Iterator[Taken]:
    """Keep what the files say with every run they touch; rows of no run stay with a file's first."""
    answers: dict[str, list[Answer]] = {}
    parted = [_by_run(one.outcomes) for one in outcomes]
    for found, one, parts in zip(batch, outcomes, parted, strict=True):
        for run, rows in parts.items():
            answers.setdefault(run, []).append(Answer(found.entry, one, rows))
    kept = {run: _keep_run(edges, run, told) for run, told in sorted(answers.items())}
    for found, one, parts in zip(batch, outcomes, parted, strict=True):
        runs = frozenset(parts)
        lost = one.outcomes["row"].null_count()
        left = spoken_for(found.decided) - runs  # reported again even where an ingest before this one was killed
        gone = [_take_back(edges, run, found.entry, one) for run in sorted(left) if _speaks(edges, run, found.entry)]
        written = (*(kept[run] for run in runs), *gone)
        yield Taken(found, one.digest, one.problems, one.outcomes.height, runs | left, lost, written)


def _speaks(edges: IssuerEdges, run: str, entry: Entry) -> bool:
    return Told(edges.edges.store, keys_of(run)).speaks(entry.key)


def _take_back(edges: IssuerEdges, run: str, entry: Entry, one: Attributed) -> str:
    """Keep that a file says nothing of a run any more, since its rows were given to other runs by hand."""
    keys, nothing = keys_of(run), pl.DataFrame({name: [None] for name in OUTCOME}, OUTCOME)
    note(edges.edges, keys, "answer taken back", results=[one.name], digests=[one.digest])
    return keep(edges.edges.store, keys, edges.edges.now(), [Answer(entry, one, nothing)])


def _by_run(outcomes: pl.DataFrame) -> dict[str, pl.DataFrame]:
    first = outcomes["run"].first()
    if first is not None and (outcomes["run"] == first).all(ignore_nulls=False):  # the usual file
        return {str(first): outcomes}
    runs = outcomes["run"].unique().drop_nulls().sort().to_list()
    if len(runs) < 2:
        return dict.fromkeys(runs, outcomes)
    return {run: outcomes.filter(pl.col("run").fill_null(runs[0]) == run) for run in runs}


def _keep_run(edges: IssuerEdges, run: str, answers: Sequence[Answer]) -> str:
    keys, ones = keys_of(run), [answer.one for answer in answers]
    key = keep(edges.edges.store, keys, edges.edges.now(), answers)
    rows = sum(answer.rows.height for answer in answers)
    note(
        edges.edges,
        keys,
        "answered",
        results=[one.name for one in ones],
        digests=[one.digest for one in ones],
        rows=rows,
    )
    return key
