"""Everything the runs of an issuer know of one cardholder: the cuids of every ledger first, the rest where one fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.core.errors import OperatorError
from flows.core.names import RunId, RunKeys
from flows.core.ports import Store
from flows.core.redaction import passes_luhn, redact
from flows.core.report.trace import ROWS, Attempt, attempt_of, single_attempt
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.beyond.singles import prompted_singles, singles
from flows.steps.edges import Edges, read
from flows.steps.operate.outbox import outbox
from flows.steps.operate.purged import without_ledger
from flows.steps.rows import rows_key
from flows.steps.runs import keys_of, read_ledger, read_manifest, run_ids
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest
from schemas.states import AWAITING

READERS = 16
RECORD = ["row", "cuid", "last_4", "expiration", "fate", "chunk", "position", "origin", "reasons"]


class CardGivenError(OperatorError):
    """A card number where a cuid was asked for."""

    message = "That looks like a card number; cardlink looks nobody up by card number."
    next_step = "Give the cardholder's cuid. Remove the number from the shell's history."


class Trace(NamedTuple):
    """What an issuer's runs say of a cardholder, oldest first, and the runs whose ledgers are purged."""

    attempts: tuple[Attempt, ...]
    purged: tuple[str, ...]


def refuse_card(cuid: str) -> None:
    """Raise CardGivenError, which says nothing of it, where a text looks like a card number."""
    digits = "".join(filter(str.isdecimal, cuid))
    bare = all(one.isdecimal() or one in " .-_" for one in cuid)
    if redact(cuid) != cuid or (bare and 13 <= len(digits) <= 19 and passes_luhn(digits)):
        raise CardGivenError


def trace(edges: Edges, issuer: str, cuid: str, *, urls: bool = False) -> Trace:
    """Return every attempt of a cardholder in an issuer's committed runs; links only where `urls` asks for them.

    Raises CardGivenError.
    """
    refuse_card(cuid)
    store = edges.store
    ids, gone = run_ids(store, issuer), without_ledger(store, issuer)
    with ThreadPoolExecutor(READERS) as readers:
        there = [run for run in ids if str(run) not in gone]
        found = [one for told in readers.map(lambda run: _of_run(edges, run, cuid), there) for one in told]
    typed = [one for one in prompted_singles(store, issuer) if one.asked.cuid == cuid]
    found += [single_attempt(Attempt(one.asked.at, issuer, ""), one.asked, one.answered) for one in typed]
    shown = found if urls else [one._replace(url=None) for one in found]
    return Trace(tuple(sorted(shown, key=lambda one: (one.at, one.row))), tuple(sorted(gone)))


def _of_run(edges: Edges, run: RunId, cuid: str) -> list[Attempt]:
    """Return the attempts in one run; of a ledger part without the cuid nothing but that column is decoded."""
    store, keys = edges.store, RunKeys(run)
    manifest = read_manifest(store, keys)
    if manifest is None:
        return []
    told: list[Attempt] = []
    for part in manifest.ledger:
        (records,) = read_ledger(store, keys, [part], RECORD, pl.col("cuid") == cuid)
        if records.height:
            told += _of_part(edges, manifest, part, records.to_dicts())
    return told


def _of_part(edges: Edges, manifest: Manifest, part: LedgerPart, records: Sequence[Mapping[str, Any]]) -> list[Attempt]:
    """Return the attempts these records of a ledger part are, and the links asked for by themselves from their rows."""
    store, keys = edges.store, keys_of(manifest.run)
    with store.open(keys.manifest) as source:
        committed = source.entry.modified
    repeats = manifest.selection.of if manifest.selection else ""
    shared = Attempt(committed, keys.run.issuer, manifest.run, origin=repeats)
    sent = {one["row"]: one["chunk"] for one in records if one["fate"] == ledger.SUBMITTED}
    came = _came(store, keys, part, list(sent)) if sent else {}
    waiting = [row for row in sent if came.get(row, {}).get("state", AWAITING) == AWAITING]
    chunks = {item.chunk.number: item.state for item in (outbox(edges, manifest.run) if waiting else ())}
    attempts = [
        attempt_of(shared, one, came.get(one["row"], {}), chunks.get(one["chunk"], "") if one["row"] in waiting else "")
        for one in records
    ]
    alone = [one for one in singles(store, keys) if any(one.asked.row == record["row"] for record in records)]
    return attempts + [single_attempt(shared._replace(origin=""), one.asked, one.answered) for one in alone]


def _came(store: Store, keys: RunKeys, part: LedgerPart, wanted: list[int]) -> dict[int, dict[str, Any]]:
    """Return what came of some rows, each with the columns of ROWS; nothing where there is no report yet."""
    try:
        data = read(store, rows_key(keys, part))
    except ObjectMissingError:
        return {}
    rows = pl.scan_parquet(BytesIO(data)).filter(pl.col("row").is_in(wanted)).rename({"reasons": "told"})
    return {one["row"]: one for one in rows.select(*ROWS).collect().iter_rows(named=True)}
