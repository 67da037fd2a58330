"""What manifests and results say of other objects, compared with what is stored of them.

Chunks, ledgers and seal records by the manifest of their run; result files as they were when they
were ingested; the links that a run's report and lists hand out, by what its results gave.
"""

import csv
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO, StringIO
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from flows.operations.audit_entries import CHANGED, INSERTED, REMOVED, Finding
from flows.operations.audit_objects import Snapshot
from flows.results.decisions import decided_rows
from flows.results.masking import mask_key
from flows.runs.events import ANSWERED
from flows.runs.identity import digest
from flows.runs.keys import RunId, RunKeys, purged, results, runs
from flows.runs.openpgp import looks_like_message
from flows.runs.store import (
    ConflictError,
    ObjectChangedError,
    ObjectMissingError,
    Store,
    read,
    read_if_stored,
)
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.breaks import CONFLICTING_RESULT
from schemas.manifest import ManifestChunk

OTHER_LINKS = "hands out links that no result gave"
OTHER_ANSWERS = "came again with other answers, and nobody has decided which of them count"
_NOBODY = set[str]()
# of a run, what its contents are judged by, and what is judged
_JUDGED = re.compile(
    r"[^/]+/runs/[^/]+/("
    r"manifest\.json"
    r"|(chunks|sealed|ledger|rewritten|reseals|seals|outcomes|single|events|closed)/.+"
    r"|report/(rows/.+|links.*)"
    r")"
)
TOGETHER = 1 << 20  # bytes of tables that are decoded at once
Row = tuple[Any, ...]


class JudgedRun(NamedTuple):
    """A committed run whose contents fit each other.

    `sha256` is of the names and digests of all that was compared; `results` are the digests of the
    result files that its events name, by name.
    """

    sha256: str
    results: dict[str, list[str]]


class Contents(NamedTuple):
    """What is wrong with the contents of an issuer's runs, and the runs that are whole.

    `known`: how many of them were found whole by an earlier proof, and are as they were then.
    """

    findings: list[Finding]
    whole: dict[str, JudgedRun]
    known: int


class _Verdict(NamedTuple):
    """What was found about one run: `run` where it may count as whole from now on."""

    findings: list[Finding]
    results: Mapping[str, Sequence[str]]
    run: JudgedRun | None = None


_UNJUDGED = _Verdict([], {})


def judged_contents(
    objects: Snapshot, issuer: str, wrong: Collection[str], proven: Mapping[str, JudgedRun]
) -> Contents:
    """Compare what the records of an issuer's runs say of other objects.

    `wrong` are known findings; `proven` are runs that were whole: one whose objects have the same
    digests is whole again, since nothing else decides it.
    """
    facts = facts_of_runs(objects, issuer)

    def verdict(run: RunId) -> _Verdict:
        known = proven.get(str(run))
        if known is not None and known.sha256 == facts.get(str(run)):
            return _Verdict([], known.results, known)
        return _verdict(objects, run, wrong, facts.get(str(run), ""))

    runs = StoredRuns(objects, issuer).ids
    verdicts = dict(zip(map(str, runs), concurrently(verdict, runs), strict=True))
    answered = dict[str, set[str]]()
    for name, sha256s in chain.from_iterable(each.results.items() for each in verdicts.values()):
        answered.setdefault(name, set()).update(sha256s)
    findings = [*chain.from_iterable(each.findings for each in verdicts.values())]
    findings += _result_findings(objects, issuer, answered)
    whole = {run: each.run for run, each in verdicts.items() if each.run is not None}
    known_runs = sum(1 for run, judged in whole.items() if judged is proven.get(run))
    return Contents(findings, whole, known_runs)


def facts_of_runs(objects: Snapshot, issuer: str) -> dict[str, str]:
    """Return a digest of all that the contents of a run are judged by, for each run."""
    keys = [key for key in objects.below(runs(issuer)) if _JUDGED.fullmatch(key)]
    keys += objects.below(purged(issuer))
    lines = dict[str, list[str]]()
    for key, sha256 in objects.digests(keys).items():
        lines.setdefault(key.split("/")[2], []).append(f"{sha256} {key}")
    return {run: digest("\n".join(of_run).encode()) for run, of_run in lines.items()}


def _verdict(objects: Snapshot, run: RunId, wrong: Collection[str], facts: str) -> _Verdict:
    keys = RunKeys(run)
    own = (keys.base, f"{purged(run.issuer)}{run}/")
    # a changed manifest may name any run and chunks
    if any(key.startswith(keys.base) for key in wrong):
        return _UNJUDGED
    try:
        verdict = _judged(objects, StoredRun(objects, keys))
    except ObjectChangedError:  # a report is made anew, or results come, at this moment
        fresh = objects.fresh(keys.base)
        return _judged(fresh, StoredRun(fresh, keys))
    if verdict is _UNJUDGED or verdict.findings:
        return verdict
    if any(key.startswith(own) for key in objects.unlisted):
        return verdict  # the facts lack what was read
    results = {name: list(sha256s) for name, sha256s in verdict.results.items()}
    return verdict._replace(run=JudgedRun(facts, results))


