"""The rows of a run by their state now, and the history of the runs that repeat it: each row is
counted once.

The last attempt counts. But a later refusal takes away neither a link nor the wait for one: only
another link or wait follows those.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from flows.runs import documents
from flows.runs.chunks import chunk_states
from flows.runs.frames import shaped
from flows.runs.keys import keys_of
from flows.runs.store import ObjectMissingError, Store
from flows.runs.versions import read_events
from schemas import ledger
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart, Manifest

CANCELLED = "cancelled"  # its chunk was cancelled before the upload: never sent
# A row of a run: `state` is linked, error, awaiting, CANCELLED, or the fate of a row that was not
# sent.
RUN_ROW: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "origin": pl.UInt32,  # the row of the run it repeats, if any
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
    "reasons": pl.List(pl.String),  # "column|code" each; the partner's have no column
}

REFUSED = "refused"  # by us
STATES = (LINKED, AWAITING, ERROR, REFUSED)
SETTLED = (LINKED, AWAITING)
REPEATED_BY = re.compile(r"resubmitted-(.+)\.json$")
_ATTEMPTED = (LINKED, AWAITING, ERROR, ledger.REJECTED, CANCELLED)
_LAST = pl.Enum([*STATES, CANCELLED])
_RECORD = ["row", "origin", "cuid", "last_4", "fate", "chunk", "reasons"]
CARD_HASHES = {"card": pl.struct("cuid", "last_4").hash(), "holder": pl.col("cuid").hash()}
_CARDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "card": pl.UInt64,
    "holder": pl.UInt64,
    "readable": pl.Boolean,  # the card's last digits are known
    "state": _LAST,
}


def after_all(
    own: Mapping[str, int], rows: pl.DataFrame, attempts: Sequence[pl.DataFrame]
) -> dict[str, int]:
    """Return how many rows of a run are in each of STATES after all attempts.

    `own`: the same counts after the run itself. `rows`: row and state (RUN_ROW) of the rows that were resent.
    `attempts`: origin (the row of this run) and state of each resubmission, oldest first.
    """
    before = Counter(_attempted(rows)["state"])
    frames = [
        rows.select("row", "state"),
        *(one.select(row="origin", state="state") for one in attempts),
    ]
    now = Counter(_last(_attempted(pl.concat(frames)), "row")["state"])
    for counts in (before, now):
        counts[AWAITING] += counts[CANCELLED]  # as a run's own balance counts them
    return {state: own.get(state, 0) - before[state] + now[state] for state in STATES}


class Cardholders:
    """The last state of every card (cuid and last_4) over runs added in the order of their commits,
    18 bytes each.
    """

    def __init__(self) -> None:
        self._cards = pl.DataFrame(schema=_CARDS)

    def add(self, rows: Iterable[pl.DataFrame]) -> None:
        """Add the rows (RUN_ROW) of one more run."""
        fresh = [
            _attempted(frame)
            .drop_nulls("cuid")
            .select(**CARD_HASHES, readable=pl.col("last_4").is_not_null(), state="state")
            for frame in rows
        ]
        self._cards = _last(
            pl.concat([self._cards, *fresh]), "card", pl.col("holder", "readable").last()
        )

    def settled(self) -> pl.DataFrame:
        """Return the hashes of the cards that have a link or wait for one, and of their
        cardholders.
        """
        return self._cards.filter(pl.col("state").is_in(SETTLED)).select(*CARD_HASHES)

    def count(self) -> dict[str, int]:
        """Return how many cards are in each of STATES.

        A card refused before its number could be read is not counted if its cardholder has a link
        or waits for one. One that was only in cancelled chunks is refused: by an operator.
        """
        holders = self.settled()["holder"].implode()
        found = Counter(
            self._cards.filter(pl.col("readable") | ~pl.col("holder").is_in(holders))["state"]
        )
        found[REFUSED] += found[CANCELLED]
        return {state: found[state] for state in STATES}


def _attempted(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is no attempt: duplicates and suppressed rows."""
    attempted = rows.filter(pl.col("state").is_in(_ATTEMPTED))
    return attempted.with_columns(pl.col("state").replace(ledger.REJECTED, REFUSED).cast(_LAST))


def _last(rows: pl.DataFrame, by: str, *more: pl.Expr) -> pl.DataFrame:
    """Return the state that counts for each `by`; the rows are in the order of the attempts,
    CANCELLED counts least.
    """
    state = pl.col("state")
    settled, sent = state.is_in(SETTLED), state != CANCELLED
    counts = pl.coalesce(state.filter(settled).last(), state.filter(sent).last(), state.last())
    return rows.group_by(by).agg(*more, counts.alias("state"))


