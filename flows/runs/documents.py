"""The runs of an issuer as the store holds them: plans, manifests, ledgers, reconciled rows,
summaries, purges.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import date
from typing import Any, NamedTuple, TypeVar

import polars as pl
from pydantic import BaseModel

from flows.runs.errors import AbandonedError, LedgerPurgedError, UnknownRunError
from flows.runs.events import REPLACED
from flows.runs.frames import from_parquet
from flows.runs.identity import digest
from flows.runs.keys import RunId, RunKeys, dismissed, keys_of, purged, runs
from flows.runs.run_status import Refusal, RunStatus
from flows.runs.store import ConflictError, ObjectMissingError, Store, read, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.runs.versions import read_document, read_events, read_facts
from schemas.manifest import LedgerPart, Manifest, Plan, Profile
from schemas.records import Abandoned, Part, Purged

T = TypeVar("T", bound=BaseModel)
_REFUSED = re.compile(r"-refused-[0-9a-f]{8}\.json$")
HABIT = 14  # runs that show what is usual


def run_ids(store: Store, issuer: str) -> list[RunId]:
    """Return the ids of an issuer's runs, by business date."""
    names = (
        folder.key.rstrip("/").rpartition("/")[2]
        for folder in store.keys(runs(issuer), shallow=True)
    )
    found = [run for name in names if (run := RunId.parse(name)) is not None]
    return sorted(found, key=lambda run: (run.day, run.sha8, run.again))


def read_plan(store: Store, keys: RunKeys) -> Plan | None:
    """Return a run's plan, None where it has none."""
    return read_document(store, keys.plan, Plan)


def planned(store: Store, run: str) -> Plan:
    """Return the plan of a run; UnknownRunError where it has none."""
    plan = read_plan(store, keys_of(run))
    if plan is None:
        raise UnknownRunError(run=run)
    return plan


def plans(store: Store, issuer: str) -> Iterator[Plan]:
    """Yield the plans of an issuer's runs, by business date."""
    found = concurrently(lambda run: read_plan(store, RunKeys(run)), run_ids(store, issuer))
    return (plan for plan in found if plan is not None)


def read_end(store: Store, keys: RunKeys) -> Manifest | Abandoned | None:
    """Return what ended a run."""
    return StoredRun(store, keys).end


def read_manifest(store: Store, keys: RunKeys) -> Manifest | None:
    """Return a run's manifest, None before its commit and where it was abandoned."""
    end = read_end(store, keys)
    return end if isinstance(end, Manifest) else None


def finished(store: Store, keys: RunKeys) -> Manifest | None:
    """Return a run's manifest, None where it is not committed yet; AbandonedError where it never
    will be.
    """
    end = read_end(store, keys)
    if isinstance(end, Abandoned):
        raise AbandonedError(run=end.run, actor=end.by, reason=end.reason)
    return end


def committed(store: Store, run: str) -> Manifest:
    """Return the manifest of a committed run; UnknownRunError, AbandonedError."""
    manifest = finished(store, keys_of(run))
    if manifest is None:
        raise UnknownRunError(run=run)
    return manifest


def has_manifest(store: Store, keys: RunKeys) -> bool:
    """Return whether a run is ended, committed or abandoned: there is an object at its manifest's
    key.
    """
    return read_if_stored(store, keys.manifest, 0) is not None


def manifests(store: Store, issuer: str, apart: Collection[str] = ()) -> Iterator[Manifest]:
    """Yield the manifests of an issuer's committed runs, `apart` from some, by business date."""
    found = (
        read_manifest(store, RunKeys(run))
        for run in run_ids(store, issuer)
        if str(run) not in apart
    )
    return (manifest for manifest in found if manifest is not None)


def with_ledger(store: Store, issuer: str) -> Iterator[Manifest]:
    """Yield the manifests of an issuer's committed runs whose ledger is not purged, by business
    date.
    """
    return manifests(store, issuer, without_ledger(store, issuer))


def without_ledger(store: Store, issuer: str) -> frozenset[str]:
    """Return the ids of the runs whose ledger was purged, by one listing."""
    found = (
        entry.key.removeprefix(purged(issuer)).split("/") for entry in store.keys(purged(issuer))
    )
    return frozenset(names[0] for names in found if names[1:] == ["ledger.json"])


def read_purged(store: Store, keys: RunKeys, part: Part) -> Purged | None:
    """Return the record that a part of a run was purged, None where it was not."""
    return read_document(store, keys.purged(part), Purged)


