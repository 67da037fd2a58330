"""The rows of a run as they stand, and which runs repeat which: attempts make one history, each row counted once.

A later attempt counts, but a refusal takes no link away and no waiting: only what is linked or awaiting follows
those.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.redaction import redact
from flows.runs.chunks import chunk_states
from flows.runs.context import Adapters
from flows.runs.documents import (
    UnknownRunError,
    finished,
    keys_of,
    read_ledger,
    read_manifest,
    read_purged,
)
from flows.runs.frames import rows_key
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys
from flows.runs.store import ObjectMissingError, Store, read
from schemas import ledger
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart, Manifest

CANCELLED = "cancelled"  # its chunk was cancelled before its upload: never sent
# A row of a run as it stands: `state` is linked, error, awaiting, CANCELLED, or the fate of a row that was not sent.
RUN_ROW: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "origin": pl.UInt32,  # the row of the run it repeats, where it does
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
    "reasons": pl.List(pl.String),  # "column|code" each; the partner's have no column
}

REFUSED = "refused"  # by us
STATES = (LINKED, AWAITING, ERROR, REFUSED)
SETTLED = (LINKED, AWAITING)
_CARDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "card": pl.UInt64,
    "holder": pl.UInt64,
    "readable": pl.Boolean,  # the card's last digits are known
    "state": pl.Enum(STATES),
}
_SEEN = (LINKED, AWAITING, ERROR, ledger.REJECTED)

RECORD = ["row", "origin", "cuid", "last_4", "fate", "chunk", "reasons"]
NOTHING = pl.DataFrame(schema={"row": pl.UInt32, "settled": pl.String, "told": pl.List(pl.String)})

REPEATED_BY = re.compile(r"resubmitted-(.+)\.json$")


def after_all(own: Mapping[str, int], rows: pl.DataFrame, attempts: Sequence[pl.DataFrame]) -> dict[str, int]:
    """Return how many rows of a run are in each of STATES after all attempts.

    `own`: how many were after the run itself. `rows`: row, state (as `wanted.RUN_ROW`) of those that were sent again.
    `attempts`: of each resubmission, oldest first, origin (the row of this run) and state.
    """
    waits = pl.col("state").replace(CANCELLED, AWAITING)  # so the run's own balance counts what was cancelled
    before = Counter(_named(rows.with_columns(waits))["state"])
    frames = [rows.select("row", "state"), *(one.select(row="origin", state="state") for one in attempts)]
    ends = _last(_named(pl.concat(frames)), "row")
    idle = rows.filter(state=CANCELLED).join(ends, on="row", how="anti")
    now = Counter(ends["state"]) + Counter({AWAITING: idle.height})
    return {state: own.get(state, 0) - before[state] + now[state] for state in STATES}


class Cardholders:
    """Cards (cuid and last_4) over runs in the order of their commits, each by its last state, in 18 bytes."""

    def __init__(self) -> None:
        self._cards = pl.DataFrame(schema=_CARDS)

    def add(self, rows: Iterable[pl.DataFrame]) -> None:
        """Take the rows (`wanted.RUN_ROW`) of one more run."""
        fresh = [_markers(_named(frame).drop_nulls("cuid")) for frame in rows]
        same = [pl.col("holder").last(), pl.col("readable").last()]
        self._cards = _last(pl.concat([self._cards, *fresh]), "card", same)

    def count(self) -> dict[str, int]:
        """Return how many cards are in each of STATES.

        One refused before its number could be read is not counted where its cardholder has a link or waits for one.
        """
        holders = self._cards.filter(pl.col("state").is_in(SETTLED))["holder"].implode()
        found = Counter(self._cards.filter(pl.col("readable") | ~pl.col("holder").is_in(holders))["state"])
        return {state: found[state] for state in STATES}


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is no attempt: repeats, rows that were suppressed, chunks that were cancelled."""
    attempted = rows.filter(pl.col("state").is_in(_SEEN))
    return attempted.with_columns(pl.col("state").replace(ledger.REJECTED, REFUSED).cast(pl.Enum(STATES)))


