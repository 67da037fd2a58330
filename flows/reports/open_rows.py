"""The open rows of a run one by one: awaiting.csv, breaks.csv, and questions.csv for the partner."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import polars as pl

from flows.reports.cardholder import waits
from flows.results.masking import spreadsheet_safe
from flows.runs.chunks import Item
from flows.runs.documents import keys_of
from schemas.breaks import KINDS, Break

AWAITED = ["row", "cuid", "last_4", "chunk", "since", "why", "action"]
BREAKS = ["break", "place", "row", "cuid", "last_4", "chunk", "action"]
QUESTIONS = ["chunk", "cuid", "last_4", "question"]
_WHY = {"chunk": pl.UInt32, "trouble": pl.String, "since": pl.String, "why": pl.String, "action": pl.String}


def awaiting(frames: Iterable[pl.DataFrame], items: Collection[Item]) -> Iterator[pl.DataFrame]:
    """Yield awaiting.csv of reconciled rows that wait (row, cuid, last_4, chunk, trouble)."""
    by_chunk = {item.chunk.number: item for item in items}
    for rows in frames:
        pairs = rows.select("chunk", "trouble").unique().iter_rows()
        why = [_why(by_chunk[chunk], trouble) for chunk, trouble in pairs]
        joined = rows.join(pl.DataFrame(why, _WHY, orient="row"), on=["chunk", "trouble"], nulls_equal=True).sort("row")
        yield joined.with_columns(spreadsheet_safe("cuid")).select(AWAITED)


def _why(item: Item, trouble: str | None) -> tuple[int, str | None, str, str, str]:
    why, action = waits(item.state, trouble, item.run, keys_of(item.run).run.issuer, item.chunk.number)
    return item.chunk.number, trouble, item.clock.isoformat(timespec="seconds"), why, action


def breaks(broken: pl.DataFrame, found: Iterable[Break]) -> pl.DataFrame:
    """Return breaks.csv: every row of every open break, and one line of a break that has no rows."""
    listed = set(broken["kind"])
    alone = [(one.name, one.place, KINDS[one.name].then) for one in found if not one.notice and one.name not in listed]
    file = pl.when(pl.col("row").is_null()).then(pl.format("{}, row {}", "result", "position"))
    rows = broken.with_columns(
        pl.col("kind").alias("break"),
        pl.coalesce(file, pl.format("chunk {}", "chunk")).alias("place"),
        pl.col("kind").replace_strict({name: kind.then for name, kind in KINDS.items()}).alias("action"),
    ).select(BREAKS)
    every = pl.concat([rows, pl.DataFrame(alone, ["break", "place", "action"], orient="row")], how="diagonal_relaxed")
    safe = every.with_columns(spreadsheet_safe(name) for name in ("cuid", "place"))
    return safe.sort("break", "chunk", "row", "place", nulls_last=True)


def questions(
    broken: pl.DataFrame, awaited: pl.DataFrame, items: Sequence[Item], now: datetime, within: timedelta
) -> pl.DataFrame:
    """Return questions.csv: what to ask the partner about each row of an open break or of an overdue result.

    `awaited`: the rows that wait (chunk, cuid, last_4, trouble).
    """
    asked = {name: kind.question for name, kind in KINDS.items() if kind.question}
    late = {
        item.chunk.number: f"The chunk was uploaded on {item.clock:%Y-%m-%d} and has no result: what became of it?"
        for item in items
        if item.state == "uploaded" and item.overdue(now, within)
    }
    names = {item.chunk.number: item.chunk.name for item in items}
    name = pl.col("chunk").replace_strict(names, default=None, return_dtype=pl.String)
    frames = [
        one.with_columns(pl.col(by).replace_strict(texts, default=None, return_dtype=pl.String).alias("question"))
        .drop_nulls("question")
        .select(pl.coalesce(name, *(["result"] if by == "kind" else [])).alias("chunk"), "cuid", "last_4", "question")
        for one, by, texts in ((broken, "kind", asked), (awaited, "chunk", late))
    ]
    return (
        pl.concat(frames).unique(maintain_order=True).with_columns(spreadsheet_safe(one) for one in ("chunk", "cuid"))
    )
