"""rejects.csv: the rows of a run that were not sent and why, from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.report import tables
from flows.steps.rows import csv_pieces
from flows.steps.runs import read_ledger
from schemas.manifest import LedgerPart


def write_rejects(store: Store, keys: RunKeys, parts: Iterable[LedgerPart]) -> None:
    """Write rejects.csv from the ledger, part by part."""
    columns = ["row", "cuid", "last_4", "fate", "reasons"]
    frames = (tables.rejects(part) for part in read_ledger(store, keys, parts, columns, tables.UNSENT))
    store.replace(keys.report("rejects.csv"), csv_pieces(frames, tables.REFUSAL))
