"""What manifests and results say of other objects, compared with what is stored of them.

Chunks and ledgers by the manifest of their run; result files as they were when they were ingested,
until the ledgers of the runs that they answer are purged, since a lost database is rebuilt from
them; the links that a run's report and lists hand out, by what its results gave.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from flows.operations.audit_journal import CHANGED, INSERTED, REMOVED, Finding
from flows.operations.audit_links import Decoded, link_findings, small_tables
from flows.operations.audit_objects import Snapshot
from flows.results.decisions import decided_rows
from flows.results.masking import mask_key
from flows.runs.adapters import Adapters
from flows.runs.events import ANSWERED
from flows.runs.journal import Entry
from flows.runs.keys import RunId, RunKeys, results
from flows.runs.openpgp import looks_like_message
from flows.runs.store import (
    ConflictError,
    ObjectChangedError,
    read_if_stored,
)
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.breaks import CONFLICTING_RESULT

OTHER_ANSWERS = "came again with other answers, and nobody has decided which of them count"
TOGETHER = 64  # runs whose small tables are decoded at once


class Ingest(NamedTuple):
    """That a result file was ingested: the digest it had, and the entry that says so."""

    sha256: str
    entry: Entry


Results = Mapping[str, Sequence[Ingest]]  # the ingests of the result files of a run, by name


class Gone(NamedTuple):
    """A result file that is gone, after the ledgers of all runs that it answers were purged."""

    key: str
    purged: datetime


class Contents(NamedTuple):
    """What is wrong with the contents of an issuer's runs, of how many they were compared, and
    what retention explains.
    """

    findings: list[Finding]
    runs: int
    gone: list[Gone]


class _Verdict(NamedTuple):
    """What was found about a run, the result files that its entries name, and since when its ledger
    is purged.
    """

    findings: list[Finding]
    results: Results
    purged: datetime | None


def judged_contents(
    adapters: Adapters, objects: Snapshot, issuer: str, wrong: Collection[str]
) -> Contents:
    """Compare what the records of an issuer's runs say of other objects.

    `wrong`: the keys of known findings.
    """
    runs = StoredRuns(adapters._replace(store=objects), issuer).ids
    verdicts = list[_Verdict]()
    for start in range(0, len(runs), TOGETHER):
        judged = runs[start : start + TOGETHER]
        judge = _Judge(adapters, objects, wrong, small_tables(objects, map(RunKeys, judged)))
        verdicts += filter(None, concurrently(judge.verdict, judged))
    findings = [*chain.from_iterable(each.findings for each in verdicts)]
    answered = _answered(verdicts)
    findings += _result_findings(objects, issuer, answered)
    missing = list(_missing(objects, issuer, answered))
    gone = [each for each in missing if isinstance(each, Gone)]
    findings += [each for each in missing if isinstance(each, Finding)]
    return Contents(findings, len(verdicts), gone)


class _Ingested(NamedTuple):
    """What the runs that a result file answers say of it: its ingests, and when each run's ledger
    was purged.
    """

    ingests: list[Ingest]
    purges: list[datetime | None]


def _answered(verdicts: Iterable[_Verdict]) -> dict[str, _Ingested]:
    """Return what runs say of each result file that their entries name, by its name."""
    answered = dict[str, _Ingested]()
    for verdict in verdicts:
        for name, ingests in verdict.results.items():
            known = answered.setdefault(name, _Ingested([], []))
            known.ingests.extend(ingests)
            known.purges.append(verdict.purged)
    return answered


class _Judge(NamedTuple):
    """What runs are judged by: all objects, known findings, and tables that are decoded already."""

    adapters: Adapters
    objects: Snapshot
    wrong: Collection[str]
    tables: Decoded

    def verdict(self, run: RunId) -> _Verdict | None:
        """Return what is wrong with a run, as it is stored now; None: it is not committed."""
        keys = RunKeys(run)
        # a changed manifest may name any run and chunks
        if any(key.startswith(keys.base) for key in self.wrong):
            return None
        try:
            return self._judged(keys, self.objects, self.tables)
        except ObjectChangedError:  # a report is made anew, or results come, at this moment
            return self._judged(keys, self.objects.fresh(keys.base), {})

    def _judged(self, keys: RunKeys, objects: Snapshot, tables: Decoded) -> _Verdict | None:
        run = StoredRun(self.adapters._replace(store=objects), keys)
        with suppress(ConflictError):  # a finding already
            if run.manifest is not None:
                results = _results(run)
                purged = run.purged_ledger
                findings = [
                    *_object_findings(objects, run),
                    *link_findings(run, tables),
                    *_answer_findings(run, results),
                ]
                return _Verdict(findings, results, purged.at if purged else None)
        return None


def _object_findings(objects: Snapshot, run: StoredRun) -> Iterator[Finding]:
    """Yield the chunks and ledger parts of a committed run that are not those of its manifest."""
    keys = run.keys
    manifest = run.committed()
    sealed_first = {keys.chunks + chunk.name: chunk.sha256 for chunk in manifest.chunks}
    sealed_last = {stored.key: stored.chunk.sha256 for stored in run.sealed_chunks.values()}
    required_chunks = sealed_last if run.purged_chunks is None else {}
    sealed = sealed_first | sealed_last
    yield from _differences(objects, _committed_chunks(objects, run), sealed, required_chunks)
    ledger = {keys.ledger + part.name: part.sha256 for part in manifest.ledger}
    rewritten = run.rewritten_parts.values()
    current = {keys.ledger + part.now: part.sha256 for part in rewritten}
    replaced = {keys.ledger + part.name for part in rewritten}
    required_parts = current.keys() | ledger.keys() - replaced
    if run.purged_ledger is not None:
        required_parts = set()
    parts = objects.below(keys.ledger)
    yield from _differences(objects, parts, ledger | current, required_parts)


def _committed_chunks(objects: Snapshot, run: StoredRun) -> list[str]:
    """Return the keys below those of a run's chunks, without what a process sealed that lost the
    claim on the run: its epoch was never committed.
    """
    keys = run.keys
    epochs = {keys.chunk_epoch(chunk.name) for chunk in run.committed().chunks}
    stored = objects.below(keys.chunks)
    return [key for key in stored if keys.chunk_epoch(key.rpartition("/")[2]) in {0, *epochs}]


def _differences(
    objects: Snapshot, stored: Iterable[str], known: Mapping[str, str], required: Collection[str]
) -> Iterator[Finding]:
    """Yield the objects, the stored and the known, that do not have the known digest."""
    keys = sorted({*stored, *known})
    for key, sha256 in objects.digests(keys).items():
        if sha256 == known.get(key) or not (sha256 or key in required):
            continue
        if not sha256:
            yield Finding(key, REMOVED)
        else:
            yield Finding(key, CHANGED if key in known else INSERTED)


# Results
# --------------------------------------------------------------------------------------------------


def _results(run: StoredRun) -> dict[str, list[Ingest]]:
    """Return the ingests of the result files of a run, by their names."""
    answered = dict[str, list[Ingest]]()
    for event in run.events(ANSWERED):
        names = event.facts.get("results", ())
        for name, sha256 in zip(names, event.facts.get("digests", ()), strict=True):
            answered.setdefault(name, []).append(Ingest(sha256, event))
    return answered


def _is_changed(files: Sequence[Ingest]) -> bool:
    """Return whether result files of one name have several contents."""
    return len({file.sha256 for file in files}) > 1


def _answer_findings(run: StoredRun, ingested: Results) -> Iterator[Finding]:
    """Yield the result files that came again and answer a row otherwise, until that is decided."""
    changed = {name for name, files in ingested.items() if _is_changed(files)}
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
    objects: Snapshot, issuer: str, answered: Mapping[str, _Ingested]
) -> Iterator[Finding]:
    """Yield the result files that are there, and not as they were when they were ingested."""
    names = {key: _name(key, answered) for key in objects.below(results(issuer))}
    ingested = [key for key, name in names.items() if name in answered]
    for key, sha256 in objects.digests(ingested).items():
        known = {ingest.sha256 for ingest in answered[names[key]].ingests}
        if sha256 and sha256 not in known and not _is_sealed(objects, key):
            yield Finding(key, CHANGED)


def _missing(
    objects: Snapshot, issuer: str, answered: Mapping[str, _Ingested]
) -> Iterator[Finding | Gone]:
    """Yield the result files that were ingested and are gone."""
    stored = {_name(key, answered) for key in objects.below(results(issuer))}
    for name in sorted(answered.keys() - stored):
        key = results(issuer) + name
        ingests, purges = answered[name]
        purged = [moment for moment in purges if moment is not None]
        if len(purged) == len(purges):
            yield Gone(key, max(purged))
        else:
            first = ingests[0].entry
            yield Finding(key, REMOVED, first.number, first.by, first.at.isoformat())


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
