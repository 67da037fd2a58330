"""Settle every sent row by all results: a pure function, whatever their order or repetition.

What does not fit is found in `breaks`, what operators decided about it is applied in `disputes`.

A link that had expired is judged by the day its file arrived, so that a rebuilt report says the
same. A link requested singly counts in the rows of its run, also for a row that was not sent; the
partner's first word on the row stays beside it.
"""

from collections.abc import Collection, Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.results.breaks import (
    NO_BROKEN,
    broken_rows,
    cancelled_breaks,
    expiry_breaks,
    file_breaks,
    row_breaks,
    short_breaks,
    stacked,
    without_closed,
)
from flows.results.decisions import decided_rows, sort_breaks
from flows.results.disputes import (
    conflicting_rows,
    decided_answers,
    given_up_rows,
    undisputed_answers,
    with_erased,
)
from flows.results.opening import TRUNCATED
from flows.results.sent_rows import SentRows, number_sent_rows
from flows.runs.outcomes import Attributed
from schemas import breaks
from schemas.breaks import Break, break_of
from schemas.ledger import AWAITING, BROKEN, ERROR, LINKED
from schemas.records import Closing

ENDS = (LINKED, ERROR, AWAITING)
_ANSWER = [
    "state",
    "url",
    "expires_on",
    "expires_form",
    "how",
    "reasons",
    "message",
    "shape",
    "result",
]


class Reconciled(NamedTuple):
    """The result of every sent row.

    `rows`: run, chunk, row, position, cuid, last_4, state (linked, error, awaiting), url,
    expires_on, expires_form (where the day could not be read), how, reasons, message, shape, result
    (name of the result file), trouble (the break of a result that settled nothing), in the order of
    the sent rows.
    `chunks`: run, chunk, sent, answers (distinct result rows), links (distinct links received,
    accepted or not), linked, error, awaiting, state (answered, partial, awaiting), results (file
    names).
    `breaks`: open ones and notices, and `broken`, their rows (BROKEN_ROW). `closed`: those an
    operator closed.
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
    """Settle every submitted ledger row by the attributed results.

    `sent`: row, cuid, last_4, chunk, position, run. A link that had expired when its file arrived
    (`today` where that day is unknown) settles nothing, and so do results that contradict each
    other, until an operator decides. Rows attributed to runs that are not in `sent` are ignored.
    `cancelled`: run and number of cancelled chunks. `closings`: those of the run, where `sent` is
    of one.
    """
    numbered = number_sent_rows(sent)
    files = _distinct(outcomes)
    decided = decided_rows(closings).join(numbered.rows.select("row", "spot"), on="row")
    answered = with_erased(_answers(files, numbered), numbered)
    received = _without_cut(_expired(_union(answered), today), files)
    answers = decided_answers(received, decided)
    settled = answers.filter((pl.col("state") != BROKEN) & pl.col("spot").is_not_null())
    conflicts = conflicting_rows(settled, decided)
    counted = _best(undisputed_answers(settled, conflicts))
    best = pl.concat([counted, given_up_rows(numbered, counted, decided)], how="diagonal")
    chunks = _chunks(numbered, answers, best)
    broken = broken_rows(received, conflicts, numbered, chunks, decided)
    still_broken = broken.join(decided, on=["kind", "row"], how="anti")
    all_breaks = [
        *file_breaks(files, chunks),
        *row_breaks(still_broken),
        *short_breaks(still_broken, chunks),
        *cancelled_breaks(chunks, cancelled),
        *expiry_breaks(best),
    ]
    open_breaks, closed = sort_breaks(sorted(all_breaks), closings)
    closed += _closed_by_row(broken, decided, closings)
    return Reconciled(
        rows=_rows(numbered, best, answers, conflicts),
        chunks=chunks,
        breaks=open_breaks,
        closed=closed,
        broken=without_closed(still_broken, closed),
    )


def _distinct(outcomes: Sequence[Attributed]) -> list[Attributed]:
    """Return the files by day of arrival, the same bytes under the same name once.

    A file that came again counts as of its first day, and in the order of the last. With other
    content it comes before what superseded it on the same day.
    """
    by_arrival = sorted(
        outcomes,
        key=lambda file: (
            file.received or date.max,
            not file.superseded,
            file.digest,
            file.name,
        ),
    )
    latest_first = {(file.digest, file.name): file for file in reversed(by_arrival)}
    return list(latest_first.values())[::-1]


def _closed_by_row(
    broken: pl.DataFrame, decided: pl.DataFrame, closings: Sequence[Closing]
) -> tuple[tuple[Break, Closing], ...]:
    """Return the breaks that were closed row by row, each with its closing."""
    counts = (
        broken.join(decided, on=["kind", "row"])
        .group_by("closing", "run")
        .agg(pl.col("row").n_unique())
    )
    closed = list[tuple[Break, Closing]]()
    for number, run, rows in counts.iter_rows():
        closing = closings[number]
        closed.append((break_of(closing.name, rows, closing.place, run), closing))
    return tuple(closed)


def with_single_links(settled: Reconciled, links: pl.DataFrame) -> Reconciled:
    """Count single links (`StoredRun.single_links`), also for rows that were not sent.

    They take away neither a link that lasts longer nor a break: what the partner's file lacks, it
    still lacks.
    """
    own_end = pl.col("expires_on").fill_null(date.max)
    single_end = pl.col("expires_on_single").fill_null(date.max)
    lasting = (
        settled.rows.filter(state=LINKED)
        .join(links, on="row", suffix="_single")
        .filter(own_end >= single_end)
    )
    counted = links.join(lasting, on="row", how="anti")
    if counted.is_empty():
        return settled
    linked = counted.drop("arrived").with_columns(state=pl.lit(LINKED), how=pl.lit("single"))
    # the partner's first word on the row stays
    rows = settled.rows.update(linked, on="row", how="full").sort("row")
    return settled._replace(rows=rows, chunks=_recounted(settled.chunks, rows))


def _recounted(chunks: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return chunks with the states of their rows, and links, as the rows are now."""
    counts = rows.group_by("chunk").agg(
        (pl.col("state") == state).sum().alias(f"{state}_now") for state in ENDS
    )
    links = pl.col("links") + pl.col(f"{LINKED}_now") - pl.col(LINKED)
    done = (pl.col("state") == "partial") & (pl.col(AWAITING) == 0)
    return (
        chunks.join(counts, on="chunk", how="left", maintain_order="left")
        .with_columns(links, *(pl.col(f"{state}_now").alias(state) for state in ENDS))
        .with_columns(pl.when(done).then(pl.lit("answered")).otherwise("state").alias("state"))
        .select(chunks.columns)
    )


