"""Settle every sent row by all results: a pure function, whatever the order or repetition of the
result files.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.results.attribution import digest_of
from flows.results.decisions import SHOWN, covers, decided_rows, sort_breaks
from flows.results.opening import DAMAGE
from flows.results.sent_rows import SentRows, named_in, number_sent_rows
from flows.runs.closings import place_of
from flows.runs.frames import shaped
from flows.runs.outcomes import DECISION, OUTCOME, Attributed
from schemas import breaks
from schemas.breaks import Break, found
from schemas.ledger import AWAITING, BROKEN, ERROR, LINKED
from schemas.records import Closing

BROKEN_ROW = {
    "kind": pl.String(),
    "run": pl.String(),  # null: a result row of no run
    "chunk": pl.UInt32(),
    "row": pl.UInt32(),  # null: a result row that answers no sent row
    "cuid": pl.String(),
    "last_4": pl.String(),
    "result": pl.String(),  # name of the result file
    "position": pl.UInt32(),  # its data row
}
ENDS = (LINKED, ERROR, AWAITING)
NO_BROKEN = pl.DataFrame(schema=BROKEN_ROW)
REASONS = {name: one.reason for name, one in breaks.DECISIONS.items() if one.reason}


class Reconciled(NamedTuple):
    """The result of every sent row.

    `rows`: run, chunk, row, position, cuid, last_4, state (linked, error, awaiting), url, expires_on, expires_raw,
    how, reasons, message, shape, result (name of the result file), trouble (the break of a result
    that settled nothing), in the order of the sent rows.
    `chunks`: run, chunk, sent, answers (distinct result rows), links (distinct links received, accepted or not),
    linked, error, awaiting, state (answered, partial, awaiting), results (file names).
    `breaks`: open ones and notices, and `broken`, their rows (BROKEN_ROW). `closed`: those an operator closed.
    """

    rows: pl.DataFrame
    chunks: pl.DataFrame
    breaks: tuple[Break, ...]
    closed: tuple[tuple[Break, Closing], ...] = ()
    broken: pl.DataFrame = NO_BROKEN


def reconcile(
    sent: pl.DataFrame,
    outcomes: Sequence[Attributed],
    today: date,
    cancelled: Collection[tuple[str, int]] = (),
    closings: Sequence[Closing] = (),
) -> Reconciled:
    """Settle every submitted ledger row (row, cuid, last_4, chunk, position, run) by the attributed
    results.

    A link that had expired when its file arrived (`today` where that day is unknown) settles
    nothing, and so do results that contradict each other, until an operator decides. Rows
    attributed to runs that are not in `sent` are ignored. `cancelled`: run and number of cancelled
    chunks. `closings`: those of the run, where `sent` is of one.
    """
    numbered = number_sent_rows(sent)
    # earliest first, the same bytes under the same name once
    ordered = sorted(outcomes, key=lambda one: (one.received or date.max, one.digest, one.name))
    files = list({(one.digest, one.name): one for one in reversed(ordered)}.values())[::-1]
    decided = decided_rows(closings).join(numbered.rows.select("row", "spot"), on="row")
    found_answers = _expired(_union(_answers(files, numbered)), today)
    answers = _accepted(found_answers, decided)
    settled = answers.filter((pl.col("state") != BROKEN) & pl.col("spot").is_not_null())
    conflicts = _conflicts(settled, decided, closings)
    best = _best(_undisputed(settled, conflicts))
    best = pl.concat([best, _given_up(numbered, best, decided)], how="diagonal")
    chunks = _chunks(numbered, answers, best)
    broken = _broken(found_answers, conflicts, numbered, chunks, decided)
    covered = broken.join(decided, left_on=["kind", "row"], right_on=["kind", "row"], how="inner")
    still = broken.join(decided, on=["kind", "row"], how="anti")
    answered = chunks.filter(pl.col("answers") > 0).select("run", "chunk", "answers").iter_rows()
    uploaded = (
        found(breaks.RESULT_FOR_CANCELLED, answers, _place(chunk), run)
        for run, chunk, answers in answered
        if (run, chunk) in cancelled
    )
    findings = [*_file_breaks(files), *_row_breaks(still), *_shorts(still, chunks), *uploaded]
    open_breaks, closed = sort_breaks(sorted(findings), closings)
    # those closed row by row
    by_row = covered.group_by("closing", "run").agg(pl.col("row").n_unique()).iter_rows()
    gone = closed + tuple(
        (found(closings[at].name, rows, closings[at].place, run), closings[at])
        for at, run, rows in by_row
    )
    return Reconciled(
        _rows(numbered, best, answers, conflicts), chunks, open_breaks, gone, _open(still, gone)
    )


def with_single_links(settled: Reconciled, alone: pl.DataFrame) -> Reconciled:
    """Count the single links of `alone` (`flows.runs.attempts.single_links`), also for rows that
    were not sent.

    They take away neither a link that lasts longer nor a break: what the partner's file lacks, it
    still lacks.
    """
    ends = pl.col("expires_on").fill_null(date.max) >= pl.col("expires_on_alone").fill_null(
        date.max
    )
    lasting = settled.rows.filter(state=LINKED).join(alone, on="row", suffix="_alone").filter(ends)
    counted = alone.join(lasting, on="row", how="anti")
    if counted.is_empty():
        return settled
    linked = counted.drop("arrived").with_columns(state=pl.lit(LINKED), how=pl.lit("single"))
    # the partner's first word on the row stays
    rows = settled.rows.update(linked, on="row", how="full").sort("row")
    now = rows.group_by("chunk").agg(
        (pl.col("state") == one).sum().alias(f"{one}_now") for one in ENDS
    )
    chunks = settled.chunks.join(now, on="chunk", how="left", maintain_order="left").with_columns(
        pl.col("links") + pl.col(f"{LINKED}_now") - pl.col(LINKED),
        *(pl.col(f"{one}_now").alias(one) for one in ENDS),
    )
    done = (pl.col("state") == "partial") & (pl.col(AWAITING) == 0)
    states = pl.when(done).then(pl.lit("answered")).otherwise("state").alias("state")
    return settled._replace(
        rows=rows, chunks=chunks.with_columns(states).select(settled.chunks.columns)
    )


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
        .join(
            sent.rows.select("place", "row", "spot"),
            on=["place", "row"],
            how="left",
            maintain_order="left",
        )
    )


def _union(answers: pl.DataFrame) -> pl.DataFrame:
    """Keep each distinct answer once: the n-th row of the same content counts once over all files.

    A placed row is preferred to one that could not be placed. Files of one chunk without a placed
    row in common are different parts of its result: equal rows in them are different answers.
    """
    if answers["spot"].is_unique().all() and not answers["spot"].has_nulls():
        return answers  # the usual night: every row is answered once
    one = ["place", "part", "content", "nth"]
    parted = answers.join(
        _parts(answers), on=["place", "file"], how="left", maintain_order="left"
    ).with_columns(pl.col("part").fill_null(pl.col("part").min().over("place")))
    different = parted.unique([*one, "spot", "trouble"], keep="first", maintain_order=True)
    placed = different.filter(pl.col("spot").is_not_null()).select(one)
    lost = different.filter(pl.col("spot").is_null()).join(
        placed, on=one, how="anti", nulls_equal=True
    )
    return pl.concat([different.filter(pl.col("spot").is_not_null()), lost]).drop("part")


def _parts(answers: pl.DataFrame) -> pl.DataFrame:
    """Return place, file, part: files that share a sent row are copies of one part, numbered after
    the first.
    """
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


def _accepted(answers: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Return the answers, those with a link and an error as it was decided which of the two
    counts.
    """
    ways = decided.filter(kind=breaks.URL_AND_ERROR).filter(
        pl.col("decision").is_in([breaks.LINK, breaks.ERROR])
    )
    if ways.is_empty():
        return answers
    link, trouble = pl.col("decision") == breaks.LINK, pl.col("trouble") == breaks.URL_AND_ERROR
    counts = trouble & pl.when(link).then(pl.col("url").is_not_null()).otherwise(
        pl.col("decision").is_not_null()
    )
    return (
        answers.join(ways.select("spot", "decision"), on="spot", how="left", maintain_order="left")
        .with_columns(
            pl.when(counts).then(pl.when(link).then(pl.lit(LINKED)).otherwise(pl.lit(ERROR))).otherwise("state").alias("state"),
            pl.when(~counts).then("trouble").alias("trouble"),
            pl.when(~(counts & ~link)).then("url").alias("url"),
            *(pl.when(~(counts & link)).then(name).alias(name) for name in ("reasons", "message", "shape")),
        )
        .drop("decision")
    )  # fmt: skip


