"""The result files as they were dropped, and those of them that no ingest has read yet."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from flows.results.batches import ResultObject
from flows.results.decisions import attributions
from flows.results.known_files import known_files
from flows.runs.adapters import Adapters
from flows.runs.answers import file_id
from flows.runs.dropped_files import dropped_files
from flows.runs.keys import results
from flows.runs.store import Entry

LOOKED_FOR = timedelta(days=30)  # how long the worklist looks for a file that no ingest has read
SKEW = timedelta(days=1)  # by which the clock of whoever dropped a file may be ahead


def result_files(adapters: Adapters, issuer: str) -> list[ResultObject]:
    """Return all result files, each with what operators decided about it and what is known."""
    dropped = dropped_files(adapters.store, results(issuer), shown_as_is=False)
    return as_decided(adapters, issuer, dropped.files)


def files_to_ingest(files: Sequence[ResultObject], now: datetime) -> list[Entry]:
    """Return the result files of the last LOOKED_FOR that no ingest has read yet, oldest first."""
    begin = now - LOOKED_FOR
    unread = [file.entry for file in files if file.known is None]
    recent = [entry for entry in unread if begin < entry.modified < now + SKEW]
    return sorted(recent, key=lambda entry: entry.modified)


def stray_files(files: Sequence[ResultObject]) -> dict[Entry, str]:
    """Return the result files with breaks that belong to no run, each with what was told of it."""
    strays = [(file.entry, file.known) for file in files]
    return {entry: known.told for entry, known in strays if known is not None and known.is_stray}


def as_decided(adapters: Adapters, issuer: str, entries: Sequence[Entry]) -> list[ResultObject]:
    """Return result files, each with what operators have decided about it and what is known by
    now.
    """
    if not entries:
        return []
    decided = attributions(adapters, issuer)
    known = known_files(adapters, issuer)
    files = list[ResultObject]()
    for entry in entries:
        file = file_id(entry.key)
        of_file = decided.get(file, ())
        before = known.get(file)
        is_same = before is not None and before.is_of(entry, len(of_file))
        files.append(ResultObject(entry, of_file, before if is_same else None))
    return files