def _answers(files: Sequence[Attributed], sent: SentRows) -> pl.DataFrame:
    """Return the rows of all files in one frame, with the numbers of the sent rows they answer."""
    facts = pl.DataFrame(
        [(number, file.name, file.received) for number, file in enumerate(files)],
        {"file": pl.UInt32, "result": pl.String, "received": pl.Date},
        orient="row",
    )
    rows, numbers = stacked(files)
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
    """Keep each distinct answer once.

    The n-th row of the same content counts once over all files. A placed row is preferred to one
    that could not be placed. Files of one chunk without a placed row in common are different parts
    of its result: equal rows in them are different answers.
    """
    if answers["spot"].is_unique().all() and not answers["spot"].has_nulls():
        return answers  # the usual night: every row is answered once
    same_answer = ["place", "part", "content", "nth"]
    parted = answers.join(
        _parts(answers), on=["place", "file"], how="left", maintain_order="left"
    ).with_columns(pl.col("part").fill_null(pl.col("part").min().over("place")))
    different = parted.unique([*same_answer, "spot", "trouble"], keep="first", maintain_order=True)
    placed = different.filter(pl.col("spot").is_not_null())
    lost = different.filter(pl.col("spot").is_null()).join(
        placed.select(same_answer), on=same_answer, how="anti", nulls_equal=True
    )
    return pl.concat([placed, lost]).drop("part")


