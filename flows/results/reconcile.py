"""Settle every sent row by all results: a pure function, whatever the order or repetition of the result files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.results.attribution import digest_of
from flows.results.decisions import SHOWN
from flows.results.match import SentRows, number_sent_rows
from flows.results.read import DAMAGE
from flows.runs.outcomes import OUTCOME, Attributed
from schemas import breaks
from schemas.breaks import Break, found
from schemas.ledger import AWAITING, BROKEN, ERROR, LINKED


class Reconciled(NamedTuple):
    """The result of every sent row.

    `rows`: run, chunk, row, position, cuid, last_4, state (linked, error, awaiting), url, expires_on, expires_raw,
    how, reasons, message, shape, result (name of the result file), in the order of the sent rows.
    `chunks`: run, chunk, sent, answers (distinct result rows), links (distinct links received, accepted or not),
    linked, error, awaiting, state (answered, partial, awaiting), results (file names).
    """

    rows: pl.DataFrame
    chunks: pl.DataFrame
    breaks: tuple[Break, ...]


def reconcile(sent: pl.DataFrame, outcomes: Sequence[Attributed], today: date) -> Reconciled:
    """Settle every submitted ledger row (row, cuid, last_4, chunk, position[, run]) by the attributed results.

    A link that had expired when its file arrived (`today` where that day is unknown) settles nothing.
    Rows attributed to runs that are not in `sent` are ignored.
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
    return Reconciled(_rows(numbered, best), chunks, tuple(sorted(findings)))


def with_single_links(settled: Reconciled, alone: pl.DataFrame) -> Reconciled:
    """Count the single links of `alone` (`flows.runs.links.single_links`), also for rows that were not sent.

    They take away neither a link that lasts longer nor a break: what the partner's file lacks, it still lacks.
    """
    ends = pl.col("expires_on").fill_null(date.max) >= pl.col("expires_on_alone").fill_null(date.max)
    lasting = settled.rows.filter(state=LINKED).join(alone, on="row", suffix="_alone").filter(ends)
    counted = alone.join(lasting, on="row", how="anti")
    if counted.is_empty():
        return settled
    before = settled.rows.join(counted, on="row", how="semi")
    linked = counted.drop("arrived").with_columns(state=pl.lit(LINKED), how=pl.lit("single"))
    rows = settled.rows.update(linked, on="row", how="full").sort("row")  # the partner's first word on the row stays
    gained = before.group_by("chunk").agg(
        (pl.col("state") == one).sum().alias(f"was_{one}") for one in (ERROR, AWAITING)
    )
    was = {one: pl.col(f"was_{one}").fill_null(0) for one in (ERROR, AWAITING)}
    both = pl.sum_horizontal(was.values())
    chunks = settled.chunks.join(gained, on="chunk", how="left", maintain_order="left").with_columns(
        *(pl.col(name) + both for name in ("links", LINKED)), *(pl.col(name) - gone for name, gone in was.items())
    )
    done = (pl.col("state") == "partial") & (pl.col(AWAITING) == 0)
    states = pl.when(done).then(pl.lit("answered")).otherwise("state").alias("state")
    return settled._replace(rows=rows, chunks=chunks.with_columns(states).select(settled.chunks.columns))


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


def _rows(sent: SentRows, best: pl.DataFrame) -> pl.DataFrame:
    answer = ["state", "url", "expires_on", "expires_raw", "how", "reasons", "message", "shape", "result"]
    return (
        sent.rows.join(best.select("spot", *answer), on="spot", how="left", maintain_order="left")
        .with_columns(pl.col("state").fill_null(AWAITING))
        .select("run", "chunk", "row", pl.col("sent_at").alias("position"), "cuid", "last_4", *answer)
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
