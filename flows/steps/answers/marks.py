"""Marks: which result files are taken up. An ingest leaves one object that names all it took up, after its reports.

A mark is of a file as it was listed and of what was decided about it by hand: a file that changed, or about which
something new was decided, is taken up again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from flows.core.errors import OperatorError
from flows.core.names import ingested
from flows.core.ports import Entry, Store
from flows.core.redaction import redact
from flows.core.run.planning import canonical
from flows.steps.edges import read

TOGETHER = "files-"  # begins the name of a mark of many files; older versions left one object each, named by its mark
READERS = 16


class MarkSpoiledError(OperatorError):
    """An object among the ingest markers was not written by an ingest."""

    message = "{key} is not an ingest marker. Nothing was ingested."
    next_step = (
        "Move it away, then run the same command again: the files it named are ingested again, with the same outcome."
    )


def mark_of(entry: Entry, decisions: int) -> str:
    """Return the mark of a result file about which so much was decided by hand."""
    identity = f"{entry.key}|{entry.size}|{entry.version}" + (f"|{decisions}" if decisions else "")
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def marked(store: Store, issuer: str) -> frozenset[str]:
    """Return the marks of all result files that are taken up; MarkSpoiledError where one cannot be read."""
    prefix = ingested(issuer)
    names = [entry.key.removeprefix(prefix).removesuffix(".json") for entry in store.keys(prefix)]
    with ThreadPoolExecutor(READERS) as readers:
        together = readers.map(lambda name: _read(store, f"{prefix}{name}.json"), filter(_is_of_many, names))
        return frozenset(name for name in names if not _is_of_many(name)).union(*together)


def set_marks(store: Store, issuer: str, files: Mapping[str, Entry]) -> None:
    """Mark result files, each under its mark, as taken up."""
    if files:
        name = hashlib.sha256("".join(sorted(files)).encode()).hexdigest()[:32]
        told = {mark: redact(entry.key) for mark, entry in files.items()}
        store.create(f"{ingested(issuer)}{TOGETHER}{name}.json", canonical(told))


def _is_of_many(name: str) -> bool:
    return name.startswith(TOGETHER)


def _read(store: Store, key: str) -> frozenset[str]:
    try:
        told = json.loads(read(store, key))
    except ValueError:  # no JSON, and raised below without a chain
        told = None
    if not isinstance(told, dict):
        raise MarkSpoiledError(key=key)
    return frozenset(told)