def _conflicts(
    settled: pl.DataFrame, decided: pl.DataFrame, closings: Sequence[Closing]
) -> pl.DataFrame:
    """Return the rows with different answers (spot, run, chunk, row, cuid, last_4) and which of
    them counts, if any.
    """
    reported = settled.filter(pl.col("spot").is_duplicated()).group_by(
        "spot", "run", "chunk", "row", "cuid", "last_4"
    )
    ways = pl.struct("state", "url").n_unique()
    rows = (
        reported.agg(ways.alias("ways"), pl.col("result").last())
        .filter(pl.col("ways") > 1)
        .drop("ways")
        .sort("row")
    )
    ours = decided.filter(kind=breaks.CONFLICTING_RESULT).select("spot", "decision")
    named = rows.join(ours, on="spot", how="left", maintain_order="left")
    linked = [  # closed by an earlier version: the link counted
        one.place
        for one in _row_breaks(
            named.filter(pl.col("decision").is_null()).with_columns(
                kind=pl.lit(breaks.CONFLICTING_RESULT)
            )
        )
        if any(covers(closing, one) for closing in closings)
    ]
    earlier = pl.col("decision").is_null() & pl.format("chunk {}", "chunk").is_in(
        [place_of(one) for one in linked]
    )
    return named.with_columns(
        pl.when(earlier).then(pl.lit(breaks.LINK)).otherwise("decision").alias("decision")
    )