def refuse_purged(store: Store, keys: RunKeys) -> None:
    """Raise LedgerPurgedError where the ledger of a run was purged."""
    if record := read_purged(store, keys, "ledger"):
        raise LedgerPurgedError(
            run=str(keys.run), date=f"{record.at:%Y-%m-%d}", setting=record.setting
        )


def read_summary(store: Store, keys: RunKeys) -> dict[str, Any] | None:
    """Return the facts of a run's report, None where it has none."""
    return read_facts(store, keys.report("summary.json"))


def refusal(store: Store, keys: RunKeys) -> Refusal | None:
    """Return what refused a run, None where nothing did."""
    noted = sorted(
        (entry for entry in store.keys(keys.events) if _REFUSED.search(entry.key)),
        key=lambda one: one.key,
    )
    if not noted:
        return None
    first, last = read_events(store, [noted[0], noted[-1]])
    sentence = last.get("sentence", last["why"])  # earlier versions did not keep it
    return Refusal(last["why"], sentence, last["at"], first["at"])


def refusals(store: Store, issuer: str, committed: Collection[Manifest]) -> dict[str, str]:
    """Return the runs that were refused and about which nobody has decided since, and when.

    Decided: committed under that name, abandoned, planned anew, or the extract dismissed.
    """
    done = {one.run for one in committed}
    names = {one.source.key for one in committed if one.selection is None}
    prefix = dismissed(issuer)
    records = Counter(
        entry.key.removeprefix(prefix).partition("/")[0] for entry in store.keys(prefix)
    )
    found: dict[str, str] = {}
    for keys in (RunKeys(run) for run in run_ids(store, issuer) if str(run) not in done):
        plan, why = read_plan(store, keys), refusal(store, keys)
        # an odd number of records means that it is dismissed
        if (
            plan is None
            or why is None
            or plan.source.key in names
            or records[plan.source.sha256] % 2
        ):
            continue
        if read_end(store, keys) is None and not is_replaced(store, keys):
            found[str(keys.run)] = why.at
    return found


def is_replaced(store: Store, keys: RunKeys) -> bool:
    """Return whether a run that was never committed was planned anew as a later run."""
    return any(f"-{REPLACED}-" in entry.key for entry in store.keys(keys.events))


class Night(NamedTuple):
    """What later extracts are compared with: the business date, row count and profile of a whole
    extract.
    """

    day: date
    read: int
    profile: Profile | None  # None in runs of earlier versions


def nights_before(store: Store, run: RunId) -> list[Night]:
    """Return the whole extracts among the 14 runs before this one."""
    earlier = [other for other in run_ids(store, run.issuer) if other.day < run.day][-HABIT:]
    found = (read_manifest(store, RunKeys(other)) for other in earlier)
    return [
        Night(one.as_of, one.counts.read, one.profile)
        for one in found
        if one and one.selection is None
    ]


def read_ledger(
    store: Store,
    keys: RunKeys,
    parts: Iterable[LedgerPart],
    columns: list[str] | None = None,
    only: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the parts of a run's ledger, each checked against its digest; a chunk never spans two
    parts.

    `only` filters the records. Raises LedgerPurgedError, or ConflictError where a part is not what was written.
    """
    for part in parts:
        key = keys.ledger + part.name
        try:
            data = read(store, key)
        except ObjectMissingError:
            refuse_purged(store, keys)
            raise
        if digest(data) != part.sha256:
            raise ConflictError(key=key)
        yield from_parquet(data, key, columns, only)


def run_statuses(store: Store, issuer: str) -> list[RunStatus]:
    """Return the status of every run of an issuer, newest first."""
    return concurrently(lambda run: run_status(store, run), run_ids(store, issuer)[::-1])


def run_status(store: Store, run: RunId) -> RunStatus:
    """Return the status of one run."""
    return StoredRun(store, RunKeys(run)).status


def read_rows(
    store: Store,
    keys: RunKeys,
    parts: Iterable[LedgerPart],
    columns: list[str] | None,
    only: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield these columns (None: all) of a run's reconciled rows, part by part; `only` filters the
    rows.
    """
    for part in parts:
        yield from_parquet(read(store, key := rows_key(keys, part)), key, columns, only)


def rows_key(keys: RunKeys, part: LedgerPart) -> str:
    """Return the key of the reconciled rows of one ledger part."""
    return keys.report(f"rows/{part.name}")
