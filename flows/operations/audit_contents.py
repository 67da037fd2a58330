"""What manifests and results say of other objects, compared with what is stored of them.

Chunks, ledgers and seal records by the manifest of their run; result files as they were when they
were ingested; the links that a run's report and lists hand out, by what its results gave.
"""

import csv
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO, StringIO
from typing import Any, TypeVar

import polars as pl

from flows.operations.audit_entries import CHANGED, INSERTED, REMOVED, Finding, digests
from flows.results.masking import mask_key
from flows.runs.events import ANSWERED
from flows.runs.identity import digest
from flows.runs.keys import results
from flows.runs.openpgp import looks_like_message
from flows.runs.store import ConflictError, ObjectMissingError, Store, read, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.manifest import ManifestChunk

OTHER_LINKS = "hands out links that no result gave"
_NOBODY = set[str]()
T = TypeVar("T")


def content_findings(store: Store, issuer: str, wrong: Collection[str]) -> Iterator[Finding]:
    """Yield what is not as the records of an issuer's runs say; `wrong` are known findings."""
    answered = dict[str, set[str]]()
    for run in StoredRuns(store, issuer):
        # a changed manifest may name any run and chunks
        if any(key.startswith(run.keys.base) for key in wrong):
            continue
        with suppress(ConflictError):  # a finding already
            if run.manifest is not None:
                yield from _object_findings(run)
                yield from _seal_findings(run, run.manifest.chunks)
                yield from _link_findings(run)
                _add_results(answered, run)
    yield from _result_findings(store, issuer, answered)


def _object_findings(run: StoredRun) -> Iterator[Finding]:
    """Yield the chunks and ledger parts of a committed run that are not those of its manifest."""
    keys = run.keys
    manifest = run.committed()
    sealed_first = {keys.chunks + chunk.name: chunk.sha256 for chunk in manifest.chunks}
    sealed_last = {stored.key: stored.chunk.sha256 for stored in run.sealed_chunks.values()}
    required_chunks = sealed_last if run.purged_chunks is None else {}
    yield from _differences(run, keys.chunks, sealed_first | sealed_last, required_chunks)
    ledger = {keys.ledger + part.name: part.sha256 for part in manifest.ledger}
    rewritten = run.rewritten_parts.values()
    current = {keys.ledger + part.now: part.sha256 for part in rewritten}
    replaced = {keys.ledger + part.name for part in rewritten}
    required_parts = current.keys() | ledger.keys() - replaced
    if run.purged_ledger is not None:
        required_parts = set()
    yield from _differences(run, keys.ledger, ledger | current, required_parts)


def _differences(
    run: StoredRun, prefix: str, known: Mapping[str, str], required: Collection[str]
) -> Iterator[Finding]:
    """Yield the objects, below a prefix and among the known, that do not have the known digest."""
    listed = {entry.key for entry in run.store.keys(prefix)}
    for key, sha256 in digests(run.store, sorted(listed | known.keys())).items():
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
    if run.purged_ledger is not None:
        return
    folder = run.keys.report("")
    parts = [run.rows_key(part) for part in run.committed().ledger]
    lists = [entry.key for entry in run.store.keys(f"{folder}links")]
    if not lists:
        return  # there is no report yet
    of_results = _links_given(run)
    owners = dict[str, set[str]]()
    for key in parts:
        rows = _readable(lambda: _links_in(run.store, key, "row", "cuid"))  # noqa: B023
        if rows is None or not of_results.issuperset((row, url) for url, row, _ in rows):
            yield Finding(key, OTHER_LINKS)
        for url, _, cuid in rows or ():
            owners.setdefault(url, set()).add(cuid)
    for key in lists:
        lines = _readable(lambda: _lines(run.store, key))  # noqa: B023
        if lines is None or any(_is_of_another(line, owners) for line in lines):
            yield Finding(key, OTHER_LINKS)


def _readable(read_rows: Callable[[], list[T]]) -> list[T] | None:
    """Return rows, none where there is no object; None where it is no table."""
    try:
        return read_rows()
    except ObjectMissingError:
        return []
    except (pl.exceptions.PolarsError, UnicodeDecodeError, csv.Error):
        return None


def _links_in(store: Store, key: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return url and these columns of the rows of a Parquet object that have a link."""
    rows = pl.read_parquet(BytesIO(read(store, key)), columns=["url", *columns])
    return [row for row in rows.select("url", *columns).rows() if row[0] is not None]


def _links_given(run: StoredRun) -> set[tuple[int, str]]:
    """Return the links that the results of a run gave: row and url; single links too."""
    links = set[tuple[int, str]]()
    for entry in run.store.keys(run.keys.outcomes):
        links.update((row, url) for url, row in _links_in(run.store, entry.key, "row"))
    for single in run.single_link_attempts:
        answer = single.answered
        if single.asked.row is not None and answer is not None and answer.url is not None:
            links.add((single.asked.row, answer.url))
    return links


def _lines(store: Store, key: str) -> list[tuple[Any, ...]]:
    """Return the cells of each line of a list; its columns may have any names."""
    content = read(store, key)
    if key.endswith(".parquet"):
        return pl.read_parquet(BytesIO(content), columns=["cuid", "url"]).rows()
    return [tuple(line) for line in csv.reader(StringIO(content.decode("utf-8-sig")))]


def _is_of_another(line: Sequence[Any], owners: Mapping[str, set[str]]) -> bool:
    """Return whether a line has a link beside a cuid that it does not belong to."""
    links = [cell for cell in line if cell is not None and "://" in cell]
    return any(not owners.get(link, _NOBODY) & set(line) for link in links)


# Results
# --------------------------------------------------------------------------------------------------


def _add_results(answered: dict[str, set[str]], run: StoredRun) -> None:
    """Add the digests that result files had when they were ingested, by their names."""
    for event in run.events(ANSWERED):
        names = event.get("results", ())
        for name, sha256 in zip(names, event.get("digests", ()), strict=False):
            answered.setdefault(name, set()).add(sha256)


def _result_findings(
    store: Store, issuer: str, answered: Mapping[str, Collection[str]]
) -> Iterator[Finding]:
    """Yield the result files that are not as they were when they were ingested, those still there.

    They belong to the operator, who may remove them.
    """

    def is_another(key: str) -> bool:
        content = read_if_stored(store, key)
        if not content or looks_like_message(content[:64]):
            return False  # of what was sealed the digest is of its content
        return digest(content) not in answered[_name(key)]

    keys = [entry.key for entry in store.keys(results(issuer)) if _name(entry.key) in answered]
    for key, changed in zip(keys, concurrently(is_another, keys), strict=True):
        if changed:
            yield Finding(key, CHANGED)


def _name(key: str) -> str:
    """Return the name of a result file as events have it."""
    return mask_key(key.rpartition("/")[2])
