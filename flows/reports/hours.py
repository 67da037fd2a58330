"""Hours from an extract's drop to the arrival of its links: of a run, and over the runs of an issuer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import accumulate
from typing import Any

import polars as pl

from flows.runs.context import DROPPED
from flows.runs.documents import keys_of
from flows.runs.store import Store, read
from schemas.manifest import Manifest

EXTRACT, PLAN = "the extract's drop", "the run's plan"  # what the hours are counted from


def run_hours(store: Store, manifest: Manifest, arrivals: pl.DataFrame, within: int) -> dict[str, Any]:
    """Return the hours of a run's links (`flows.reports.tally.ARRIVALS`), and what they are counted from."""
    since, start = _start(store, manifest)
    spread = Counter[float]()
    for arrived, links in arrivals.iter_rows():
        spread[round(max(0.0, (arrived - start).total_seconds()) / 3600, 1)] += links
    return {"since": since, "start": start.isoformat(timespec="seconds"), **_figures(spread, within)}


def hours_of(spreads: Iterable[Mapping[str, int]], within: int) -> dict[str, Any]:
    """Return links, median, slowest and share within the agreed hours; `spread`: links by hours, in tenths."""
    spread = Counter[float]()
    for one in spreads:
        spread.update({float(hours): links for hours, links in one.items()})
    return _figures(spread, within)


def _figures(spread: Mapping[float, int], within: int) -> dict[str, Any]:
    hours, links = sorted(spread), sum(spread.values())
    sums = accumulate(spread[one] for one in hours)
    return {
        "links": links,
        "median": next((one for one, upto in zip(hours, sums, strict=True) if 2 * upto >= links), None),
        "slowest": hours[-1] if hours else None,
        "within": within,
        "share": sum(spread[one] for one in hours if one <= within) / links if links else None,
        "spread": {f"{one:.1f}": spread[one] for one in hours},
    }


def _start(store: Store, manifest: Manifest) -> tuple[str, datetime]:
    """Return when the extract was dropped; of a renewal, and where no event has it, when the run was planned."""
    keys = keys_of(manifest.run)
    if manifest.selection is None or manifest.selection.kind != "renew":
        for entry in list(store.keys(keys.events)):
            dropped = json.loads(read(store, entry.key)).get(DROPPED) if "-committed-" in entry.key else None
            if dropped:
                return EXTRACT, datetime.fromisoformat(dropped)
    with store.open(keys.plan) as plan:
        return PLAN, plan.entry.modified
