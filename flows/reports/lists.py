"""The lists of a run's report (`schemas.tables`): errors, rejects, chunks, open rows, questions.

Derived from ledger and reconciled rows, without card numbers; the small tables shown by commands
are here too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import polars as pl

from flows.reports.bank_words import BankWords
from flows.reports.cardholder_status import waits
from flows.runs.chunks import OutboxChunk
from flows.runs.frames import csv_pieces
from flows.runs.keys import keys_of
from flows.runs.stored_run import StoredRun
from schemas import ledger
from schemas.breaks import KINDS, Break
from schemas.ledger import ERROR
from schemas.manifest import Manifest
from schemas.reasons import SUPPRESSED, reason, suppressed_rows
from schemas.tables import Awaiting, Refusals, Rejects

FAILED = pl.col("state") == ERROR  # rows of errors.csv
# rows of rejects.csv
UNSENT = pl.col("fate").is_in([ledger.REJECTED, ledger.INELIGIBLE, ledger.DUPLICATE])
# rows of suppressed.csv: because their card was seen before, or is given up
_REASONS = [f"|{code}" for code in SUPPRESSED]
LEFT_OUT = pl.col("reasons").list.eval(pl.element().is_in(_REASONS)).list.any()

SHOWN = 200  # chunks listed in one table; chunks.csv has them all

# What was not sent, and what the partner refused


def write_unsent(run: StoredRun, manifest: Manifest, *, portfolio: bool) -> None:
    """Write rejects.csv, and suppressed.csv where rows are so for what is known of their card.

    Also before the commit. In a full portfolio that is most rows, so it has no suppressed.csv.
    """
    columns = ["row", "line", "cuid", "last_4", "fate", "reasons", "found"]
    rows_by_list = {"rejects.csv": UNSENT}
    if suppressed_rows(manifest.reasons) and not portfolio:
        rows_by_list["suppressed.csv"] = LEFT_OUT
    words = BankWords(manifest.layout)
    for name, rows in rows_by_list.items():
        records = (run.ledger_part(part, columns, rows) for part in manifest.ledger)
        frames = (rejects(part, words) for part in records)
        run.store.replace(run.keys.report(name), csv_pieces(frames, Rejects.dtypes()))


def rejects(records: pl.DataFrame, words: BankWords) -> pl.DataFrame:
    """Return such a list of ledger records: a line per row and reason, no value."""
    listed = words.causes(by_reason(records, "row", "line", "cuid", "last_4"))
    stage = pl.lit("submit").alias("stage")
    return with_actions(listed.with_columns(stage, reason="code")).select(*Rejects.dtypes())


def by_reason(rows: pl.DataFrame, *kept: str) -> pl.DataFrame:
    """Return a line per row and reason: what is `kept` of the row, column, code and found.

    `rows`: with `reasons` ("column|code", or the code alone) and `found`, which is null, or has an
    entry for each reason.
    """
    parts = pl.col("reasons").str.split("|")
    column = pl.when(parts.list.len() > 1).then(parts.list.first()).replace("", None)
    nothing = pl.col("reasons").list.eval(pl.when(pl.lit(value=False)).then(pl.element()))
    is_whole = pl.col("found").list.len() == pl.col("reasons").list.len()
    entries = pl.when(is_whole).then("found").otherwise(nothing)
    return (
        rows.filter(pl.col("reasons").list.len() > 0)
        .with_columns(entries.alias("found"))
        .select(*kept, "reasons", "found")
        .explode("reasons", "found")
        .select(*kept, column.alias("column"), parts.list.last().alias("code"), "found")
    )


def errors(rows: pl.DataFrame) -> pl.DataFrame:
    """Return errors.csv of reconciled rows: one line per row and reason the partner gave."""
    refused = rows.filter(FAILED).select(
        "row", "cuid", "last_4", "message", pl.col("reasons").alias("reason")
    )
    listed = refused.explode("reason").with_columns(
        pl.lit("partner").alias("stage"), pl.lit(None, pl.String).alias("column")
    )
    return with_actions(listed).select(*Refusals.dtypes())


def with_actions(listed: pl.DataFrame) -> pl.DataFrame:
    """Add the action to take about each `reason`."""
    action = _by_code(listed["reason"], lambda code: reason(code).action)
    return listed.with_columns(action.alias("action"))


def _by_code(codes: pl.Series, text: Callable[[str], str | None]) -> pl.Expr:
    """Return the expression of a text for each reason code."""
    texts = {code: text(code) for code in codes.unique().drop_nulls()}
    return pl.col("reason").replace_strict(texts, default=None, return_dtype=pl.String)


def reason_rows(reasons: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return each reason code, most frequent first, with its rows and what to do."""
    by_frequency = sorted(reasons.items(), key=lambda counted: (-counted[1], counted[0]))
    return [(code, rows, reason(code).action) for code, rows in by_frequency]


# Chunks