def _judged(objects: Snapshot, run: StoredRun) -> _Verdict:
    """Return what is wrong with the contents of a run, and the results that it has."""
    with suppress(ConflictError):  # a finding already
        if run.manifest is not None:
            results = _results(run)
            findings = [
                *_object_findings(objects, run),
                *_seal_findings(run, run.manifest.chunks),
                *_link_findings(run),
                *_answer_findings(run, results),
            ]
            return _Verdict(findings, results)
    return _UNJUDGED


def _object_findings(objects: Snapshot, run: StoredRun) -> Iterator[Finding]:
    """Yield the chunks and ledger parts of a committed run that are not those of its manifest."""
    keys = run.keys
    manifest = run.committed()
    sealed_first = {keys.chunks + chunk.name: chunk.sha256 for chunk in manifest.chunks}
    sealed_last = {stored.key: stored.chunk.sha256 for stored in run.sealed_chunks.values()}
    required_chunks = sealed_last if run.purged_chunks is None else {}
    yield from _differences(objects, keys.chunks, sealed_first | sealed_last, required_chunks)
    ledger = {keys.ledger + part.name: part.sha256 for part in manifest.ledger}
    rewritten = run.rewritten_parts.values()
    current = {keys.ledger + part.now: part.sha256 for part in rewritten}
    replaced = {keys.ledger + part.name for part in rewritten}
    required_parts = current.keys() | ledger.keys() - replaced
    if run.purged_ledger is not None:
        required_parts = set()
    yield from _differences(objects, keys.ledger, ledger | current, required_parts)


def _differences(
    objects: Snapshot, prefix: str, known: Mapping[str, str], required: Collection[str]
) -> Iterator[Finding]:
    """Yield the objects, below a prefix and among the known, that do not have the known digest."""
    keys = sorted({*objects.below(prefix), *known})
    for key, sha256 in objects.digests(keys).items():
        if sha256 == known.get(key) or not (sha256 or key in required):
            continue
        if not sha256:
            yield Finding(key, REMOVED)
        else:
            yield Finding(key, CHANGED if key in known else INSERTED)


def _seal_findings(run: StoredRun, chunks: Sequence[ManifestChunk]) -> Iterator[Finding]:
    """Yield the groups of chunks whose seal records do not name their ciphertext."""
    if run.purged_ledger is not None:
        return
    for group in range(math.ceil(len(chunks) / GROUP)):
        members = chunks[group * GROUP : (group + 1) * GROUP]
        if not _is_recorded(run, group, members):
            yield Finding(f"{run.keys.seals}{group:05d}-001.json", CHANGED)


def _is_recorded(run: StoredRun, group: int, chunks: Sequence[ManifestChunk]) -> bool:
    with suppress(ConflictError):
        seal_records = SealRecords(run.store, run.keys.seals, group)
        return all(seal_records.names(chunk.name, chunk.sha256) for chunk in chunks)
    return False


# Links
# --------------------------------------------------------------------------------------------------


def _link_findings(run: StoredRun) -> Iterator[Finding]:
    """Yield the parts of a run's report, and its lists, that give a cardholder another's link."""
    lists = [entry.key for entry in run.store.keys(run.keys.report("links"))]
    if run.purged_ledger is not None or not lists:
        return  # or there is no report yet
    links = _Links(run)
    outcomes = [entry.key for entry in run.store.keys(run.keys.outcomes)]
    parts = [run.rows_key(part) for part in run.committed().ledger]
    lists.sort(key=lambda key: not key.endswith(".parquet"))  # these are decoded with the others
    columns = dict.fromkeys(outcomes, ("url", "row")) | dict.fromkeys(parts, ("url", "row", "cuid"))
    for key, rows in _tables(run.store, columns | dict.fromkeys(lists, ("cuid", "url"))):
        if key in outcomes:
            links.add(rows or ())
        elif rows is None or not (links.gave(rows) if key in parts else links.are_of(rows)):
            yield Finding(key, OTHER_LINKS)


class _Links:
    """The links that the results of a run gave, single links too, and whose they are by its report.

    What is asked of it is asked in this order: of results, of parts of the report, of lists.
    """

    def __init__(self, run: StoredRun) -> None:
        self._given = set[tuple[int, str]]()  # row and URL
        self._owners = dict[str, set[str]]()  # cuids, by URL
        for single in run.single_link_attempts:
            answer = single.answered
            if single.asked.row is not None and answer is not None and answer.url is not None:
                self._given.add((single.asked.row, answer.url))

    def add(self, rows: Iterable[Row]) -> None:
        """Add the links of a result: url and row."""
        self._given.update((row, url) for url, row in rows if url is not None)

    def gave(self, rows: Iterable[Row]) -> bool:
        """Return whether the links of a part of the report (url, row, cuid) were given."""
        linked = [row for row in rows if row[0] is not None]
        for url, _, cuid in linked:
            self._owners.setdefault(url, set()).add(cuid)
        return self._given.issuperset((row, url) for url, row, _ in linked)

    def are_of(self, lines: Iterable[Row]) -> bool:
        """Return whether each line of a list has links beside cuids that they belong to."""
        return not any(_is_of_another(line, self._owners) for line in lines)


