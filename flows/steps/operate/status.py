"""How every run of an issuer stands, from its small documents alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from flows.core.names import RunId, RunKeys
from flows.core.ports import Store
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.edges import read
from flows.steps.operate.purged import read_purged
from flows.steps.runs import run_ids

READERS = 16


class Standing(NamedTuple):
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


def standings(store: Store, issuer: str) -> Iterator[Standing]:
    """Yield how every run stands, newest first."""
    newest = run_ids(store, issuer)[::-1]
    with ThreadPoolExecutor(READERS) as readers:
        yield from readers.map(lambda run: standing(store, run), newest)


def standing(store: Store, run: RunId) -> Standing:
    """Return how one run stands."""
    keys = RunKeys(run)
    try:
        summary = json.loads(read(store, keys.report("summary.json")))
        return Standing(str(run), summary["verdict"], **summary["rows"])
    except ObjectMissingError:
        pass
    try:
        end = json.loads(read(store, keys.manifest))
    except ObjectMissingError:
        return Standing(str(run), "not committed")
    if "abandoned" in end:
        return Standing(str(run), "abandoned")
    gone = read_purged(store, keys, "ledger")
    if gone is not None:
        return Standing(str(run), f"{gone.verdict} (purged)", **gone.rows)
    counts = end["counts"]
    fates = {name: counts[name] for name in ("read", "rejected", "duplicate", "suppressed")}
    return Standing(str(run), "committed, to be uploaded", awaiting=counts["submitted"], **fates)
