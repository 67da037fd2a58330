"""The rows of a run by their state now, and the state that counts where a row was sent repeatedly.

The last attempt counts. But a later refusal takes away neither a link nor the wait for one: only
another link or wait follows those.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from flows.runs.frames import shaped
from flows.runs.store import ObjectMissingError
from flows.runs.stored_run import StoredRun
from schemas import ledger
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart

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
_ATTEMPTED = (LINKED, AWAITING, ERROR, ledger.REJECTED, CANCELLED)
_LAST = pl.Enum([*STATES, CANCELLED])
_RECORD = ["row", "origin", "cuid", "last_4", "fate", "chunk", "reasons"]
_RESULT: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "state": pl.String,
    "reasons": pl.List(pl.String),
}
CARD_HASHES = {"card": pl.struct("cuid", "last_4").hash(), "holder": pl.col("cuid").hash()}
_CARDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "card": pl.UInt64,
    "holder": pl.UInt64,
    "readable": pl.Boolean,  # the card's last digits are known
    "state": _LAST,
}


def run_rows(run: StoredRun) -> Iterator[pl.DataFrame]:
    """Yield every row of a committed run (RUN_ROW), part by part.

    Before its first report all rows sent are awaiting.
    """
    sent = pl.col("fate") == ledger.SUBMITTED
    result = pl.col("result").fill_null(AWAITING)
    is_cancelled = (result == AWAITING) & pl.col("chunk").is_in(list(run.cancelled_chunks))
    has_result = sent | (result == LINKED)  # a single link comes to a row that was not sent, too
    state = (
        pl.when(sent & is_cancelled)
        .then(pl.lit(CANCELLED))
        .when(has_result)
        .then(result)
        .otherwise("fate")
    )
    # our own reasons for a row that was sent are warnings
    reasons = pl.when(has_result).then("result_reasons").otherwise("reasons")
    for part in run.committed().ledger:
        records = run.ledger_part(part, _RECORD)
        results = _results(run, part)
        rows = records.join(results, on="row", how="left", maintain_order="left")
        yield shaped(rows.with_columns(state=state, reasons=reasons), RUN_ROW)


def _results(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return the reconciled state and reasons of one ledger part.

    They are stored before the rest of the report is written.
    """
    try:
        results = run.rows_part(part, list(_RESULT))
    except ObjectMissingError:
        results = pl.DataFrame(schema=_RESULT)
    return results.rename({"state": "result", "reasons": "result_reasons"})


def after_all(
    own: Mapping[str, int], rows: pl.DataFrame, attempts: Sequence[pl.DataFrame]
) -> dict[str, int]:
    """Return how many rows of a run are in each of STATES after all attempts.

    `own`: the same counts after the run itself. `rows`: row and state (RUN_ROW) of the rows that
    were resent. `attempts`: origin (the row of this run) and state of each resubmission, oldest
    first.
    """
    before = Counter(_attempted(rows)["state"])
    later = [attempt.select(row="origin", state="state") for attempt in attempts]
    all_attempts = pl.concat([rows.select("row", "state"), *later])
    now = Counter(_last(_attempted(all_attempts), "row")["state"])
    for counts in (before, now):
        counts[AWAITING] += counts[CANCELLED]  # as a run's own balance counts them
    return {state: own.get(state, 0) - before[state] + now[state] for state in STATES}


class Cardholders:
    """The last state of every card (cuid and last_4) over runs, 18 bytes each.

    Runs are added in the order of their commits.
    """

    def __init__(self) -> None:
        self._cards = pl.DataFrame(schema=_CARDS)

    def add(self, rows: Iterable[pl.DataFrame]) -> None:
        """Add the rows (RUN_ROW) of one more run."""
        attempts = [
            _attempted(frame)
            .drop_nulls("cuid")
            .select(**CARD_HASHES, readable=pl.col("last_4").is_not_null(), state="state")
            for frame in rows
        ]
        self._cards = _last(
            pl.concat([self._cards, *attempts]), "card", pl.col("holder", "readable").last()
        )

    def settled(self) -> pl.DataFrame:
        """Return the hashes of the cards, and cardholders, that have a link or wait for one."""
        return self._cards.filter(pl.col("state").is_in(SETTLED)).select(*CARD_HASHES)

    def count(self) -> dict[str, int]:
        """Return how many cards are in each of STATES.

        A card refused before its number could be read is not counted if its cardholder has a link
        or waits for one. One that was only in cancelled chunks is refused: by an operator.
        """
        holders = self.settled()["holder"].implode()
        is_counted = pl.col("readable") | ~pl.col("holder").is_in(holders)
        counts = Counter(self._cards.filter(is_counted)["state"])
        counts[REFUSED] += counts[CANCELLED]
        return {state: counts[state] for state in STATES}


def _attempted(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is no attempt: duplicates and suppressed rows."""
    attempted = rows.filter(pl.col("state").is_in(_ATTEMPTED))
    return attempted.with_columns(pl.col("state").replace(ledger.REJECTED, REFUSED).cast(_LAST))


def _last(rows: pl.DataFrame, by: str, *more: pl.Expr) -> pl.DataFrame:
    """Return the state that counts for each `by`; CANCELLED counts least.

    The rows are in the order of the attempts.
    """
    state = pl.col("state")
    last_settled = state.filter(state.is_in(SETTLED)).last()
    last_sent = state.filter(state != CANCELLED).last()
    counts = pl.coalesce(last_settled, last_sent, state.last())
    return rows.group_by(by).agg(*more, counts.alias("state"))