def _tables(
    store: Store, columns: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[Row] | None]]:
    """Yield the rows of tables by key, in order: these columns of a Parquet object, all of a CSV.

    Without those that are not there; None for one that is no table. Small objects are decoded at
    once: each of them alone takes twice as long.
    """
    together = dict[str, pl.LazyFrame]()
    size = 0
    for key, names in columns.items():
        try:
            content = read(store, key)
        except ObjectMissingError:
            continue
        if not key.endswith(".parquet"):
            yield from _decoded(together)
            together.clear()
            yield key, _cells(content)
            continue
        together[key] = pl.scan_parquet(BytesIO(content)).select(names)
        size += len(content)
        if size > TOGETHER:
            yield from _decoded(together)
            together.clear()
            size = 0
    yield from _decoded(together)


def _decoded(tables: Mapping[str, pl.LazyFrame]) -> Iterator[tuple[str, list[Row] | None]]:
    try:
        frames = pl.collect_all(tables.values())
    except pl.exceptions.PolarsError:
        for key, rows in tables.items():
            yield key, _collected(rows)
        return
    for key, frame in zip(tables, frames, strict=True):
        yield key, frame.rows()


def _collected(rows: pl.LazyFrame) -> list[Row] | None:
    try:
        return rows.collect().rows()
    except pl.exceptions.PolarsError:
        return None


def _cells(content: bytes) -> list[Row] | None:
    """Return the cells of each line of a list, whose columns may have any names; None for none."""
    try:
        return [tuple(line) for line in csv.reader(StringIO(content.decode("utf-8-sig")))]
    except (UnicodeDecodeError, csv.Error):
        return None


def _is_of_another(line: Sequence[Any], owners: Mapping[str, set[str]]) -> bool:
    """Return whether a line has a link beside a cuid that it does not belong to."""
    links = [cell for cell in line if cell is not None and "://" in cell]
    return any(not owners.get(link, _NOBODY) & set(line) for link in links)


# Results
# --------------------------------------------------------------------------------------------------


def _results(run: StoredRun) -> dict[str, list[str]]:
    """Return the digests that result files had when they were ingested, by their names."""
    answered = dict[str, list[str]]()
    for event in run.events(ANSWERED):
        names = event.get("results", ())
        for name, sha256 in zip(names, event.get("digests", ()), strict=False):
            answered.setdefault(name, []).append(sha256)
    return answered


def _answer_findings(run: StoredRun, ingested: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield the result files that came again and answer a row otherwise, until that is decided.

    `ingested`: the digests that each had.
    """
    changed = {name for name, sha256s in ingested.items() if len(set(sha256s)) > 1}
    if not changed:
        return
    decided = decided_rows(run.closed_breaks).filter(kind=CONFLICTING_RESULT)
    answers = dict[tuple[str, int], set[tuple[str, str]]]()
    for file in run.outcomes.of(run.outcomes.chunks()):
        if file.name in changed:
            undecided = file.settled.join(decided, on="row", how="anti")
            for row, *answer in undecided.select("row", "state", "url").iter_rows():
                answers.setdefault((file.name, row), set()).add((answer[0], answer[1]))
    for name in sorted({name for (name, _), contents in answers.items() if len(contents) > 1}):
        yield Finding(results(run.keys.run.issuer) + name, OTHER_ANSWERS)


def _result_findings(
    objects: Snapshot, issuer: str, answered: Mapping[str, Collection[str]]
) -> Iterator[Finding]:
    """Yield the result files that are not as they were when they were ingested, those still there.

    They belong to the operator, who may remove them.
    """
    names = {key: _name(key, answered) for key in objects.below(results(issuer))}
    ingested = [key for key, name in names.items() if name in answered]
    for key, sha256 in objects.digests(ingested).items():
        if sha256 and sha256 not in answered[names[key]] and not _is_sealed(objects, key):
            yield Finding(key, CHANGED)


def _is_sealed(objects: Snapshot, key: str) -> bool:
    """Return whether a file is sealed: the digest that was recorded is of its content."""
    return looks_like_message((read_if_stored(objects, key) or b"")[:64])


def _name(key: str, answered: Collection[str]) -> str:
    """Return the name of a result file as events have it."""
    name = key.rpartition("/")[2]
    # what is kept of a name is kept of itself, marks apart
    if "[" not in name and name in answered:
        return name
    return mask_key(name)
