"""Every sent row against every answer: a pure function, the same for any order and any repetition of result files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.attribution import BROKEN, ERROR, KEY, LINKED, OUTCOME, Attributed, digest_of
from schemas import breaks
from schemas.breaks import Break, found

AWAITING = "awaiting"
SHOWN = 5  # row numbers named at the place of a break


class Reconciled(NamedTuple):
    """What became of every sent row.

    `rows`: run, chunk, row, position, cuid, last_4, state (linked, error, awaiting), url, expires_on,
    expires_raw, how, reasons, message, shape, result (name of the file that answered).
    `chunks`: run, chunk, sent, answers (different result rows), linked, error, awaiting, state
    (answered, partial, awaiting), results (file names).
    `links`: different links received, whatever became of them.
    """

    rows: pl.DataFrame
    chunks: pl.DataFrame
    breaks: tuple[Break, ...]
    links: int


def reconcile(sent: pl.DataFrame, outcomes: Sequence[Attributed], today: date) -> Reconciled:
    """Settle every submitted ledger row (row, cuid, last_4, chunk, position[, run]) by the attributed results.

    A link that had expired when its file came in (`today` where that day is unknown) settles nothing.
    """
    sent = sent if "run" in sent.columns else sent.with_columns(pl.lit("", pl.String).alias("run"))
    files = _files(outcomes)
    answers = _union(_expired(_answers(files), today))
    settled = answers.filter(pl.col("state") != BROKEN)
    rows = _rows(sent, settled)
    chunks = _chunks(rows, answers)
    findings = [
        *_file_breaks(files),
        *_row_breaks(answers),
        *_conflicts(settled),
        *_shorts(chunks),
    ]
    links = answers.filter(pl.col("has_url")).height
    return Reconciled(rows, chunks, tuple(sorted(findings)), links)


def _files(outcomes: Sequence[Attributed]) -> list[Attributed]:
    """Return the files in an order of their own, the same bytes under the same name once."""
    once = {(one.digest, one.name): one for one in outcomes}
    return [once[key] for key in sorted(once)]


def _answers(files: Sequence[Attributed]) -> pl.DataFrame:
    """Return the rows of all files under each other, with the file each came in."""
    frames = [
        one.outcomes.with_columns(
            pl.lit(one.digest).alias("digest"),
            pl.lit(one.name).alias("result"),
            pl.lit(one.received, pl.Date).alias("received"),
        )
        for one in files
    ]
    empty = pl.DataFrame(schema={**OUTCOME, "digest": pl.String, "result": pl.String, "received": pl.Date})
    return pl.concat([empty, *frames])


def _expired(answers: pl.DataFrame, today: date) -> pl.DataFrame:
    late = ((pl.col("state") == LINKED) & (pl.col("expires_on") < pl.col("received").fill_null(today))).fill_null(False)
    return answers.with_columns(
        pl.when(late).then(pl.lit(breaks.LINK_EXPIRED)).otherwise("trouble").alias("trouble"),
        pl.when(late).then(pl.lit(BROKEN)).otherwise("state").alias("state"),
    )


def _union(answers: pl.DataFrame) -> pl.DataFrame:
    """Keep each different answer once: the n-th row of one content counts once over all files.

    Where one file could place such a row and another could not, the placed one stands.
    """
    one = ["run", "chunk", "content", "nth"]
    ordered = answers.sort([*KEY, "content", "nth", "received", "digest", "result"], nulls_last=True)
    different = ordered.unique([*one, "row", "state", "trouble"], keep="first", maintain_order=True)
    placed = pl.col("row").is_not_null()
    return different.filter(placed | ~placed.any().over(one))


def _rows(sent: pl.DataFrame, settled: pl.DataFrame) -> pl.DataFrame:
    best = settled.sort(
        ["state", "received", "expires_on", "url", "digest", "result", "position"],
        descending=[True, True, True, False, False, False, False],  # linked before error, later before earlier
        nulls_last=True,
    ).unique(KEY, keep="first", maintain_order=True)
    answer = ["state", "url", "expires_on", "expires_raw", "how", "reasons", "message", "shape", "result"]
    return (
        sent.select("run", pl.col("chunk", "row").cast(pl.UInt32), "position", "cuid", "last_4")
        .join(best.select(*KEY, *answer), on=KEY, how="left", maintain_order="left")
        .with_columns(pl.col("state").fill_null(AWAITING))
    )


def _chunks(rows: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    place = ["run", "chunk"]
    count = [(pl.col("state") == state).sum().alias(state) for state in (LINKED, ERROR, AWAITING)]
    told = answers.drop_nulls("chunk").group_by(place).agg(
        (pl.col("row").drop_nulls().n_unique() + pl.col("row").is_null().sum()).alias("answers"),
        pl.col("result").unique().sort().alias("results"),
    )  # fmt: skip
    state = (
        pl.when(pl.col("answers") == 0)
        .then(pl.lit("awaiting"))
        .when(pl.col("awaiting") == 0)
        .then(pl.lit("answered"))
        .otherwise(pl.lit("partial"))
    )
    return (
        rows.group_by(place)
        .agg(pl.len().alias("sent"), *count)
        .join(told, on=place, how="left")
        .with_columns(pl.col("answers").fill_null(0))
        .with_columns(state.alias("state"))
        .select(*place, "sent", "answers", "linked", "error", "awaiting", "state", "results")
        .sort(place)
    )


def _row_breaks(answers: pl.DataFrame) -> list[Break]:
    """One break per kind and chunk (or file, where it belongs to no chunk)."""
    troubled = answers.filter(pl.col("trouble").is_not_null())
    grouped = (
        troubled.with_columns(pl.when(pl.col("chunk").is_null()).then("result").alias("file"))
        .group_by("trouble", "run", "chunk", "file")
        .agg(pl.len().alias("count"), pl.col("row").drop_nulls().unique().sort().head(SHOWN))
    )
    return [
        found(name, count, file or _chunk_place(run, chunk, rows))
        for name, run, chunk, file, count, rows in grouped.iter_rows()
    ]


def _chunk_place(run: str, chunk: int, rows: Sequence[int] = ()) -> str:
    place = f"{run} chunk {chunk}".strip()
    return f"{place} rows {', '.join(map(str, rows))}" if rows else place


def _conflicts(settled: pl.DataFrame) -> list[Break]:
    """Name the rows that two answers speak of differently: two links, or a link and an error."""
    both = settled.group_by(KEY).agg(
        pl.col("url").drop_nulls().n_unique().alias("urls"), pl.col("state").n_unique().alias("states")
    )
    rows = both.filter((pl.col("urls") > 1) | (pl.col("states") > 1))
    grouped = rows.group_by("run", "chunk").agg(pl.len(), pl.col("row").sort().head(SHOWN))
    return [
        found(breaks.CONFLICTING_RESULT, count, _chunk_place(run, chunk, first))
        for run, chunk, count, first in grouped.iter_rows()
    ]


def _shorts(chunks: pl.DataFrame) -> list[Break]:
    short = chunks.filter((pl.col("answers") > 0) & (pl.col("answers") < pl.col("sent")))
    return [
        found(breaks.RESULT_SHORT, sent - answers, _chunk_place(run, chunk))
        for run, chunk, sent, answers in short.select("run", "chunk", "sent", "answers").iter_rows()
    ]


def _file_breaks(files: Sequence[Attributed]) -> list[Break]:
    """Name files that are damaged, repeat another, answer several chunks or carry another chunk's name."""
    findings: list[Break] = []
    seen: dict[str, str] = {}
    for one in files:
        findings += [
            found(breaks.DAMAGED_FILE, one.outcomes.height, f"{one.name} ({code})")
            for code in one.problems
            if code in DAMAGE
        ]
        chunks = one.outcomes.drop_nulls("row").select("run", "chunk").unique().rows()
        if len(chunks) > 1:
            findings.append(found(breaks.MERGED_FILE, len(chunks), one.name))
        if one.named and chunks and one.named not in chunks:
            findings.append(found(breaks.MISNAMED_FILE, one.outcomes.height, one.name))
        rows = digest_of(one.outcomes)
        if one.outcomes.height and rows in seen:
            findings.append(found(breaks.DUPLICATE_RESULT, one.outcomes.height, f"{one.name} = {seen[rows]}"))
        seen.setdefault(rows, one.name)
    return findings


DAMAGE = frozenset(
    (
        "file.content.empty",
        "file.header.unknown",
        "file.content.too_large",
        "file.gzip.truncated",
        "file.line.truncated",
    )
)
