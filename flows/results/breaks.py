"""Where results do not fit what was sent: breaks of rows, chunks and files (`schemas.breaks`).

Which of several answers counts is decided in `reconcile`.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import polars as pl

from flows.results.attribution import digest_of
from flows.results.decisions import SHOWN
from flows.results.opening import DAMAGE
from flows.results.sent_rows import SentRows, named_in
from flows.runs.closings import place_of
from flows.runs.frames import shaped
from flows.runs.outcomes import OUTCOME, Attributed
from schemas import breaks
from schemas.breaks import Break, break_of
from schemas.ledger import AWAITING, LINKED
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
FORMS = 20  # of dates that cannot be read, each a break; the others are one
NO_BROKEN = pl.DataFrame(schema=BROKEN_ROW)


def broken_rows(
    answers: pl.DataFrame,
    conflicts: pl.DataFrame,
    sent: SentRows,
    chunks: pl.DataFrame,
    decided: pl.DataFrame,
) -> pl.DataFrame:
    """Return the rows of every break of rows (BROKEN_ROW), decided or not."""
    troubled = answers.filter(pl.col("trouble").is_not_null()).with_columns(kind="trouble")
    disputed = conflicts.with_columns(kind=pl.lit(breaks.CONFLICTING_RESULT))
    lacking = _lacking_rows(answers, sent, chunks, decided).with_columns(
        kind=pl.lit(breaks.RESULT_SHORT)
    )
    frames = [shaped(frame, BROKEN_ROW) for frame in (troubled, disputed, lacking)]
    return pl.concat([NO_BROKEN, *frames])


def _lacking_rows(
    answers: pl.DataFrame, sent: SentRows, chunks: pl.DataFrame, decided: pl.DataFrame
) -> pl.DataFrame:
    """Return the sent rows that the result of their chunk lacks, or that were decided as such."""
    is_short = (pl.col("answers") > 0) & (pl.col("answers") < pl.col("sent"))
    short = chunks.filter(is_short).select("run", "chunk")
    # also of a chunk without any result
    decided_short = decided.filter(kind=breaks.RESULT_SHORT).select("spot")
    unanswered = sent.rows.join(answers.drop_nulls("spot"), on="spot", how="anti")
    lacking = pl.concat(
        [
            unanswered.join(short, on=["run", "chunk"], how="semi"),
            unanswered.join(decided_short, on="spot", how="semi"),
        ]
    )
    return lacking.unique("spot", maintain_order=True)


def row_breaks(broken: pl.DataFrame) -> Iterator[Break]:
    """Yield one break per kind and chunk, or per kind and file for rows of no chunk."""
    grouped = (
        broken.filter(pl.col("kind") != breaks.RESULT_SHORT)
        .with_columns(pl.when(pl.col("chunk").is_null()).then("result").alias("homeless"))
        .group_by("kind", "run", "chunk", "homeless")
        .agg(pl.len(), pl.col("row").drop_nulls().unique().sort().head(SHOWN))
    )
    for name, run, chunk, homeless, count, rows in grouped.iter_rows():
        yield break_of(name, count, homeless or _place(chunk, rows), run or "")


def _place(chunk: int, rows: Sequence[int] = ()) -> str:
    if rows:
        return f"chunk {chunk}, rows {', '.join(map(str, rows))}"
    return f"chunk {chunk}"


def short_breaks(broken: pl.DataFrame, chunks: pl.DataFrame) -> Iterator[Break]:
    """Yield the chunks that lack result rows.

    As many as rows without one, less the rows that fit none.
    """
    lacking = (
        broken.filter(kind=breaks.RESULT_SHORT).group_by("run", "chunk").agg(pl.len().alias("rows"))
    )
    short = lacking.join(chunks, on=["run", "chunk"]).select(
        "run", "chunk", pl.min_horizontal("rows", pl.col("sent") - pl.col("answers"))
    )
    for run, chunk, rows in short.iter_rows():
        yield break_of(breaks.RESULT_SHORT, rows, _place(chunk), run)


def cancelled_breaks(
    chunks: pl.DataFrame, cancelled: Collection[tuple[str, int]]
) -> Iterator[Break]:
    """Yield the cancelled chunks, as run and number, that somebody uploaded: they have answers."""
    answered = chunks.filter(pl.col("answers") > 0).select("run", "chunk", "answers")
    for run, chunk, answers in answered.iter_rows():
        if (run, chunk) in cancelled:
            yield break_of(breaks.RESULT_FOR_CANCELLED, answers, _place(chunk), run)


def expiry_breaks(answers: pl.DataFrame) -> Iterator[Break]:
    """Yield the forms in which links say their end and that cannot be read, one break for each."""
    forms = answers.filter(state=LINKED).drop_nulls("expires_form")
    counts = forms["expires_form"].value_counts(sort=True)
    for form, rows in counts.head(FORMS).iter_rows():
        yield break_of(breaks.EXPIRY_UNREADABLE, rows, form)
    if counts.height > FORMS:
        others = sum(counts[FORMS:]["count"])
        yield break_of(breaks.EXPIRY_UNREADABLE, others, "other forms")


def without_closed(broken: pl.DataFrame, closed: Sequence[tuple[Break, Closing]]) -> pl.DataFrame:
    """Leave out the rows of breaks that were closed as a whole."""
    closed_places = [
        (break_.name, place_of(break_.place))
        for break_, closing in closed
        if not closing.covers or break_.name in breaks.PLACELESS
    ]
    place = pl.coalesce(pl.format("chunk {}", "chunk"), "result")
    whole = pl.DataFrame(closed_places, {"kind": pl.String, "place": pl.String}, orient="row")
    return (
        broken.with_columns(place=place)
        .join(whole.unique(), on=["kind", "place"], how="anti")
        .drop("place")
    )


def file_breaks(files: Sequence[Attributed], settled: pl.DataFrame) -> Iterator[Break]:
    """Yield the breaks of files, whatever their rows say.

    A file is damaged, repeats another, answers several chunks or carries another chunk's name. Of
    one that came again its last content counts. `settled`: the chunks, as `reconcile` counts them.
    """
    is_whole = (pl.col("answers") >= pl.col("sent")) & (pl.col(AWAITING) == 0)
    whole = set(settled.filter(is_whole).select("run", "chunk").iter_rows())
    seen: dict[str, str] = {}
    newest = [file for file in files if not file.superseded]
    for file, chunks in zip(newest, _answered_chunks(newest), strict=True):
        yield from _breaks_of(file, chunks, whole)
        height = file.outcomes.height
        rows = digest_of(file.outcomes)
        if height and rows in seen:
            place = f"{file.name}, the same as {seen[rows]}"
            yield break_of(breaks.DUPLICATE_RESULT, height, place)
        seen.setdefault(rows, file.name)


def _breaks_of(
    file: Attributed, chunks: set[tuple[str, int]], whole: set[tuple[str, int]]
) -> Iterator[Break]:
    """Yield the breaks of a file that answers these chunks; `whole`: those with every answer."""
    height = file.outcomes.height
    is_made_up_for = bool(chunks) and chunks <= whole
    damaged = breaks.DAMAGED_COPY if is_made_up_for else breaks.DAMAGED_FILE
    for problem in file.problems:
        if problem in DAMAGE:
            yield break_of(damaged, height, f"{file.name} ({problem})")
    if not chunks:
        return
    if len(chunks) > 1:
        yield break_of(breaks.MERGED_FILE, len(chunks), file.name)
    if file.named:
        if file.named not in chunks:
            yield break_of(breaks.MISNAMED_FILE, height, file.name)
    elif named_in(file.name):
        yield break_of(breaks.STRANGE_NAME, height, file.name)


def _answered_chunks(files: Sequence[Attributed]) -> list[set[tuple[str, int]]]:
    """Return the chunks (run and number) that the rows of each file answer."""
    chunks: list[set[tuple[str, int]]] = [set() for _ in files]
    rows, numbers = stacked(files)
    answered = rows.select("run", "chunk", "row", file=numbers).drop_nulls("row")
    for file, run, chunk in answered.select("file", "run", "chunk").unique().iter_rows():
        chunks[file].add((run, chunk))
    return chunks


def stacked(files: Sequence[Attributed]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the rows of all files in one frame, and the file number of each row."""
    rows = pl.concat([pl.DataFrame(schema=OUTCOME), *(file.outcomes for file in files)])
    heights = [file.outcomes.height for file in files]
    return rows, pl.Series(np.repeat(np.arange(len(files), dtype=np.uint32), heights))
