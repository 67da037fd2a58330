"""Take up result files: open, read, attribute every row to the run and row it answers, keep the outcome.

A file is marked as taken up last, once all of its rows found their place. Killed half-way, or fed again, it gives
the same outcome; a file of no run we know stays unmarked and is tried again each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import polars as pl

from flows.core.errors import CardlinkError, TryAgainError
from flows.core.names import ingested, results
from flows.core.ports import Entry, Opener, Store
from flows.core.redaction import redact
from flows.core.results.attribution import Attributed, attribute_all
from flows.core.results.mentioned import mentioned_cuids
from flows.core.results.results import TOO_LARGE, ResultRows, read_result
from flows.core.run.planning import canonical
from flows.core.sealing.openpgp import looks_like_message
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.edges import IssuerEdges, note, read
from flows.steps.outcomes import keep
from flows.steps.report import RunReport, rebuild
from flows.steps.runs import keys_of, manifests, read_ledger
from flows.steps.sweep import sweep
from schemas import ledger
from schemas.manifest import Manifest

BATCH = 200  # result files attributed at a time
WRITERS = 8  # outcomes and marks written at a time: most of a small object's time is waiting
MISSING = "file.content.missing"
LARGEST = 64 << 20  # bytes a result file may have, sealed or opened
SENT = ["row", "cuid", "last_4", "fate", "chunk", "position"]


class ListedLateError(TryAgainError):
    """What was just written is not listed, so a report would lack it."""

    says = "{0} was written but is not listed yet. Its report was left as it was."
    then = "The store lists late: run the same command again in a minute."

    def __init__(self, key: str) -> None:
        super().__init__(key)


class Ingested(NamedTuple):
    """What one call took up: files, their rows, what found no place, and the reports it brought up to date."""

    files: int
    rows: int
    breaks: tuple[str, ...]
    reports: tuple[RunReport, ...]


class Taken(NamedTuple):
    """One result file, attributed and kept: the runs it touches, its rows, how many of them belong to no sent row."""

    entry: Entry
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

    def trouble(self) -> str:
        """Say what found no place."""
        why = ", ".join(self.problems) or "no run of this issuer sent them"
        lost = f"{self.lost} of {self.rows} rows belong to no sent row ({why})"
        return f"{redact(self.entry.key)}: {lost}"


def ingest(edges: IssuerEdges, also: str = "") -> Ingested:
    """Attribute every result file that is not taken up yet, report the runs they touch (and the run `also`), mark them.

    The marks come last: killed anywhere before, the next call does it all again, with the same outcome.
    """
    store, name = edges.edges.store, edges.issuer.issuer
    marks = {entry.key for entry in store.keys(ingested(name))}
    fresh = [entry for entry in store.keys(results(name)) if _mark(name, entry) not in marks]
    taken = list(_take_up(edges, fresh)) if fresh else []
    touched = {run for one in taken for run in one.runs} | ({also} if also else set())
    sweep(edges.edges, ingested(name), *(keys_of(run).base for run in touched))
    reports = tuple(_report(edges, run, {key for one in taken for key in one.kept}) for run in sorted(touched))
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda one: _set_mark(store, name, one), (one for one in taken if one.settled)))
    rows = sum(one.rows for one in taken)
    return Ingested(len(taken), rows, tuple(one.trouble() for one in taken if not one.settled), reports)


def _report(edges: IssuerEdges, run: str, kept: Set[str]) -> RunReport:
    """Rebuild a run's report until nobody has added to its outcomes meanwhile: so the last one written has them all."""
    store, prefix = edges.edges.store, keys_of(run).outcomes
    while True:
        listed = list(store.keys(prefix))
        hidden = {key for key in kept if key.startswith(prefix)} - {entry.key for entry in listed}
        if hidden:
            raise ListedLateError(min(hidden))
        report = rebuild(edges, run)
        if list(store.keys(prefix)) == listed:
            return report


def _take_up(edges: IssuerEdges, fresh: Sequence[Entry]) -> Iterator[Taken]:
    """Attribute result files, a few hundred at a time, and keep their outcomes."""
    store, issuer = edges.edges.store, edges.issuer
    committed = list(manifests(store, issuer.issuer))
    with edges.opener() as opener, ThreadPoolExecutor(WRITERS) as writers:
        for start in range(0, len(fresh), BATCH):
            entries = fresh[start : start + BATCH]
            read_files = [_read(store, opener, entry) for entry in entries]
            sent = _candidates(store, committed, read_files)
            outcomes = attribute_all(read_files, sent, issuer.portal.allowed_hosts)
            yield from writers.map(lambda entry, one: _keep(edges, entry, one), entries, outcomes)


def _read(store: Store, opener: Opener | None, entry: Entry) -> ResultRows:
    name = redact(entry.key.rpartition("/")[2])  # whoever names a result may name it after a card
    content, trouble = _content(store, opener, entry)
    result = read_result(content, name, entry.modified.date())
    if not trouble:
        return result
    return result._replace(problems=(*result.problems, trouble) if content else (trouble,))


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


def _candidates(store: Store, committed: Sequence[Manifest], read_files: Sequence[ResultRows]) -> pl.DataFrame:
    """Return the sent rows of every chunk that these files may answer: one of its cuids, or its name, is in them."""
    cuids = mentioned_cuids(read_files)
    names = " ".join(one.name for one in read_files)
    found = [pl.DataFrame(schema={"run": pl.String, **{name: ledger.dtypes()[name] for name in SENT}})]
    for manifest in committed:
        named = [chunk.number for chunk in manifest.chunks if chunk.name.partition(".")[0] in names]
        for part in read_ledger(store, keys_of(manifest.run), manifest.ledger, SENT):
            sent = part.filter(fate=ledger.SUBMITTED)
            hit = sent.filter(pl.col("cuid").is_in(cuids.implode()))["chunk"].unique()
            chunks = pl.concat([hit, pl.Series(named, dtype=pl.UInt32)]).unique()
            found.append(
                sent.filter(pl.col("chunk").is_in(chunks.implode())).select(pl.lit(manifest.run).alias("run"), *SENT)
            )
    return pl.concat(found).drop("fate")


def _keep(edges: IssuerEdges, entry: Entry, one: Attributed) -> Taken:
    """Keep a file's outcome with every run it touches; rows of no run stay with the first."""
    homeless = one.outcomes.filter(pl.col("run").is_null())
    placed = one.outcomes.filter(pl.col("run").is_not_null())
    parts = {str(key[0]): part for key, part in placed.partition_by("run", as_dict=True).items()}
    kept = []
    for at, (run, rows) in enumerate(sorted(parts.items())):
        keys = keys_of(run)
        kept.append(keep(edges.edges.store, keys, entry.key, one, pl.concat([rows, homeless]) if at == 0 else rows))
        note(edges.edges, keys, "answered", result=one.name, digest=one.digest, rows=rows.height)
    lost = int(one.outcomes["row"].is_null().sum())
    return Taken(entry, one.digest, one.problems, one.outcomes.height, frozenset(parts), lost, tuple(kept))


def _set_mark(store: Store, issuer: str, one: Taken) -> None:
    mark = {
        "key": redact(one.entry.key),
        "version": one.entry.version,
        "digest": one.digest,
        "runs": sorted(one.runs),
    }
    store.create(_mark(issuer, one.entry), canonical(mark))


def _mark(issuer: str, entry: Entry) -> str:
    identity = f"{entry.key}|{entry.size}|{entry.version}"
    return f"{ingested(issuer)}{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
