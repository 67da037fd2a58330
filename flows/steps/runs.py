"""The runs of an issuer as the store holds them: their plans, manifests and ledgers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import polars as pl
from pydantic import ValidationError

from flows.core.errors import OperatorError
from flows.core.names import RunId, RunKeys, runs
from flows.core.ports import Store
from flows.core.run.planning import digest
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.edges import ConflictError, read
from flows.steps.operate.purged import refuse_purged, without_ledger
from flows.steps.rows import from_parquet
from schemas.manifest import Document, LedgerPart, Manifest, Plan
from schemas.mended import Abandoned

T = TypeVar("T", bound=Document)
_MARK = b'{"abandoned":true'  # how the document begins that ends a run without a commit
HABIT = 14  # runs whose median says how large a night usually is


class UnknownRunError(OperatorError):
    """A run id that no run has."""

    message = "No run {run}."
    next_step = "`cardlink status` lists the runs."


class NoReasonError(OperatorError):
    """A decision of an operator was given without its reason."""

    message = "No reason given."
    next_step = "Give it with --reason; it is kept with the decision, your name and the time."


class NoSuchRowError(OperatorError):
    """A run or result file does not have these rows."""

    message = "{place} has no row {rows}."
    next_step = "Rows are counted from 1 without the header, as in errors.csv and rejects.csv of the run."


class AbandonedError(OperatorError):
    """An operator ended the run before its commit, for good."""

    message = "Run {run} was abandoned by {actor}: {reason}."
    next_step = "It will not be resumed; to make a new run of its extract: --new-run REASON."


def keys_of(run: str) -> RunKeys:
    """Return the keys of the run of that id; UnknownRunError where the text is no run id."""
    parsed = RunId.parse(run)
    if parsed is None:
        raise UnknownRunError(run=run)
    return RunKeys(parsed)


def run_ids(store: Store, issuer: str) -> list[RunId]:
    """Return the ids of all runs of an issuer, by business date."""
    names = (folder.key.rstrip("/").rpartition("/")[2] for folder in store.keys(runs(issuer), shallow=True))
    found = [run for name in names if (run := RunId.parse(name)) is not None]
    return sorted(found, key=lambda run: (run.day, run.sha8, run.again))


def plans(store: Store, issuer: str) -> Iterator[Plan]:
    """Yield the plan of every run of an issuer, by business date."""
    for run in run_ids(store, issuer):
        plan = read_plan(store, RunKeys(run))
        if plan is not None:
            yield plan


def read_plan(store: Store, keys: RunKeys) -> Plan | None:
    """Return a run's plan, None where it has none."""
    return _document(Plan, store, keys.plan)


def read_manifest(store: Store, keys: RunKeys) -> Manifest | None:
    """Return a run's manifest, None before its commit and where the run was abandoned."""
    found = read_end(store, keys)
    return found if isinstance(found, Manifest) else None


def read_end(store: Store, keys: RunKeys) -> Manifest | Abandoned | None:
    """Return what ended a run: its manifest, or the record that it was abandoned; None while it is not ended."""
    try:
        content = read(store, keys.manifest)
    except ObjectMissingError:
        return None
    if content.startswith(_MARK):
        return _parse(Abandoned, content, keys.manifest)
    return _parse(Manifest, content, keys.manifest)


def finished(store: Store, keys: RunKeys) -> Manifest | None:
    """Return the manifest of a run that needs no work, None where it is still to be done; AbandonedError."""
    end = read_end(store, keys)
    if isinstance(end, Abandoned):
        raise AbandonedError(run=end.run, actor=end.by, reason=end.reason)
    return end


def has_manifest(store: Store, keys: RunKeys) -> bool:
    """Tell whether a run is ended, committed or abandoned: its manifest's key is taken."""
    try:
        with store.open(keys.manifest):
            return True
    except ObjectMissingError:
        return False


def _document(kind: type[T], store: Store, key: str) -> T | None:
    try:
        content = read(store, key)
    except ObjectMissingError:
        return None
    return _parse(kind, content, key)


def _parse(kind: type[T], content: bytes, key: str) -> T:
    try:
        return kind.model_validate_json(content)
    except ValidationError:  # its text shows what it found; ours is raised below without a chain
        pass
    raise ConflictError(key=key)


def read_summary(store: Store, keys: RunKeys) -> dict[str, Any] | None:
    """Return the facts of a run's report, None where it has none."""
    try:
        found: dict[str, Any] = json.loads(read(store, keys.report("summary.json")))
    except ObjectMissingError:
        return None
    return found


def manifests(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the manifest of every committed run of an issuer, by business date."""
    for run in run_ids(store, issuer):
        manifest = read_manifest(store, RunKeys(run))
        if manifest is not None:
            yield manifest


def with_ledger(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the manifest of every committed run of an issuer whose ledger is not purged, by business date."""
    gone = without_ledger(store, issuer)
    for run in run_ids(store, issuer):
        manifest = read_manifest(store, RunKeys(run)) if str(run) not in gone else None
        if manifest is not None:
            yield manifest


def rows_before(store: Store, run: RunId) -> list[int]:
    """Return the row counts of the committed runs of whole extracts before this one, of the last 14 runs."""
    earlier = [other for other in run_ids(store, run.issuer) if other.day < run.day][-HABIT:]
    found = (read_manifest(store, RunKeys(other)) for other in earlier)
    return [one.counts.read for one in found if one is not None and one.selection is None]


def read_ledger(
    store: Store,
    keys: RunKeys,
    parts: Iterable[LedgerPart],
    columns: list[str] | None = None,
    only: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the parts of a run's ledger, each checked against its digest; a chunk never spans two parts.

    Records of which `only` does not hold are not decoded. Raises LedgerPurgedError where it is gone,
    ConflictError where it is not what was written.
    """
    for part in parts:
        data = _part(store, keys, part)
        if digest(data) != part.sha256:
            raise ConflictError(key=keys.ledger + part.name)
        yield from_parquet(data, columns, only)


def _part(store: Store, keys: RunKeys, part: LedgerPart) -> bytes:
    try:
        return read(store, keys.ledger + part.name)
    except ObjectMissingError as error:
        missing = error
    refuse_purged(store, keys)
    raise missing