def _undisputed(settled: pl.DataFrame, conflicts: pl.DataFrame) -> pl.DataFrame:
    """Return the answers that count: of those that contradict each other, the ones decided for."""
    if conflicts.is_empty():
        return settled
    state = {breaks.LINK: LINKED, breaks.ERROR: ERROR}
    counts = conflicts.select(
        "spot", counts=pl.col("decision").replace_strict(state, default="", return_dtype=pl.String)
    )
    joined = settled.join(counts, on="spot", how="left", maintain_order="left")
    return joined.filter(pl.col("counts").is_null() | (pl.col("counts") == pl.col("state"))).drop(
        "counts"
    )


def _given_up(sent: SentRows, best: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without an answer that count as errors since an operator decided so."""
    code = pl.col("decision").replace_strict(REASONS, default=None, return_dtype=pl.String)
    rows = (
        decided.with_columns(code.alias("shape"))
        .drop_nulls("shape")
        .unique("spot", keep="last", maintain_order=True)
    )
    return (
        rows.join(best, on="spot", how="anti")
        .join(sent.rows.select("spot", "place"), on="spot")
        .select(
            *("spot", "place", "shape"),
            pl.lit(ERROR).alias("state"),
            pl.lit(DECISION).alias("how"),
            pl.concat_list("shape").alias("reasons"),
            pl.col("note").alias("message"),
        )
    )


def _rows(
    sent: SentRows, best: pl.DataFrame, answers: pl.DataFrame, conflicts: pl.DataFrame
) -> pl.DataFrame:
    answer = [
        "state",
        "url",
        "expires_on",
        "expires_raw",
        "how",
        "reasons",
        "message",
        "shape",
        "result",
    ]
    broken = answers.filter(pl.col("spot").is_not_null() & (pl.col("state") == BROKEN)).select(
        "spot", "trouble"
    )
    disputed = conflicts.select("spot", pl.lit(breaks.CONFLICTING_RESULT).alias("trouble"))
    every = pl.concat([broken, disputed]).unique("spot", keep="last", maintain_order=True)
    return (
        sent.rows.join(best.select("spot", *answer), on="spot", how="left", maintain_order="left")
        .join(every.join(best, on="spot", how="anti"), on="spot", how="left", maintain_order="left")
        .with_columns(pl.col("state").fill_null(AWAITING))
        .select(
            "run",
            "chunk",
            "row",
            pl.col("sent_at").alias("position"),
            "cuid",
            "last_4",
            *answer,
            "trouble",
        )
    )


def _best(settled: pl.DataFrame) -> pl.DataFrame:
    """Return one answer per row: a link before an error, a later file before an earlier one."""
    twice = pl.col("spot").is_duplicated()
    ordered = settled.filter(twice).sort(
        ["state", "received", "expires_on", "file", "position"],
        descending=[True, True, True, True, False],
        nulls_last=True,
    )
    return pl.concat(
        [settled.filter(~twice), ordered.unique("spot", keep="first", maintain_order=True)]
    )


def _chunks(sent: SentRows, answers: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
    rows = pl.col("spot").drop_nulls().n_unique() + pl.col("spot").is_null().sum()
    # its url is not stored
    refused = pl.when(pl.col("url").is_null()).then(pl.struct("content", "nth"))
    links = pl.struct("spot", "url", refused.alias("refused")).filter("has_link").n_unique()
    names = pl.col("result").unique().sort()
    reported = answers.group_by("place").agg(
        rows.alias("answers"), links.alias("links"), names.alias("results")
    )
    states = best.group_by("place").agg(
        (pl.col("state") == state).sum().alias(state) for state in (LINKED, ERROR)
    )
    state = (
        pl.when(pl.col(AWAITING) == 0).then(pl.lit("answered"))
        .when(pl.col("answers") == 0).then(pl.lit(AWAITING))
        .otherwise(pl.lit("partial"))
    )  # fmt: skip
    return (
        sent.places.join(reported, on="place", how="left")
        .join(states, on="place", how="left")
        .with_columns(pl.col("answers", "links", LINKED, ERROR).fill_null(0))
        .with_columns((pl.col("sent") - pl.col(LINKED) - pl.col(ERROR)).alias(AWAITING))
        .with_columns(state.alias("state"))
        .select(
            "run", "chunk", "sent", "answers", "links", LINKED, ERROR, AWAITING, "state", "results"
        )
        .sort("run", "chunk")
    )


def _broken(
    answers: pl.DataFrame,
    conflicts: pl.DataFrame,
    sent: SentRows,
    chunks: pl.DataFrame,
    decided: pl.DataFrame,
) -> pl.DataFrame:
    """Return the rows of every break of rows (BROKEN_ROW), decided or not."""
    troubled = answers.filter(pl.col("trouble").is_not_null()).with_columns(kind="trouble")
    short = chunks.filter((pl.col("answers") > 0) & (pl.col("answers") < pl.col("sent"))).select(
        "run", "chunk"
    )
    # also of a chunk without any result
    given = decided.filter(kind=breaks.RESULT_SHORT).select("spot")
    unanswered = sent.rows.join(answers.drop_nulls("spot"), on="spot", how="anti")
    lacking = pl.concat(
        [
            unanswered.join(short, on=["run", "chunk"], how="semi"),
            unanswered.join(given, on="spot", how="semi"),
        ]
    )
    frames = [
        troubled,
        conflicts.with_columns(kind=pl.lit(breaks.CONFLICTING_RESULT)),
        lacking.unique("spot", maintain_order=True).with_columns(kind=pl.lit(breaks.RESULT_SHORT)),
    ]
    return pl.concat([NO_BROKEN, *(shaped(frame, BROKEN_ROW) for frame in frames)])


def _row_breaks(broken: pl.DataFrame) -> Iterator[Break]:
    """Yield one break per kind and chunk, or per kind and file for rows of no chunk."""
    grouped = (
        broken.filter(pl.col("kind") != breaks.RESULT_SHORT)
        .with_columns(pl.when(pl.col("chunk").is_null()).then("result").alias("homeless"))
        .group_by("kind", "run", "chunk", "homeless")
        .agg(pl.len(), pl.col("row").drop_nulls().unique().sort().head(SHOWN))
    )
    for name, run, chunk, homeless, count, rows in grouped.iter_rows():
        yield found(name, count, homeless or _place(chunk, rows), run or "")


def _place(chunk: int, rows: Sequence[int] = ()) -> str:
    return f"chunk {chunk}, rows {', '.join(map(str, rows))}" if rows else f"chunk {chunk}"


def _shorts(broken: pl.DataFrame, chunks: pl.DataFrame) -> Iterator[Break]:
    """Yield the chunks that lack result rows: as many as rows without one, less the rows that fit
    none.
    """
    lacking = (
        broken.filter(kind=breaks.RESULT_SHORT).group_by("run", "chunk").agg(pl.len().alias("rows"))
    )
    short = lacking.join(chunks, on=["run", "chunk"]).select(
        "run", "chunk", "rows", short=pl.col("sent") - pl.col("answers")
    )
    for run, chunk, rows, number in short.iter_rows():
        yield found(breaks.RESULT_SHORT, min(rows, number), _place(chunk), run)


def _open(still: pl.DataFrame, closed: Sequence[tuple[Break, Closing]]) -> pl.DataFrame:
    """Leave out the rows of breaks that were closed as a whole."""
    gone = [
        (one.name, place_of(one.place))
        for one, _ in closed
        if not _.covers or one.name in breaks.PLACELESS
    ]
    place = pl.coalesce(pl.format("chunk {}", "chunk"), "result")
    whole = pl.DataFrame(gone, {"kind": pl.String, "place": pl.String}, orient="row").unique()
    return (
        still.with_columns(place=place).join(whole, on=["kind", "place"], how="anti").drop("place")
    )


def _file_breaks(files: Sequence[Attributed]) -> Iterator[Break]:
    """Yield the files that are damaged, repeat another, answer several chunks or carry another
    chunk's name.
    """
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
    answered = rows.select("run", "chunk", "row", file=numbers).drop_nulls("row")
    for at, run, chunk in answered.select("file", "run", "chunk").unique().iter_rows():
        found[at].add((run, chunk))
    return found


def _stacked(files: Sequence[Attributed]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the rows of all files in one frame, and the file number of each row."""
    rows = pl.concat([pl.DataFrame(schema=OUTCOME), *(one.outcomes for one in files)])
    heights = [one.outcomes.height for one in files]
    return rows, pl.Series(np.repeat(np.arange(len(files), dtype=np.uint32), heights))
