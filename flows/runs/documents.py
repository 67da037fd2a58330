"""The runs of an issuer as the store holds them: plans, manifests, ledgers, summaries, and what was purged of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import polars as pl
from pydantic import ValidationError

from flows.errors import OperatorError
from flows.runs.frames import from_parquet
from flows.runs.identity import digest
from flows.runs.keys import RunId, RunKeys, purged, runs
from flows.runs.store import ConflictError, ObjectMissingError, Store, read
from schemas.manifest import Document, LedgerPart, Manifest, Plan
from schemas.records import Abandoned, Part, Purged

T = TypeVar("T", bound=Document)
_MARKER = b'{"abandoned":true'  # how the document begins that ends a run without a commit
HABIT = 14  # runs whose median says how large a night usually is

READERS = 16


class LedgerPurgedError(OperatorError):
    """The ledger and the report of a run are gone, as its issuer's retention asks for."""

    message = "The ledger and the report of {run} were purged on {date} ({setting})."
    next_step = (
        "`cardlink history {run}` shows who did it; its manifest shows what was sent, its extract still has the rows."
    )


def read_purged(store: Store, keys: RunKeys, part: Part) -> Purged | None:
    """Return the record of a part of a run that is gone, None where it is not; ConflictError for what is no record."""
    try:
        return Purged.model_validate_json(read(store, keys.purged(part)))
    except ObjectMissingError:
        return None
    except ValidationError:
        pass
    raise ConflictError(key=keys.purged(part))


def without_ledger(store: Store, issuer: str) -> frozenset[str]:
    """Return the ids of the runs whose ledger is gone, by one listing."""
    found = (entry.key.removeprefix(purged(issuer)).split("/") for entry in store.keys(purged(issuer)))
    return frozenset(names[0] for names in found if names[1:] == ["ledger.json"])


def refuse_purged(store: Store, keys: RunKeys) -> None:
    """Raise LedgerPurgedError where the ledger of a run is gone."""
    record = read_purged(store, keys, "ledger")
    if record is not None:
        raise LedgerPurgedError(run=str(keys.run), date=f"{record.at:%Y-%m-%d}", setting=record.setting)


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
    if content.startswith(_MARKER):
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


def run_of(text: str) -> RunId:
    """Read a run id; UnknownRunError where the text is none."""
    return keys_of(text).run


class RunStatus(NamedTuple):
    """One run: its state in words and its six figures (zero before a report)."""

    run: str
    state: str
    read: int = 0
    linked: int = 0
    error: int = 0
    awaiting: int = 0
    rejected: int = 0
    duplicate: int = 0
    suppressed: int = 0


def run_statuses(store: Store, issuer: str) -> Iterator[RunStatus]:
    """Yield how every run stands, newest first."""
    newest = run_ids(store, issuer)[::-1]
    with ThreadPoolExecutor(READERS) as readers:
        yield from readers.map(lambda run: run_status(store, run), newest)


def run_status(store: Store, run: RunId) -> RunStatus:
    """Return how one run stands."""
    keys = RunKeys(run)
    try:
        summary = json.loads(read(store, keys.report("summary.json")))
        return RunStatus(str(run), summary["verdict"], **summary["rows"])
    except ObjectMissingError:
        pass
    try:
        end = json.loads(read(store, keys.manifest))
    except ObjectMissingError:
        return RunStatus(str(run), "not committed")
    if "abandoned" in end:
        return RunStatus(str(run), "abandoned")
    gone = read_purged(store, keys, "ledger")
    if gone is not None:
        return RunStatus(str(run), f"{gone.verdict} (purged)", **gone.rows)
    counts = end["counts"]
    fates = {name: counts[name] for name in ("read", "rejected", "duplicate", "suppressed")}
    return RunStatus(str(run), "committed, to be uploaded", awaiting=counts["submitted"], **fates)
