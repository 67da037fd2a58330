"""What manifests and results say of other objects, compared with what is stored of them.

Chunks, ledgers and seal records by the manifest of their run; result files as they were when they
were ingested; the links that a run's report and lists hand out, by what its results gave.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, cast

from flows.operations.audit_entries import CHANGED, INSERTED, REMOVED, Finding
from flows.operations.audit_links import Decoded, link_findings, small_tables
from flows.operations.audit_objects import Snapshot
from flows.results.decisions import decided_rows
from flows.results.masking import mask_key
from flows.runs.adapters import Adapters
from flows.runs.events import ANSWERED
from flows.runs.identity import digest
from flows.runs.keys import RunId, RunKeys, purged, results, runs
from flows.runs.openpgp import looks_like_message
from flows.runs.store import (
    ConflictError,
    ObjectChangedError,
    read_if_stored,
)
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.breaks import CONFLICTING_RESULT
from schemas.manifest import ManifestChunk

OTHER_ANSWERS = "came again with other answers, and nobody has decided which of them count"
# of a run, what its contents are judged by, and what is judged
_JUDGED = re.compile(
    r"[^/]+/runs/[^/]+/("
    r"manifest\.json"
    r"|(chunks|sealed|ledger|rewritten|reseals|seals|outcomes|single|events|closed)/.+"
    r"|report/(rows/.+|links.*)"
    r")"
)
TOGETHER = 64  # runs whose small tables are decoded at once


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


class _Objects(NamedTuple):
    store: Snapshot


def _adapters(objects: Snapshot) -> Adapters:
    return cast(Adapters, _Objects(objects))


def judged_contents(
    objects: Snapshot, issuer: str, wrong: Collection[str], proven: Mapping[str, JudgedRun]
) -> Contents:
    """Compare what the records of an issuer's runs say of other objects.

    `wrong` are known findings; `proven` are runs that were whole: one whose objects have the same
    digests is whole again, since nothing else decides it.
    """
    verdicts = _verdicts(objects, issuer, wrong, proven)
    findings = [*chain.from_iterable(each.findings for each in verdicts.values())]
    findings += _result_findings(objects, issuer, _answered(verdicts.values()))
    whole = {run: each.run for run, each in verdicts.items() if each.run is not None}
    known_runs = sum(1 for run, judged in whole.items() if judged is proven.get(run))
    return Contents(findings, whole, known_runs)


def _verdicts(
    objects: Snapshot, issuer: str, wrong: Collection[str], proven: Mapping[str, JudgedRun]
) -> dict[str, _Verdict]:
    """Judge each run of an issuer, those that are as they were proven by that proof."""
    facts = facts_of_runs(objects, issuer)
    ids = {str(run): run for run in StoredRuns(_adapters(objects), issuer).ids}
    verdicts = {
        name: _Verdict([], known.results, known)
        for name, known in proven.items()
        if name in ids and known.sha256 == facts.get(name)
    }
    unproven = [run for name, run in ids.items() if name not in verdicts]
    for start in range(0, len(unproven), TOGETHER):
        judged = unproven[start : start + TOGETHER]
        judge = _Judge(objects, facts, wrong, small_tables(objects, map(RunKeys, judged)))
        verdicts |= zip(map(str, judged), concurrently(judge.verdict, judged), strict=True)
    return verdicts


def _answered(verdicts: Iterable[_Verdict]) -> dict[str, set[str]]:
    """Return the digests of each result file, by its name, that the events of runs name."""
    answered = dict[str, set[str]]()
    for name, sha256s in chain.from_iterable(each.results.items() for each in verdicts):
        answered.setdefault(name, set()).update(sha256s)
    return answered


def facts_of_runs(objects: Snapshot, issuer: str) -> dict[str, str]:
    """Return a digest of all that the contents of a run are judged by, for each run."""
    keys = [key for key in objects.below(runs(issuer)) if _JUDGED.fullmatch(key)]
    keys += objects.below(purged(issuer))
    lines = dict[str, list[str]]()
    for key, sha256 in objects.digests(keys).items():
        lines.setdefault(key.split("/")[2], []).append(f"{sha256} {key}")
    return {run: digest("\n".join(of_run).encode()) for run, of_run in lines.items()}


class _Judge(NamedTuple):
    """What runs are judged by: all objects, a digest of each run's facts, known findings, and
    tables that are decoded already.
    """

    objects: Snapshot
    facts: Mapping[str, str]
    wrong: Collection[str]
    tables: Decoded

    def verdict(self, run: RunId) -> _Verdict:
        """Return what is wrong with a run, as it is stored now."""
        keys = RunKeys(run)
        # a changed manifest may name any run and chunks
        if any(key.startswith(keys.base) for key in self.wrong):
            return _UNJUDGED
        try:
            verdict = _judged(self.objects, StoredRun(_adapters(self.objects), keys), self.tables)
        except ObjectChangedError:  # a report is made anew, or results come, at this moment
            fresh = self.objects.fresh(keys.base)
            return _judged(fresh, StoredRun(_adapters(fresh), keys), {})
        own = (keys.base, f"{purged(run.issuer)}{run}/")
        # of what was not listed the facts lack what was read
        if (
            verdict is _UNJUDGED
            or verdict.findings
            or any(key.startswith(own) for key in self.objects.unlisted)
        ):
            return verdict
        results = {name: list(sha256s) for name, sha256s in verdict.results.items()}
        return verdict._replace(run=JudgedRun(self.facts.get(str(run), ""), results))


def _judged(objects: Snapshot, run: StoredRun, tables: Decoded) -> _Verdict:
    """Return what is wrong with the contents of a run, and the results that it has."""
    with suppress(ConflictError):  # a finding already
        if run.manifest is not None:
            results = _results(run)
            findings = [
                *_object_findings(objects, run),
                *_seal_findings(run, run.manifest.chunks),
                *link_findings(run, tables),
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
