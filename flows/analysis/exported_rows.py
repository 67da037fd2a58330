"""The rows of a run as analysts read them (`schemas.analysis.ExportedRows`)."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

import polars as pl

from flows.book.attempts import answer_times
from flows.book.standing import actor_of
from flows.results.row_states import run_rows
from flows.runs.frames import from_parquet, shaped
from flows.runs.keys import RunKeys
from flows.runs.store import Entry, Store, read
from flows.runs.stored_run import StoredRun
from schemas.analysis import TIME, ExportedRows
from schemas.ledger import ERROR, INELIGIBLE, LINKED, REJECTED
from schemas.tables import parquet

PARTS_A_FILE = 8  # ledger parts, a million rows
_SCHEMA = ExportedRows.dtypes()
_ALSO = {
    "cuid_made": pl.Boolean,
    "fate": pl.String,
    "chunk": pl.UInt32,
    "position": pl.UInt16,
    "expires_on": pl.Date,
    "trouble": pl.String,
    "result": pl.String,
}
_WITHOUT_LINK = (ERROR, REJECTED, INELIGIBLE)  # states in which somebody may have to act


def write_rows(run: StoredRun) -> None:
    """Write the rows of a committed run, a million a file."""
    parts = exported_rows(run)
    number = 1
    while frames := list(islice(parts, PARTS_A_FILE)):
        key = f"{run.keys.analysis}{number:03d}.parquet"
        run.store.replace(key, [as_parquet(pl.concat(frames))])
        number += 1


def exported_rows(run: StoredRun) -> Iterator[pl.DataFrame]:
    """Yield the rows of a committed run, part by part (ExportedRows)."""
    times = _answer_times(run)
    arrivals = run.single_links.select("row", "arrived")
    for part in run_rows(run, _ALSO):
        rows = part.join(times, on="result", how="left", maintain_order="left")
        rows = rows.join(arrivals, on="row", how="left", maintain_order="left")
        reason = pl.col("reasons").list.first().str.split("|").list.last()
        rows = rows.with_columns(
            run=pl.lit(run.id),
            expires_on=pl.when(state=LINKED).then("expires_on"),
            answered_at=pl.coalesce("answered_at", "arrived"),
            reason=reason,
        )
        yield shaped(rows.with_columns(who=_who(rows)), _SCHEMA)


def row_files(store: Store, keys: RunKeys) -> list[Entry]:
    """Return the files with the rows of a run; none where they were not exported."""
    return list(store.keys(keys.analysis))


def named_rows(store: Store, entry: Entry, rows: Sequence[int]) -> pl.DataFrame:
    """Return what a file has of these rows."""
    return from_parquet(read(store, entry.key), list(_SCHEMA), pl.col("row").is_in(rows))


def as_parquet(frame: pl.DataFrame) -> bytes:
    """Return a table of the export as it is stored: with statistics, by which engines skip."""
    return parquet(frame, compression="zstd", compression_level=1, statistics=True)


def _answer_times(run: StoredRun) -> pl.DataFrame:
    """Return when each result file of a run was ingested first."""
    times: list[tuple[str, datetime]] = list(answer_times(run).items())
    return pl.DataFrame(times, {"result": pl.String, "answered_at": TIME}, orient="row")


def _who(rows: pl.DataFrame) -> pl.Expr:
    """Return who acts about a row that has no link."""
    by_reason = {code: actor_of(code) for code in rows["reason"].drop_nulls().unique()}
    actor = pl.col("reason").replace_strict(by_reason, default=None, return_dtype=pl.String)
    return pl.when(pl.col("state").is_in(_WITHOUT_LINK)).then(actor)
