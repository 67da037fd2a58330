"""The result files as they were dropped, and those of them that no ingest has read yet."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from flows.results.batches import ResultObject
from flows.results.decisions import attributions, subject_of
from flows.results.markers import MarkSpoiledError, read_markers, read_waiting
from flows.runs.adapters import Adapters
from flows.runs.keys import results
from flows.runs.store import Entry

# how long the worklist looks for a file that no ingest has read; so few markers are read for it
LOOKED_FOR = timedelta(days=30)
SKEW = timedelta(days=1)  # by which the clock of whoever dropped a file may be ahead


def result_files(adapters: Adapters, issuer: str) -> list[ResultObject]:
    """Return all result files, each with what operators decided about it."""
    return as_decided(adapters, issuer, list(adapters.store.keys(results(issuer))))


def files_to_ingest(adapters: Adapters, issuer: str, now: datetime) -> list[Entry]:
    """Return the result files of the last LOOKED_FOR that no ingest has read yet, oldest first.

    None where the markers cannot be read: the next ingest says so.
    """
    store = adapters.store
    begin = now - LOOKED_FOR
    listed = store.keys(results(issuer))
    recent = [entry for entry in listed if begin < entry.modified < now + SKEW]
    if not recent:
        return []
    with suppress(MarkSpoiledError):
        known = read_markers(store, issuer, begin - SKEW) | read_waiting(store, issuer).keys()
        files = as_decided(adapters, issuer, recent)
        unread = [file.entry for file in files if file.mark not in known]
        return sorted(unread, key=lambda entry: entry.modified)
    return []


def as_decided(adapters: Adapters, issuer: str, entries: Sequence[Entry]) -> list[ResultObject]:
    """Return result files, each with what operators have decided about it by now."""
    decided = attributions(adapters, issuer)
    return [ResultObject(entry, decided.get(subject_of(entry.key), ())) for entry in entries]
