"""Count the funnel of a run, or over an issuer's runs, from ledger, rows, placements and transaction reports.

Cardholders are counted in shares of about two million rows, each share in a pass of its own: memory stays flat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any

import polars as pl

from flows.core.names import RunKeys, placements
from flows.core.ports import Store
from flows.core.report.funnel import ENDS, add, age_of, cells, facts, standings
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.answers.linked import linked_rows, single_links, states_with
from flows.steps.beyond.transactions import told
from flows.steps.edges import read
from flows.steps.rows import read_rows
from flows.steps.runs import keys_of, read_ledger
from schemas.manifest import LedgerPart, Manifest
from schemas.placements import dtypes

SHARE = 2_000_000  # rows counted at a time


def placements_key(keys: RunKeys, part: LedgerPart) -> str:
    """Return where it lies what became of the linked rows of one ledger part."""
    return keys.placements + part.name


def read_placements(store: Store, keys: RunKeys, part: LedgerPart, columns: list[str] | None = None) -> pl.DataFrame:
    """Return the placements of one ledger part (`schemas.placements.Placements`); none before the first look."""
    try:
        return pl.read_parquet(BytesIO(read(store, placements_key(keys, part))), columns=columns)
    except ObjectMissingError:
        return pl.DataFrame(schema=dtypes()).select(columns or list(dtypes()))


def read_funnel(store: Store, issuer: str) -> dict[str, Any] | None:
    """Return the funnel over an issuer's runs as the last look at placements left it; None before the first."""
    try:
        found: dict[str, Any] = json.loads(read(store, f"{placements(issuer)}summary.json"))["funnel"]
    except ObjectMissingError:
        return None
    return found


def run_funnel(store: Store, manifest: Manifest, today: date) -> dict[str, Any] | None:
    """Return the funnel of a run whose rows are reconciled; None where neither service nor transaction report told."""
    keys = keys_of(manifest.run)
    asked = any(entry.key.endswith(".parquet") for entry in store.keys(keys.placements, shallow=True))
    reports = any(True for _ in store.keys(f"{placements(keys.run.issuer)}reports/", shallow=True))
    if not (asked or reports):
        return None
    return funnel_of(store, keys.run.issuer, [manifest], today)


def funnel_of(store: Store, issuer: str, runs: Sequence[Manifest], today: date) -> dict[str, Any]:
    """Return the funnel over reported runs of an issuer (`core.report.funnel.facts`), each cardholder counted once.

    `seen` is when the service was last asked (ISO, None: never), `unasked` how many linked rows it was not asked of.
    """
    shares = 1 + sum(run.counts.read for run in runs) // SHARE
    parts = [cells(_standings(store, issuer, runs, today, share, shares)) for share in range(shares)]
    return {**facts(add(parts)), **_asked(store, runs)}


def _standings(
    store: Store, issuer: str, runs: Sequence[Manifest], today: date, share: int, shares: int
) -> Iterator[pl.DataFrame]:
    mine = pl.col("cuid").hash().fill_null(0) % shares == share
    by_cuid = told(store, issuer, mine)
    for run in runs:
        keys, age = keys_of(run.run), pl.lit(age_of(run.as_of, today), pl.UInt8).alias("age")
        records = read_ledger(store, keys, run.ledger, ["row", "cuid", "fate"])
        alone = single_links(store, keys)
        states = (states_with(frame, alone) for frame in read_rows(store, keys, run.ledger, ["row", "state"]))
        for part, sent, state in zip(run.ledger, records, states, strict=True):
            named = sent.filter(mine).with_columns(pl.lit(run.run).alias("run"))
            by_row = read_placements(store, keys, part, ["row", *ENDS])
            yield standings(named, state, by_row, by_cuid).with_columns(age)


def _asked(store: Store, runs: Sequence[Manifest]) -> dict[str, Any]:
    last: datetime | None = None
    asked = linked = 0
    for run in runs:
        keys, alone = keys_of(run.run), single_links(store, keys_of(run.run))
        for part in run.ledger:
            seen = read_placements(store, keys, part, ["seen"])["seen"].drop_nulls()
            linked += linked_rows(store, keys, part, alone).height
            asked += len(seen)
            newest = seen.max()
            if isinstance(newest, datetime):
                last = max(last, newest) if last else newest
    return {"seen": last.isoformat(timespec="seconds") if last else None, "unasked": linked - asked}
