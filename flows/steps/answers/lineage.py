"""Which runs repeat which: a resubmission leaves its name with the run it repeats, before its commit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from flows.core.life.history import REFUSED, SETTLED, after_all
from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.redaction import redact
from flows.core.run.planning import canonical
from flows.steps.answers.run_rows import run_rows
from flows.steps.edges import Edges, read
from flows.steps.operate.purged import read_purged
from flows.steps.runs import keys_of, read_manifest
from schemas.manifest import Manifest

REPEATED_BY = re.compile(r"resubmitted-(.+)\.json$")


def note_repeat(edges: Edges, of: str, run: str, rows: int, reason: str) -> None:
    """Leave with a run which run repeats it; once, however often that is begun."""
    event = {"what": "resubmitted", "at": edges.now().isoformat(), "by": redact(edges.actor)}
    facts = {"run": run, "rows": rows, "reason": redact(reason)}
    edges.store.create(f"{keys_of(of).events}resubmitted-{run}.json", canonical({**event, **facts}))


class Attempt(NamedTuple):
    """One run that repeats rows of another: when it was begun, and origin, the other's row, and state of its rows."""

    at: str
    run: Manifest
    rows: pl.DataFrame


def repeated(store: Store, run: str) -> list[str]:
    """Return the runs that a run repeats, nearest first, whose rows are still kept."""
    found: list[str] = []
    manifest = read_manifest(store, keys_of(run))
    while manifest is not None and manifest.selection is not None and manifest.selection.kind == "resubmit":
        keys = keys_of(manifest.selection.of)
        manifest = read_manifest(store, keys)
        if manifest is None or read_purged(store, keys, "ledger") is not None:
            break
        found.append(manifest.run)
    return found


def latest_first(store: Store, runs: Iterable[str]) -> list[str]:
    """Return these runs and those they repeat, whatever repeats before what is repeated: reports follow this order."""
    chains = {run: repeated(store, run) for run in runs}
    every = {one: repeated(store, one) for chain in chains.values() for one in chain} | chains
    return sorted(every, key=lambda run: (-len(every[run]), run))


def attempts_after(store: Store, manifest: Manifest, counts: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the resubmissions of a run and its rows after all attempts; None where nothing was sent again.

    `counts`: rows that were linked, awaiting, in error and rejected after the run itself.
    """
    found = sorted(_attempts(store, manifest), key=lambda one: (one.at, one.run.run))
    if not found:
        return None
    frames = [one.rows for one in found]
    origins = pl.concat(frames)["origin"].unique().implode()
    ours = [part.filter(pl.col("row").is_in(origins)).select("row", "state") for part in run_rows(store, manifest)]
    own = {**counts, REFUSED: counts["rejected"]}
    return {"runs": [_told(one) for one in found], "after": after_all(own, pl.concat(ours), frames)}


def settled_since(store: Store, manifest: Manifest) -> pl.Series:
    """Return the rows of a run that were sent again and are linked or awaiting by it."""
    frames = [one.rows.filter(pl.col("state").is_in(SETTLED))["origin"] for one in _attempts(store, manifest)]
    return pl.concat([pl.Series("origin", dtype=pl.UInt32), *frames])


def _attempts(store: Store, manifest: Manifest) -> Iterator[Attempt]:
    """Yield every run that repeats rows of a run, or of one that does, with the rows of the run itself as origins."""
    for at, one in _repeats(store, keys_of(manifest.run)):
        rows = pl.concat(part.select("row", "origin", "state") for part in run_rows(store, one))
        yield Attempt(at, one, rows.select("origin", "state"))
        roots = rows.select(pl.col("row").alias("origin"), pl.col("origin").alias("root"))
        for later in _attempts(store, one):
            deeper = later.rows.join(roots, on="origin", maintain_order="left")
            yield later._replace(rows=deeper.select(origin="root", state="state"))


def _repeats(store: Store, keys: RunKeys) -> Iterator[tuple[str, Manifest]]:
    """Yield when each run that repeats rows of a run was begun, and its manifest, where its rows are still kept."""
    for entry in list(store.keys(keys.events)):
        found = REPEATED_BY.search(entry.key)
        run = keys_of(found[1]) if found else None
        manifest = read_manifest(store, run) if run else None
        if run and manifest is not None and read_purged(store, run, "ledger") is None:
            yield json.loads(read(store, entry.key))["at"], manifest


def _told(one: Attempt) -> dict[str, Any]:
    states = dict(one.rows["state"].value_counts().iter_rows())
    counts = {state: states.get(state, 0) for state in ("linked", "error", "awaiting", "rejected", "cancelled")}
    return {"run": one.run.run, "as_of": one.run.as_of.isoformat(), "rows": one.rows.height, **counts}
