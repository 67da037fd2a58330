"""The rows of a run by their state now, and the state that counts where a row was sent repeatedly.

The last attempt counts. But a row that is linked or awaiting stays so if a later attempt is
refused: only another link, or a wait for one, takes its place.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from flows.book.attempts import CANCELLED, FILE, SINGLE, answered_chunks
from flows.runs.frames import shaped
from flows.runs.store import ObjectMissingError
from flows.runs.stored_run import StoredRun
from schemas import ledger
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart

Columns = Mapping[str, pl.DataType | type[pl.DataType]]
# A row of a run: `state` is linked, error, awaiting, CANCELLED, or the fate of a row that was not
# sent.
RUN_ROW: Columns = {
    "row": pl.UInt32,
    "origin": pl.UInt32,  # the row of the run it repeats, if any
    "cuid": pl.String,
    "last_4": pl.String,
    "state": pl.String,
    "reasons": pl.List(pl.String),  # "column|code" each; the partner's have no column
    "line": pl.UInt32,
    "found": pl.List(pl.String),  # of a row that we rejected, as in the ledger
}

REFUSED = "refused"  # by us
STATES = (LINKED, AWAITING, ERROR, REFUSED)
SETTLED = (LINKED, AWAITING)
_ATTEMPTED = (LINKED, AWAITING, ERROR, ledger.REJECTED, CANCELLED)
_LAST = pl.Enum([*STATES, CANCELLED])
_RECORD = ["row", "line", "origin", "cuid", "last_4", "fate", "chunk", "reasons", "found"]
_RESULT: Columns = {
    "row": pl.UInt32,
    "state": pl.String,
    "reasons": pl.List(pl.String),
    "how": pl.String,
    "trouble": pl.String,
}


def run_rows(run: StoredRun) -> Iterator[pl.DataFrame]:
    """Yield every row of a committed run (RUN_ROW), part by part.

    Before its first report all rows sent are awaiting.
    """
    sent = pl.col("fate") == ledger.SUBMITTED
    answer = pl.col("answer").fill_null(AWAITING)
    has_result = sent | (answer == LINKED)  # a single link comes to a row that was not sent, too
    # our own reasons for a row that was sent are warnings
    reasons = pl.when(has_result).then("result_reasons").otherwise("reasons")
    own_shapes = pl.when(~has_result).then("found")
    for part in run.committed().ledger:
        records = run.ledger_part(part, _RECORD)
        results = _results(run, part)
        rows = records.join(results, on="row", how="left", maintain_order="left")
        is_of_unsent = pl.col("chunk").is_in(_unsent_chunks(run, rows))
        state = (
            pl.when(sent & (answer == AWAITING) & is_of_unsent)
            .then(pl.lit(CANCELLED))
            .when(has_result)
            .then(answer)
            .otherwise("fate")
        )
        yield shaped(rows.with_columns(state=state, reasons=reasons, found=own_shapes), RUN_ROW)


def _unsent_chunks(run: StoredRun, rows: pl.DataFrame) -> list[int]:
    """Return the cancelled chunks that nobody uploaded all the same, as their rows say."""
    if not run.cancelled_chunks:
        return []
    is_single = pl.col("how").eq_missing(SINGLE)
    channel = pl.when(is_single).then(pl.lit(SINGLE)).otherwise(pl.lit(FILE))
    answered = answered_chunks(rows.with_columns(channel=channel, state="answer"))
    return sorted(run.cancelled_chunks.difference(answered))


def _results(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return the reconciled state and reasons of one ledger part.

    They are stored before the rest of the report is written.
    """
    try:
        results = run.rows_part(part, list(_RESULT))
    except ObjectMissingError:
        results = pl.DataFrame(schema=_RESULT)
    return results.rename({"state": "answer", "reasons": "result_reasons"})


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
    now = Counter(_last(_attempted(all_attempts))["state"])
    for counts in (before, now):
        counts[AWAITING] += counts[CANCELLED]  # as a run's own balance counts them
    return {state: own.get(state, 0) - before[state] + now[state] for state in STATES}


def _attempted(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is no attempt: duplicates and suppressed rows."""
    attempted = rows.filter(pl.col("state").is_in(_ATTEMPTED))
    return attempted.with_columns(pl.col("state").replace(ledger.REJECTED, REFUSED).cast(_LAST))


def _last(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the state that counts for each row; CANCELLED counts least.

    The rows are in the order of the attempts.
    """
    state = pl.col("state")
    last_settled = state.filter(state.is_in(SETTLED)).last()
    last_sent = state.filter(state != CANCELLED).last()
    counts = pl.coalesce(last_settled, last_sent, state.last())
    return rows.group_by("row").agg(counts.alias("state"))
