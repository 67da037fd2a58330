"""The funnel of runs: of their ledger, reconciled rows, placements and transaction reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any

import polars as pl

from flows.partner_api.funnel import add, age_of, cells, facts
from flows.partner_api.row_stages import funnel_stages
from flows.partner_api.stored_placements import linked_rows, service_stages
from flows.runs.keys import placements
from flows.runs.placements import read_placements
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.transactions import reported

SHARE = 2_000_000  # rows counted at a time


def run_funnel(run: StoredRun, today: date) -> dict[str, Any] | None:
    """Return the funnel of a run whose rows are reconciled.

    None where neither the service nor a transaction report has reported anything.
    """
    store = run.store
    checks = store.keys(run.keys.placements, shallow=True)
    has_placements = any(entry.key.endswith(".parquet") for entry in checks)
    reports = store.keys(f"{placements(run.issuer)}reports/", shallow=True)
    has_reports = any(True for _ in reports)
    if not (has_placements or has_reports):
        return None
    return funnel_of(store, run.issuer, [run], today)


def funnel_of(store: Store, issuer: str, runs: Sequence[StoredRun], today: date) -> dict[str, Any]:
    """Return the funnel over runs of an issuer that have a report, each cardholder counted once.

    Beside the facts of `flows.partner_api.funnel`, `seen` is when the service last answered (ISO,
    None: never), `unasked` of how many linked rows it was not queried, and `unanswered` by cause
    how many it did not answer when it was last queried.
    """
    shares = 1 + sum(run.committed().counts.read for run in runs) // SHARE
    parts = []
    for share in range(shares):
        is_in_share = pl.col("cuid").hash().fill_null(0) % shares == share
        by_cuid = reported(store, issuer, is_in_share)
        standings = [_standings(run, today, is_in_share, by_cuid) for run in runs]
        parts.append(cells(chain.from_iterable(standings)))
    return {**facts(add(parts)), **_queries(runs)}


def _standings(
    run: StoredRun, today: date, is_in_share: pl.Expr, by_cuid: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """Yield how far the rows of a run came (STANDING), part by part."""
    manifest = run.committed()
    age = pl.lit(age_of(manifest.as_of, today), pl.UInt8).alias("age")
    for part in manifest.ledger:
        records = run.ledger_part(part, ["row", "cuid", "fate"]).filter(is_in_share)
        records = records.with_columns(pl.lit(run.id).alias("run"))
        states = run.rows_part(part, ["row", "state"])
        by_row = service_stages(run, part)
        yield funnel_stages(records, states, by_row, by_cuid).with_columns(age)


def _queries(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Return when the service last answered, and which linked rows it did not answer, or was not
    queried for.
    """
    answered = []  # when it last did of each part
    unqueried = 0
    unanswered: Counter[str] = Counter()
    for run in runs:
        for part in run.committed().ledger:
            placements = read_placements(run, part, ["seen", "trouble", "jobs_trouble"])
            trouble = placements.select(pl.coalesce("trouble", "jobs_trouble"))["trouble"]
            queried = placements["seen"].is_not_null() | trouble.is_not_null()
            unqueried += linked_rows(run, part).height - int(queried.sum())
            unanswered.update(trouble.drop_nulls().to_list())
            newest = placements["seen"].max()
            if isinstance(newest, datetime):
                answered.append(newest)
    return {
        "seen": max(answered).isoformat(timespec="seconds") if answered else None,
        "unasked": unqueried,
        "unanswered": [
            {"cause": cause, "links": links} for cause, links in sorted(unanswered.items())
        ],
    }
