"""What is known of ingested result files: the markers of those that are done, and those that wait.

A file with rows that could not be placed waits: it is read again once something it depends on has
changed, and reported again only if that changed its outcome.

A marker is written after the reports it affects, so a process killed before that ingests the file
again, with the same outcome. A file that waits is stored with a digest of what its outcome depends
on (the runs registered last and whether each has its manifest, the key that opens results, what
links are judged by, time zone, version) and one of the outcome. So results may arrive before their
run's commit, and a link counts once its host is allowed or its form confirmed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from flows import __version__
from flows.errors import OperatorError
from flows.results.confirmed_forms import link_rules
from flows.results.masking import mask_key
from flows.runs.commits import recently_registered
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.identity import canonical, digest
from flows.runs.keys import ingested
from flows.runs.store import ConflictError, Entry, Store
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently

BATCH_PREFIX = "files-"  # of an object with the markers of many files
_EVER = datetime.min.replace(tzinfo=UTC)
WAITING = "waiting"  # the object with the files that wait


class MarkSpoiledError(OperatorError):
    """An object among the ingest markers is not one."""

    message = "{key} is not an ingest marker. Nothing was ingested."
    next_step = (
        "Move it away, then run {same_command} again: the files it named are ingested once more."
    )


def marker_key(entry: Entry, decisions: int) -> str:
    """Return the ingest marker of a result file with so many decisions of operators about it."""
    identity = f"{entry.key}|{entry.size}|{entry.version}"
    if decisions:
        identity += f"|{decisions}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def read_markers(store: Store, issuer: str, since: datetime = _EVER) -> frozenset[str]:
    """Return the ingest markers of all result files that are done, or of those done `since`.

    Raises MarkSpoiledError where they cannot be read.
    """
    prefix = ingested(issuer)
    keys = [entry.key for entry in store.keys(prefix) if entry.modified >= since]
    names = [key.removeprefix(prefix).removesuffix(".json") for key in keys]
    batches = [name for name in names if name.startswith(BATCH_PREFIX)]
    in_batches = concurrently(lambda name: _read(store, f"{prefix}{name}.json"), batches)
    return frozenset[str]().union(*in_batches)


def write_markers(store: Store, issuer: str, files: Mapping[str, Entry]) -> None:
    """Store the ingest markers of result files, with the key of each file."""
    if files:
        name = hashlib.sha256("".join(sorted(files)).encode()).hexdigest()[:32]
        keys = {marker: mask_key(entry.key) for marker, entry in files.items()}
        store.create(f"{ingested(issuer)}{BATCH_PREFIX}{name}.json", canonical(keys))


def _read(store: Store, key: str) -> dict[str, Any]:
    with suppress(ConflictError):
        return read_facts(store, key) or {}
    raise MarkSpoiledError(key=key)


class Waiting(BaseModel):
    """A result file that waits: for what, with which outcome, in which runs, what was reported."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: str
    basis: str  # what its outcome depends on; empty: it is read each time
    outcome: str
    runs: tuple[str, ...]
    told: str  # empty where the report of its run says all


def read_waiting(store: Store, issuer: str) -> dict[str, Waiting]:
    """Return the result files that wait, by ingest marker.

    Raises MarkSpoiledError where they cannot be read.
    """
    key = _waiting_key(issuer)
    facts = _read(store, key)
    with suppress(ValidationError):  # its text quotes the content
        return {marker: Waiting.model_validate(fact) for marker, fact in facts.items()}
    raise MarkSpoiledError(key=key)


class StrayFile(NamedTuple):
    """A result file that belongs to no run: what is wrong with it, and what to do about it."""

    entry: Entry
    trouble: str


def stray_files(store: Store, issuer: str) -> Iterator[StrayFile]:
    """Yield the result files with breaks that belong to no run, while they are there."""
    for waiting in read_waiting(store, issuer).values():
        if not waiting.runs and waiting.told:
            prefix = waiting.file.partition("[")[0]  # a name may be kept as a mark
            entries = store.keys(prefix)
            for entry in entries:
                if mask_key(entry.key) == waiting.file:
                    yield StrayFile(entry, waiting.told)


def write_waiting(store: Store, issuer: str, files: Mapping[str, Waiting]) -> None:
    """Store the result files that wait.

    It replaces what another process wrote meanwhile, whose files are then just reported once more.
    """
    facts = {marker: file.model_dump(mode="json") for marker, file in sorted(files.items())}
    store.replace(_waiting_key(issuer), [canonical(facts)])


def _waiting_key(issuer: str) -> str:
    return f"{ingested(issuer)}{WAITING}.json"


class Basis(NamedTuple):
    """Digests of what outcomes depend on: where rows belong and what links are judged by (`all`).

    `links` is of the latter alone: nothing else can change a file whose rows were all attributed.
    """

    all: str
    links: str


def basis_of(context: IssuerContext) -> Basis:
    """Return what the outcomes of result files depend on now."""
    store = context.adapters.store
    issuer = context.issuer
    registered = [
        (manifest.run, StoredRun.by_id(context.adapters, manifest.run).is_ended)
        for manifest in recently_registered(store, issuer.issuer)
    ]
    rules = link_rules(context)
    links = {"hosts": list(rules.hosts), "forms": list(map(str, rules.forms))}
    known = [registered, context.opener_key(), issuer.time_zone, __version__]
    return Basis(digest(canonical({"known": known, **links})), digest(canonical(links)))