def run_rows(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    """Yield every row of a run (RUN_ROW), part by part; before its first report all rows sent are
    awaiting.
    """
    keys = keys_of(manifest.run)
    cancelled = [
        one.chunk.number for one in chunk_states(store, keys, manifest) if one.state == "cancelled"
    ]
    sent, result = pl.col("fate") == ledger.SUBMITTED, pl.col("result").fill_null(AWAITING)
    never = (result == AWAITING) & pl.col("chunk").is_in(cancelled)
    came = sent | (result == LINKED)  # a single link comes to a row that was not sent, too
    state = pl.when(sent & never).then(pl.lit(CANCELLED)).when(came).then(result).otherwise("fate")
    # our own reasons for a row that was sent are warnings
    reasons = pl.when(came).then("answer").otherwise("reasons")
    for part, records in zip(
        manifest.ledger, documents.read_ledger(store, keys, manifest.ledger, _RECORD), strict=True
    ):
        rows = records.join(
            _results(store, manifest, part), on="row", how="left", maintain_order="left"
        )
        yield shaped(rows.with_columns(state=state, reasons=reasons), RUN_ROW)


def _results(store: Store, manifest: Manifest, part: LedgerPart) -> pl.DataFrame:
    """Return the reconciled state and reasons of one ledger part: stored before the rest of the
    report is written.
    """
    try:
        (found,) = documents.read_rows(
            store, keys_of(manifest.run), [part], ["row", "state", "reasons"]
        )
    except ObjectMissingError:
        found = pl.DataFrame(
            schema={"row": pl.UInt32, "state": pl.String, "reasons": pl.List(pl.String)}
        )
    return found.rename({"state": "result", "reasons": "answer"})


def repeated_runs(store: Store, run: str) -> list[str]:
    """Return the runs that a run repeats, nearest first, as far as their rows are still stored."""
    found: list[str] = []
    manifest = documents.read_manifest(store, keys_of(run))
    while (
        manifest is not None
        and manifest.selection is not None
        and manifest.selection.kind == "resubmit"
    ):
        keys = keys_of(manifest.selection.of)
        manifest = documents.read_manifest(store, keys)
        if manifest is None or documents.read_purged(store, keys, "ledger") is not None:
            break
        found.append(manifest.run)
    return found


def newest_first(store: Store, runs: Iterable[str]) -> list[str]:
    """Return these runs and those they repeat, every run before those it repeats: the order to
    report them in.
    """
    chains = {run: repeated_runs(store, run) for run in runs}
    every = {one: repeated_runs(store, one) for chain in chains.values() for one in chain} | chains
    return sorted(every, key=lambda run: (-len(every[run]), run))


def attempts_after(
    store: Store, manifest: Manifest, counts: Mapping[str, int]
) -> dict[str, Any] | None:
    """Return a run's resubmissions, if any, and its rows after them; `counts`: its rows by state
    before them.
    """
    found = sorted(_attempts(store, manifest), key=lambda one: (one[0], one[1].run))
    if not found:
        return None
    runs = []
    for _, run, rows in found:
        states = Counter(rows["state"])
        figures = {
            state: states[state] for state in (LINKED, ERROR, AWAITING, ledger.REJECTED, CANCELLED)
        }
        runs.append(
            {"run": run.run, "as_of": run.as_of.isoformat(), "rows": rows.height, **figures}
        )
    frames = [rows for *_, rows in found]
    origins = pl.concat(frames)["origin"].unique().implode()
    ours = [
        part.filter(pl.col("row").is_in(origins)).select("row", "state")
        for part in run_rows(store, manifest)
    ]
    own = {**counts, REFUSED: counts["rejected"]}
    return {"runs": runs, "after": after_all(own, pl.concat(ours), frames)}


def settled_since(store: Store, manifest: Manifest) -> pl.Series:
    """Return the rows of a run that are linked or awaiting in a later attempt."""
    frames = [
        rows.filter(pl.col("state").is_in(SETTLED))["origin"]
        for *_, rows in _attempts(store, manifest)
    ]
    return pl.concat([pl.Series("origin", dtype=pl.UInt32), *frames])


def _attempts(store: Store, manifest: Manifest) -> Iterator[tuple[str, Manifest, pl.DataFrame]]:
    """Yield when each run started that repeats rows of a run, directly or not; origin (a row of the
    run) and state.
    """
    for entry in list(store.keys(keys_of(manifest.run).events)):
        found = REPEATED_BY.search(entry.key)
        keys = keys_of(found[1]) if found else None
        repeat = documents.read_manifest(store, keys) if keys else None
        if (
            keys is None
            or repeat is None
            or documents.read_purged(store, keys, "ledger") is not None
        ):
            continue
        rows = pl.concat(part.select("row", "origin", "state") for part in run_rows(store, repeat))
        [event] = read_events(store, [entry])
        yield event["at"], repeat, rows.select("origin", "state")
        roots = rows.select(pl.col("row").alias("origin"), pl.col("origin").alias("root"))
        for at, run, later in _attempts(store, repeat):
            yield (
                at,
                run,
                later.join(roots, on="origin", maintain_order="left").select(
                    origin="root", state="state"
                ),
            )