def _parts(answers: pl.DataFrame) -> pl.DataFrame:
    """Return place, file, part: files that share a sent row are copies of one part.

    A part is numbered after its first file.
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


def _without_cut(answers: pl.DataFrame, files: Sequence[Attributed]) -> pl.DataFrame:
    """Leave out what is cut where another row has it whole.

    That is the row in the middle of which a file ends, and a link that is cut.
    """
    truncated = [number for number, file in enumerate(files) if TRUNCATED in file.problems]
    is_cut_link = pl.col("trouble") == breaks.LINK_CUT
    if not truncated and answers.filter(is_cut_link).is_empty():
        return answers
    is_last = pl.col("position") == pl.col("position").max().over("file")
    is_empty = pl.col("trouble") == breaks.NEITHER_URL_NOR_ERROR
    is_cut_row = pl.col("file").is_in(truncated) & is_last & is_empty
    settled = answers.filter(pl.col("state") != BROKEN).drop_nulls("spot")
    is_settled = pl.col("spot").is_in(settled["spot"].implode())
    is_linked = pl.col("spot").is_in(settled.filter(state=LINKED)["spot"].implode())
    is_whole_elsewhere = (is_cut_row & is_settled) | (is_cut_link & is_linked)
    return answers.filter(~is_whole_elsewhere.fill_null(value=False))


def _rows(
    sent: SentRows, best: pl.DataFrame, answers: pl.DataFrame, conflicts: pl.DataFrame
) -> pl.DataFrame:
    """Return every sent row with its best answer, or the trouble of a row without one."""
    broken = answers.select("spot", "trouble").drop_nulls()
    disputed = conflicts.select("spot", pl.lit(breaks.CONFLICTING_RESULT).alias("trouble"))
    troubles = (
        pl.concat([broken, disputed])
        .unique("spot", keep="last", maintain_order=True)
        .join(best, on="spot", how="anti")
    )
    return (
        sent.rows.join(best.select("spot", *_ANSWER), on="spot", how="left", maintain_order="left")
        .join(troubles, on="spot", how="left", maintain_order="left")
        .with_columns(pl.col("state").fill_null(AWAITING))
        .select(
            "run",
            "chunk",
            "row",
            pl.col("sent_at").alias("position"),
            "cuid",
            "last_4",
            *_ANSWER,
            "trouble",
        )
    )


def _best(settled: pl.DataFrame) -> pl.DataFrame:
    """Return one answer per row: that of the latest file, of one day the link that lasts longest,
    of one file the first. What contradicts each other is decided by now, so a row has either links
    or errors.
    """
    has_several = pl.col("spot").is_duplicated()
    ordered = settled.filter(has_several).sort(
        ["received", "expires_on", "file", "position"],
        descending=[True, True, True, False],
        nulls_last=True,
    )
    best = ordered.unique("spot", keep="first", maintain_order=True)
    return pl.concat([settled.filter(~has_several), best])


def _chunks(sent: SentRows, answers: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
    """Return every chunk with its answers and the states of its rows."""
    rows = pl.col("spot").drop_nulls().n_unique() + pl.col("spot").is_null().sum()
    # its url is not stored
    refused = pl.when(pl.col("url").is_null()).then(pl.struct("content", "nth"))
    links = pl.struct("spot", "url", refused.alias("refused")).filter("has_link").n_unique()
    names = pl.col("result").unique().sort()
    received = answers.group_by("place").agg(
        rows.alias("answers"), links.alias("links"), names.alias("results")
    )
    states = best.group_by("place").agg(
        (pl.col("state") == state).sum().alias(state) for state in (LINKED, ERROR)
    )
    chunk_state = (
        pl.when(pl.col(AWAITING) == 0)
        .then(pl.lit("answered"))
        .when(pl.col("answers") == 0)
        .then(pl.lit(AWAITING))
        .otherwise(pl.lit("partial"))
    )
    return (
        sent.places.join(received, on="place", how="left")
        .join(states, on="place", how="left")
        .with_columns(pl.col("answers", "links", LINKED, ERROR).fill_null(0))
        .with_columns((pl.col("sent") - pl.col(LINKED) - pl.col(ERROR)).alias(AWAITING))
        .with_columns(chunk_state.alias("state"))
        .select(
            "run", "chunk", "sent", "answers", "links", LINKED, ERROR, AWAITING, "state", "results"
        )
        .sort("run", "chunk")
    )