def _last(rows: pl.DataFrame, by: str, more: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return the state that counts of each `by`, rows being in the order of the attempts."""
    state = pl.col("state")
    counts = pl.coalesce(state.filter(state.is_in(SETTLED)).last(), state.last())
    return rows.group_by(by).agg(*more, counts.alias("state"))


def _markers(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        pl.struct("cuid", "last_4").hash().alias("card"),
        pl.col("cuid").hash().alias("holder"),
        pl.col("last_4").is_not_null().alias("readable"),
        "state",
    )


def committed(store: Store, run: str) -> Manifest:
    """Return the manifest of a committed run; UnknownRunError, AbandonedError."""
    manifest = finished(store, keys_of(run))
    if manifest is None:
        raise UnknownRunError(run=run)
    return manifest


def run_rows(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    """Yield every row of a run (`flows.results.lineage.RUN_ROW`), part by part."""
    keys = keys_of(manifest.run)
    cancelled = [one.chunk.number for one in chunk_states(store, keys, manifest) if one.state == "cancelled"]
    for part, records in zip(manifest.ledger, read_ledger(store, keys, manifest.ledger, RECORD), strict=True):
        rows = records.join(_settled(store, manifest, part), on="row", how="left", maintain_order="left")
        yield rows.with_columns(state=_state(cancelled), reasons=_reasons()).select(
            pl.col(name).cast(kind) for name, kind in RUN_ROW.items()
        )


def _settled(store: Store, manifest: Manifest, part: LedgerPart) -> pl.DataFrame:
    """Return what the report of a run, perhaps still being written, says of a ledger part: nothing before the first."""
    try:
        content = BytesIO(read(store, rows_key(keys_of(manifest.run), part)))
    except ObjectMissingError:
        return NOTHING
    return pl.read_parquet(content, columns=["row", "state", "reasons"]).rename({"state": "settled", "reasons": "told"})


def _state(cancelled: list[int]) -> pl.Expr:
    unanswered = pl.col("settled").fill_null(AWAITING)
    never = (unanswered == AWAITING) & pl.col("chunk").is_in(cancelled)
    sent = pl.when(never).then(pl.lit(CANCELLED)).otherwise(unanswered)
    return pl.when(pl.col("fate") == ledger.SUBMITTED).then(sent).otherwise("fate")


def _reasons() -> pl.Expr:
    """The partner's reasons where the row was sent: what we only warned of refused nothing."""
    return pl.when(pl.col("fate") == ledger.SUBMITTED).then("told").otherwise("reasons")


def record_repeat(adapters: Adapters, of: str, run: str, rows: int, reason: str) -> None:
    """Leave with a run which run repeats it; once, however often that is begun."""
    event = {"what": "resubmitted", "at": adapters.now().isoformat(), "by": redact(adapters.actor)}
    facts = {"run": run, "rows": rows, "reason": redact(reason)}
    adapters.store.create(f"{keys_of(of).events}resubmitted-{run}.json", canonical({**event, **facts}))


class Attempt(NamedTuple):
    """One run that repeats rows of another: when it was begun, and origin, the other's row, and state of its rows."""

    at: str
    run: Manifest
    rows: pl.DataFrame


def repeated_runs(store: Store, run: str) -> list[str]:
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


def newest_first(store: Store, runs: Iterable[str]) -> list[str]:
    """Return these runs and those they repeat, whatever repeats before what is repeated: reports follow this order."""
    chains = {run: repeated_runs(store, run) for run in runs}
    every = {one: repeated_runs(store, one) for chain in chains.values() for one in chain} | chains
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
    return {"runs": [_as_dict(one) for one in found], "after": after_all(own, pl.concat(ours), frames)}


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


def _as_dict(one: Attempt) -> dict[str, Any]:
    states = dict(one.rows["state"].value_counts().iter_rows())
    counts = {state: states.get(state, 0) for state in ("linked", "error", "awaiting", "rejected", "cancelled")}
    return {"run": one.run.run, "as_of": one.run.as_of.isoformat(), "rows": one.rows.height, **counts}
