"""What is known of ingested result files: the markers of those that are done, and those that wait for something.

A file with rows that could not be placed waits: it is read again once something it depends on has changed, and
reported again only if that changed its outcome.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.chains import recent_commits
from flows.runs.context import IssuerContext
from flows.runs.documents import has_manifest, keys_of
from flows.runs.identity import canonical, digest
from flows.runs.keys import ingested
from flows.runs.store import ConflictError, Entry, ObjectMissingError, Store, read
from flows.runs.versions import read_facts

BATCH_PREFIX = "files-"  # of an object with the markers of many files; version 0.1 wrote one object per marker
WAITING = "waiting"  # the object with the files that wait
READERS = 16


class MarkSpoiledError(OperatorError):
    """An object among the ingest markers is not one."""

    message = "{key} is not an ingest marker. Nothing was ingested."
    next_step = "Move it away, then run the same command again: the files it named are ingested once more."


def marker_key(entry: Entry, decisions: int) -> str:
    """Return the ingest marker of a result file with so many decisions of operators about it."""
    identity = f"{entry.key}|{entry.size}|{entry.version}" + (f"|{decisions}" if decisions else "")
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def read_markers(store: Store, issuer: str) -> frozenset[str]:
    """Return the ingest markers of all result files that are done; MarkSpoiledError where they cannot be read."""
    prefix = ingested(issuer)
    names = [entry.key.removeprefix(prefix).removesuffix(".json") for entry in store.keys(prefix)]
    batches = {name for name in names if name.startswith(BATCH_PREFIX)}
    with ThreadPoolExecutor(READERS) as readers:
        together = readers.map(lambda name: _read(store, f"{prefix}{name}.json"), batches)
        return frozenset(names).difference(batches, {WAITING}).union(*together)


def write_markers(store: Store, issuer: str, files: Mapping[str, Entry]) -> None:
    """Store the ingest markers of result files, with the key of each file."""
    if files:
        name = hashlib.sha256("".join(sorted(files)).encode()).hexdigest()[:32]
        reported = {marker: redact(entry.key) for marker, entry in files.items()}
        store.create(f"{ingested(issuer)}{BATCH_PREFIX}{name}.json", canonical(reported))


def _read(store: Store, key: str) -> frozenset[str]:
    with suppress(ConflictError):
        return frozenset(read_facts(store, key) or ())
    raise MarkSpoiledError(key=key)


class Waiting(BaseModel):
    """A result file that waits: for what (`basis`), with which outcome, in which runs, and what was reported of it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: str
    basis: str  # empty: it is read each time
    outcome: str
    runs: tuple[str, ...]
    told: str  # empty where the report of its run says all


_TABLE = TypeAdapter(dict[str, Waiting])


def read_waiting(store: Store, issuer: str) -> dict[str, Waiting]:
    """Return the result files that wait, by ingest marker; MarkSpoiledError where they cannot be read."""
    key = f"{ingested(issuer)}{WAITING}.json"
    try:
        return _TABLE.validate_json(read(store, key))
    except ObjectMissingError:
        return {}
    except ValidationError:  # raised below without a chain
        pass
    raise MarkSpoiledError(key=key)


def write_waiting(store: Store, issuer: str, files: Mapping[str, Waiting]) -> None:
    """Store the result files that wait; what another process wrote meanwhile is only reported again."""
    table = canonical({marker: one.model_dump(mode="json") for marker, one in sorted(files.items())})
    store.replace(f"{ingested(issuer)}{WAITING}.json", [table])


class Basis(NamedTuple):
    """Digests of what an outcome depends on besides the file: where its rows belong, and which links are allowed."""

    places: str
    hosts: str


def basis_of(context: IssuerContext) -> Basis:
    """Return what outcomes depend on now: commits, the key that opens results, settings, the version."""
    store, issuer = context.adapters.store, context.issuer
    commits = [(run.run, has_manifest(store, keys_of(run.run))) for run in recent_commits(store, issuer.issuer)]
    hosts = list(issuer.portal.allowed_hosts)
    known = [commits, context.opener_key(), issuer.time_zone, version("cardlink")]
    return Basis(digest(canonical({"known": known, "hosts": hosts})), digest(canonical({"hosts": hosts})))
