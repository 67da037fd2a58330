"""The result files as they were dropped, and those of them that no ingest has read yet."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from flows.results.batches import ResultObject
from flows.results.decisions import chain_of, decisions
from flows.results.markers import MarkSpoiledError, read_markers, read_waiting
from flows.runs.keys import results
from flows.runs.store import Entry, Store

# how long the worklist looks for a file that no ingest has read; so few markers are read for it
LOOKED_FOR = timedelta(days=30)
SKEW = timedelta(days=1)  # by which the clock of whoever dropped a file may be ahead


def result_files(store: Store, issuer: str) -> list[ResultObject]:
    """Return all result files, each with what operators decided about it."""
    return as_decided(store, issuer, list(store.keys(results(issuer))))


def files_to_ingest(store: Store, issuer: str, now: datetime) -> list[Entry]:
    """Return the result files of the last LOOKED_FOR that no ingest has read yet, oldest first.

    None where the markers cannot be read: the next ingest says so.
    """
    begin = now - LOOKED_FOR
    listed = store.keys(results(issuer))
    recent = [entry for entry in listed if begin < entry.modified < now + SKEW]
    if not recent:
        return []
    with suppress(MarkSpoiledError):
        known = read_markers(store, issuer, begin - SKEW) | read_waiting(store, issuer).keys()
        files = as_decided(store, issuer, recent)
        unread = [file.entry for file in files if file.mark not in known]
        return sorted(unread, key=lambda entry: entry.modified)
    return []


def as_decided(store: Store, issuer: str, entries: Sequence[Entry]) -> list[ResultObject]:
    """Return result files, each with what operators have decided about it by now."""
    chains = [chain_of(issuer, entry.key) for entry in entries]
    decided = decisions(store, issuer, chains)
    files = zip(entries, chains, strict=True)
    return [ResultObject(entry, decided.get(chain, ())) for entry, chain in files]