def chunks(manifest: Manifest, reconciled: pl.DataFrame) -> pl.DataFrame:
    """Return chunks.csv: every chunk as uploaded, and what came back for it."""
    sealed = pl.DataFrame(
        [(chunk.number, chunk.name, chunk.bytes, chunk.sha256) for chunk in manifest.chunks],
        schema={"chunk": pl.UInt32, "name": pl.String, "bytes": pl.UInt64, "sha256": pl.String},
        orient="row",
    )
    results = pl.col("results").list.join(" | ")
    joined = sealed.join(
        reconciled.with_columns(results), on="chunk", how="left", maintain_order="left"
    )
    return joined.select(
        "chunk",
        "name",
        "bytes",
        "sha256",
        pl.col("sent", "answers", "linked", "error", "awaiting").cast(pl.UInt32),
        "state",
        "results",
    )


# Open rows

_WHY = {
    "chunk": pl.UInt32,
    "trouble": pl.String,
    "since": pl.String,
    "why": pl.String,
    "action": pl.String,
}


def awaiting(
    frames: Iterable[pl.DataFrame], items: Collection[OutboxChunk]
) -> Iterator[pl.DataFrame]:
    """Yield awaiting.csv of reconciled rows that wait (row, cuid, last_4, chunk, trouble)."""
    items_by_chunk = {item.chunk.number: item for item in items}
    for rows in frames:
        kinds = rows.select("chunk", "trouble").unique()
        lines = [
            _why_waiting(items_by_chunk[chunk], trouble) for chunk, trouble in kinds.iter_rows()
        ]
        why = pl.DataFrame(lines, _WHY, orient="row")
        joined = rows.join(why, on=["chunk", "trouble"], nulls_equal=True)
        yield joined.sort("row").select(*Awaiting.dtypes())


def _why_waiting(item: OutboxChunk, trouble: str | None) -> tuple[str | int | None, ...]:
    """Return the cells of _WHY for the rows of a chunk whose answers have this trouble."""
    number = item.chunk.number
    since = item.clock.isoformat(timespec="seconds")
    issuer = keys_of(item.run).run.issuer
    status, next_step = waits(item.state, trouble, item.run, issuer, number)
    return number, trouble, since, status, str(next_step)


BREAKS = ["break", "place", "row", "cuid", "last_4", "chunk", "action"]


def breaks(broken: pl.DataFrame, reported: Iterable[Break]) -> pl.DataFrame:
    """Return breaks.csv: every row of every open break, and a line for a break without rows."""
    kinds_with_rows = set(broken["kind"])
    without_rows = [
        (run_break.name, run_break.place, str(KINDS[run_break.name].then))
        for run_break in reported
        if not run_break.notice and run_break.name not in kinds_with_rows
    ]
    in_file = pl.when(pl.col("row").is_null()).then(pl.format("{}, row {}", "result", "position"))
    actions = {name: str(kind.then) for name, kind in KINDS.items()}
    rows = broken.with_columns(
        pl.col("kind").alias("break"),
        pl.coalesce(in_file, pl.format("chunk {}", "chunk")).alias("place"),
        pl.col("kind").replace_strict(actions).alias("action"),
    ).select(BREAKS)
    lines = pl.DataFrame(without_rows, ["break", "place", "action"], orient="row")
    listed = pl.concat([rows, lines], how="diagonal_relaxed")
    return listed.sort("break", "chunk", "row", "place", nulls_last=True)


def questions(
    broken: pl.DataFrame,
    awaited: pl.DataFrame,
    items: Sequence[OutboxChunk],
    now: datetime,
    within: timedelta,
) -> pl.DataFrame:
    """Return questions.csv: what to ask the partner about each row of an open break or overdue.

    `awaited`: the rows that wait (chunk, cuid, last_4, trouble); `within` how long an answer may
    take.
    """
    of_breaks = {name: kind.question for name, kind in KINDS.items() if kind.question}
    of_overdue_chunks = {
        item.chunk.number: (
            f"The chunk was uploaded on {item.clock:%Y-%m-%d} and has no result: what became of it?"
        )
        for item in items
        if item.state == "uploaded" and item.overdue(now, within)
    }
    names = {item.chunk.number: item.chunk.name for item in items}
    chunk = pl.col("chunk").replace_strict(names, default=None, return_dtype=pl.String)
    about_breaks = broken.select(
        pl.coalesce(chunk, "result").alias("chunk"),
        *("cuid", "last_4"),
        _text_by(pl.col("kind"), of_breaks).alias("question"),
    )
    about_overdue = awaited.select(
        chunk.alias("chunk"),
        *("cuid", "last_4"),
        _text_by(pl.col("chunk"), of_overdue_chunks).alias("question"),
    )
    open_questions = pl.concat([about_breaks, about_overdue]).drop_nulls("question")
    return open_questions.unique(maintain_order=True)


def _text_by(column: pl.Expr, texts: Mapping[str, str] | Mapping[int, str]) -> pl.Expr:
    return column.replace_strict(texts, default=None, return_dtype=pl.String)
