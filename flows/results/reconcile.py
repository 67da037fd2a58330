"""Settle every sent row by all results: a pure function, whatever the order or repetition of the result files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.results.attribution import digest_of
from flows.results.decisions import SHOWN
from flows.results.match import SentRows, named_in, number_sent_rows
from flows.results.opening import DAMAGE
from flows.runs.outcomes import OUTCOME, Attributed
from schemas import breaks
from schemas.breaks import Break, found
from schemas.ledger import AWAITING, BROKEN, ERROR, LINKED


class Reconciled(NamedTuple):
    """The result of every sent row.

    `rows`: run, chunk, row, position, cuid, last_4, state (linked, error, awaiting), url, expires_on, expires_raw,
    how, reasons, message, shape, result (name of the result file), trouble (the break of a result that settled
    nothing), in the order of the sent rows.
    `chunks`: run, chunk, sent, answers (distinct result rows), links (distinct links received, accepted or not),
    linked, error, awaiting, state (answered, partial, awaiting), results (file names).
    """

    rows: pl.DataFrame
    chunks: pl.DataFrame
    breaks: tuple[Break, ...]


def reconcile(
    sent: pl.DataFrame, outcomes: Sequence[Attributed], today: date, cancelled: Collection[tuple[str, int]] = ()
) -> Reconciled:
    """Settle every submitted ledger row (row, cuid, last_4, chunk, position[, run]) by the attributed results.

    A link that had expired when its file arrived (`today` where that day is unknown) settles nothing.
    Rows attributed to runs that are not in `sent` are ignored. `cancelled`: run and number of cancelled chunks.
    """
    numbered = number_sent_rows(sent)
    # earliest first, the same bytes under the same name once
    ordered = sorted(outcomes, key=lambda one: (one.received or date.max, one.digest, one.name))
    files = list({(one.digest, one.name): one for one in reversed(ordered)}.values())[::-1]
    answers = _expired(_union(_answers(files, numbered)), today)
    settled = answers.filter((pl.col("state") != BROKEN) & pl.col("spot").is_not_null())
    best = _best(settled)
    chunks = _chunks(numbered, answers, best)
    findings = [*_file_breaks(files), *_row_breaks(answers), *_conflicts(settled), *_shorts(chunks)]
    findings += _uploaded(chunks, cancelled)
    return Reconciled(_rows(numbered, best, answers), chunks, tuple(sorted(findings)))


def _answers(files: Sequence[Attributed], sent: SentRows) -> pl.DataFrame:
    """Return the rows of all files in one frame, with the numbers of the sent rows they answer."""
    facts = pl.DataFrame(
        [(at, one.name, one.received) for at, one in enumerate(files)],
        {"file": pl.UInt32, "result": pl.String, "received": pl.Date},
        orient="row",
    )
    rows, numbers = _stacked(files)
    return (
        pl.concat([rows, facts[numbers]], how="horizontal")
        .join(sent.places.drop("sent"), on=["run", "chunk"], how="left", maintain_order="left")
        .filter(pl.col("place").is_not_null() | pl.col("run").is_null())
        .join(sent.rows.select("place", "row", "spot"), on=["place", "row"], how="left", maintain_order="left")
    )


def _union(answers: pl.DataFrame) -> pl.DataFrame:
    """Keep each distinct answer once: the n-th row of the same content counts once over all files.

    A placed row is preferred to one that could not be placed. Files of one chunk without a placed row in common are
    different parts of its result: equal rows in them are different answers.
    """
    if answers["spot"].is_unique().all() and not answers["spot"].has_nulls():
        return answers  # the usual night: every row is answered once
    one = ["place", "part", "content", "nth"]
    parted = answers.join(_parts(answers), on=["place", "file"], how="left", maintain_order="left").with_columns(
        pl.col("part").fill_null(pl.col("part").min().over("place"))
    )
    different = parted.unique([*one, "spot", "trouble"], keep="first", maintain_order=True)
    placed = different.filter(pl.col("spot").is_not_null()).select(one)
    lost = different.filter(pl.col("spot").is_null()).join(placed, on=one, how="anti", nulls_equal=True)
    return pl.concat([different.filter(pl.col("spot").is_not_null()), lost]).drop("part")


def _parts(answers: pl.DataFrame) -> pl.DataFrame:
    """Return place, file, part: files that share a sent row are copies of one part, numbered after the first."""
    spots = answers.filter(pl.col("spot").is_not_null()).select("place", "file", "spot")
    first = spots.group_by("spot").agg(pl.col("file").min().alias("part"))
    return spots.join(first, on="spot").group_by("place", "file").agg(pl.col("part").min())


def _expired(answers: pl.DataFrame, today: date) -> pl.DataFrame:
    """Mark links that had expired on arrival as broken."""
    arrived = pl.col("received").fill_null(today)
    late = ((pl.col("state") == LINKED) & (pl.col("expires_on") < arrived)).fill_null(False)
    return answers.with_columns(
        pl.when(late).then(pl.lit(breaks.LINK_EXPIRED)).otherwise("trouble").alias("trouble"),
        pl.when(late).then(pl.lit(BROKEN)).otherwise("state").alias("state"),
    )


def _rows(sent: SentRows, best: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    answer = ["state", "url", "expires_on", "expires_raw", "how", "reasons", "message", "shape", "result"]
    broken = answers.filter(pl.col("spot").is_not_null() & (pl.col("state") == BROKEN)).select("spot", "trouble")
    unsettled = broken.unique("spot", keep="last", maintain_order=True).join(best, on="spot", how="anti")
    return (
        sent.rows.join(best.select("spot", *answer), on="spot", how="left", maintain_order="left")
        .join(unsettled, on="spot", how="left", maintain_order="left")
        .with_columns(pl.col("state").fill_null(AWAITING))
        .select("run", "chunk", "row", pl.col("sent_at").alias("position"), "cuid", "last_4", *answer, "trouble")
    )


def _best(settled: pl.DataFrame) -> pl.DataFrame:
    """Return one answer per row: a link before an error, a later file before an earlier one."""
    twice = pl.col("spot").is_duplicated()
    ordered = settled.filter(twice).sort(
        ["state", "received", "expires_on", "file", "position"],
        descending=[True, True, True, True, False],
        nulls_last=True,
    )
    return pl.concat([settled.filter(~twice), ordered.unique("spot", keep="first", maintain_order=True)])


def _chunks(sent: SentRows, answers: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
    rows = pl.col("spot").drop_nulls().n_unique() + pl.col("spot").is_null().sum()
    refused = pl.when(pl.col("url").is_null()).then(pl.struct("content", "nth"))  # its url is not stored
    links = pl.struct("spot", "url", refused.alias("refused")).filter("has_link").n_unique()
    names = pl.col("result").unique().sort()
    reported = answers.group_by("place").agg(rows.alias("answers"), links.alias("links"), names.alias("results"))
    states = best.group_by("place").agg((pl.col("state") == state).sum().alias(state) for state in (LINKED, ERROR))
    state = (
        pl.when(pl.col("answers") == 0)
        .then(pl.lit(AWAITING))
        .when(pl.col(AWAITING) == 0)
        .then(pl.lit("answered"))
        .otherwise(pl.lit("partial"))
    )
    return (
        sent.places.join(reported, on="place", how="left")
        .join(states, on="place", how="left")
        .with_columns(pl.col("answers", "links", LINKED, ERROR).fill_null(0))
        .with_columns((pl.col("sent") - pl.col(LINKED) - pl.col(ERROR)).alias(AWAITING))
        .with_columns(state.alias("state"))
        .select("run", "chunk", "sent", "answers", "links", LINKED, ERROR, AWAITING, "state", "results")
        .sort("run", "chunk")
    )


def _row_breaks(answers: pl.DataFrame) -> Iterator[Break]:
    """Yield one break per kind and chunk, or per kind and file for rows of no chunk."""
    with_problems = answers.filter(pl.col("trouble").is_not_null())
    grouped = (
        with_problems.with_columns(pl.when(pl.col("place").is_null()).then("result").alias("homeless"))
        .group_by("trouble", "run", "chunk", "homeless")
        .agg(pl.len(), pl.col("row").drop_nulls().unique().sort().head(SHOWN))
    )
    for name, run, chunk, homeless, count, rows in grouped.iter_rows():
        yield found(name, count, homeless or _place(chunk, rows), run or "")


def _place(chunk: int, rows: Sequence[int] = ()) -> str:
    return f"chunk {chunk}, rows {', '.join(map(str, rows))}" if rows else f"chunk {chunk}"


def _conflicts(settled: pl.DataFrame) -> Iterator[Break]:
    """Yield the rows with conflicting answers: two links, or a link and an error."""
    reported = settled.filter(pl.col("spot").is_duplicated()).group_by("spot", "run", "chunk", "row")
    ways = pl.struct("state", "url").n_unique()
    rows = reported.agg(ways.alias("ways")).filter(pl.col("ways") > 1)
    grouped = rows.group_by("run", "chunk").agg(pl.len(), pl.col("row").sort().head(SHOWN))
    for run, chunk, count, first in grouped.iter_rows():
        yield found(breaks.CONFLICTING_RESULT, count, _place(chunk, first), run)


def _shorts(chunks: pl.DataFrame) -> Iterator[Break]:
    short = chunks.filter((pl.col("answers") > 0) & (pl.col("answers") < pl.col("sent")))
    for run, chunk, sent, answers in short.select("run", "chunk", "sent", "answers").iter_rows():
        yield found(breaks.RESULT_SHORT, sent - answers, _place(chunk), run)


def _uploaded(chunks: pl.DataFrame, cancelled: Collection[tuple[str, int]]) -> Iterator[Break]:
    """Yield the cancelled chunks with a result."""
    for run, chunk, answers in chunks.filter(pl.col("answers") > 0).select("run", "chunk", "answers").iter_rows():
        if (run, chunk) in cancelled:
            yield found(breaks.RESULT_FOR_CANCELLED, answers, _place(chunk), run)


def _file_breaks(files: Sequence[Attributed]) -> Iterator[Break]:
    """Yield the files that are damaged, repeat another, answer several chunks or carry another chunk's name."""
    seen: dict[str, str] = {}
    for one, places in zip(files, _places(files), strict=True):
        height = one.outcomes.height
        for code in one.problems:
            if code in DAMAGE:
                yield found(breaks.DAMAGED_FILE, height, f"{one.name} ({code})")
        if len(places) > 1:
            yield found(breaks.MERGED_FILE, len(places), one.name)
        if one.named and places and one.named not in places:
            yield found(breaks.MISNAMED_FILE, height, one.name)
        if not one.named and places and named_in(one.name):
            yield found(breaks.STRANGE_NAME, height, one.name)
        rows = digest_of(one.outcomes)
        if height and rows in seen:
            yield found(breaks.DUPLICATE_RESULT, height, f"{one.name}, the same as {seen[rows]}")
        seen.setdefault(rows, one.name)


def _places(files: Sequence[Attributed]) -> list[set[tuple[str, int]]]:
    """Return the chunks that the rows of each file answer."""
    found: list[set[tuple[str, int]]] = [set() for _ in files]
    rows, numbers = _stacked(files)
    answered = rows.select("run", "chunk", "row", file=numbers).drop_nulls("row").select("file", "run", "chunk")
    # consecutive rows mostly have the same file, run and chunk
    new = pl.any_horizontal(pl.all().ne_missing(pl.all().shift()))
    for at, run, chunk in answered.filter(new).iter_rows():
        found[at].add((run, chunk))
    return found


def _stacked(files: Sequence[Attributed]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the rows of all files in one frame, and the file number of each row."""
    rows = pl.concat([pl.DataFrame(schema=OUTCOME), *(one.outcomes for one in files)])
    heights = [one.outcomes.height for one in files]
    return rows, pl.Series(np.repeat(np.arange(len(files), dtype=np.uint32), heights))
