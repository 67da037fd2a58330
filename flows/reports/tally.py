"""What a report counts of a run's rows, tallied per group of chunks and added up.

Its size does not grow with the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.results.breaks import BROKEN_ROW
from flows.results.reconcile import Reconciled
from flows.runs.outcomes import Attributed
from flows.runs.single_links import ARRIVED
from schemas import ledger
from schemas.breaks import DECIDED, Break
from schemas.ledger import ERROR, LINKED
from schemas.records import Closing

# kinds of error text kept, so that a partner whose every text differs does not swell the report
SHAPES = 100
MOST_ROWS = 1000  # rows and lines kept for each reason

CHUNKS = pl.Schema(
    {
        "run": pl.String(),
        "chunk": pl.UInt32(),
        "sent": pl.UInt32(),
        "answers": pl.UInt32(),
        "links": pl.UInt32(),
        "linked": pl.UInt32(),
        "error": pl.UInt32(),
        "awaiting": pl.UInt32(),
        "state": pl.String(),
        "results": pl.List(pl.String()),
    }
)
# `warned`: how many of the rows were sent despite the reason
REASONS = pl.Schema(
    {
        "reason": pl.String(),
        "rows": pl.UInt32(),
        "warned": pl.UInt32(),
        "first": pl.List(pl.UInt32()),
    }
)
REFUSED = pl.Schema({**REASONS, "lines": pl.List(pl.UInt32())})  # ours, with lines of the file
# what was found in rejected cells, by the code of a reason and the shape: "code|shape"
FOUND = pl.Schema({"found": pl.String(), "rows": pl.UInt32()})
KINDS = pl.Schema(
    {"shape": pl.String(), "reason": pl.String(), "rows": pl.UInt32(), "message": pl.String()}
)
FIRST_REASONS = pl.Schema({"reason": pl.String(), "rows": pl.UInt32()})
EXPIRY = pl.Schema({"expires_on": pl.Date(), "links": pl.UInt32()})
HOW = pl.Schema({"how": pl.String(), "rows": pl.UInt32()})
ARRIVALS = pl.Schema({"arrived": ARRIVED, "links": pl.UInt32()})
COUNTS = {
    "refused": REFUSED,
    "found": FOUND,
    "reasons": REASONS,
    "first_reasons": FIRST_REASONS,
    "shapes": KINDS,
    "expiry": EXPIRY,
    "how": HOW,
    "arrivals": ARRIVALS,
}
# how the values of equal keys are added up, by type: of texts the least stays, of rows the first
SUMS: dict[pl.DataType, Callable[[pl.Expr], pl.Expr]] = {
    pl.UInt32(): pl.Expr.sum,
    pl.String(): pl.Expr.min,
    pl.List(pl.UInt32()): lambda rows: rows.explode().sort().head(MOST_ROWS),
}


class ResultFile(NamedTuple):
    """A result file of the run: digest of its bytes, name, date received, rows."""

    digest: str
    name: str
    received: date | None
    rows: int


class Tally(NamedTuple):
    """What is counted of some chunks of a run: the frames have the schemas above."""

    chunks: pl.DataFrame
    breaks: frozenset[Break]
    closed: frozenset[tuple[Break, Closing]]
    broken: pl.DataFrame  # the rows of the breaks
    files: frozenset[ResultFile]
    refused: pl.DataFrame  # our reasons
    found: pl.DataFrame  # what they found
    reasons: pl.DataFrame  # the partner's
    first_reasons: pl.DataFrame  # of each row that the partner refused
    shapes: pl.DataFrame
    expiry: pl.DataFrame
    how: pl.DataFrame
    arrivals: pl.DataFrame


def tally(
    records: pl.DataFrame,
    settled: Reconciled,
    outcomes: Sequence[Attributed],
    single_links: pl.DataFrame,
) -> Tally:
    """Count a group of ledger records (row, line, fate, reasons, found).

    `settled`: their reconciled rows; `outcomes`: the result files that answer them;
    `single_links`: those of these rows.
    """
    rows = settled.rows
    linked = rows.filter(state=LINKED)
    failed = rows.filter(state=ERROR)
    files = (
        ResultFile(file.digest, file.name, file.received, file.outcomes.height) for file in outcomes
    )
    return Tally(
        chunks=settled.chunks,
        breaks=frozenset(settled.breaks),
        closed=frozenset(settled.closed),
        broken=settled.broken,
        files=frozenset(files),
        refused=_count_reasons(
            records, {"first": "row", "lines": "line"}, warned=pl.col("fate") == ledger.SUBMITTED
        ),
        found=_count_found(records),
        reasons=_count_reasons(failed, {"first": "row"}, warned=pl.lit(value=False)),
        first_reasons=_count_first_reasons(failed),
        shapes=_count_shapes(failed),
        expiry=linked.group_by("expires_on").agg(pl.len().alias("links")),
        how=rows.drop_nulls("how").group_by("how").agg(pl.len().alias("rows")),
        arrivals=_count_arrivals(linked, outcomes, single_links),
    )


def _count_first_reasons(failed: pl.DataFrame) -> pl.DataFrame:
    code = pl.col("reasons").list.first().fill_null("")
    return failed.group_by(reason=code).agg(rows=pl.len())


def _count_shapes(failed: pl.DataFrame) -> pl.DataFrame:
    reason = pl.col("reasons").list.first()
    by_partner = failed.filter(~reason.fill_null("").is_in(DECIDED))
    counted = by_partner.group_by("shape").agg(
        reason.drop_nulls().min().alias("reason"),
        pl.len().alias("rows"),
        pl.col("message").min(),
    )
    # more than a report has, since other groups of chunks may have the same ones
    return counted.sort("rows", "shape", descending=[True, False]).head(10 * SHAPES)


def _count_arrivals(
    linked: pl.DataFrame, outcomes: Sequence[Attributed], single_links: pl.DataFrame
) -> pl.DataFrame:
    """Count links by when they arrived: with their result file, or as single links."""
    arrived_by_file = {file.name: file.arrived for file in outcomes}
    files = pl.DataFrame(
        {"result": [*arrived_by_file], "file_arrived": [*arrived_by_file.values()]},
        {"result": pl.String, "file_arrived": ARRIVED},
    )
    arrived = pl.coalesce("file_arrived", "arrived").alias("arrived")
    dated = linked.join(files, on="result", how="left").join(
        single_links.select("row", "arrived"), on="row", how="left"
    )
    return dated.group_by(arrived).agg(pl.len().alias("links")).drop_nulls("arrived")


def _count_reasons(rows: pl.DataFrame, places: Mapping[str, str], warned: pl.Expr) -> pl.DataFrame:
    """Count the rows of each reason; `places`: lists of where they are, each by its column."""
    with_reasons = rows.filter(pl.col("reasons").is_not_null())  # few have any
    exploded = (
        with_reasons.select(*places.values(), warned.alias("warned"), "reasons")
        .explode("reasons")
        .drop_nulls("reasons")
    )
    code = pl.col("reasons").str.split("|").list.last().alias("reason")
    lists = [pl.col(name).sort().head(MOST_ROWS).alias(place) for place, name in places.items()]
    return (
        exploded.with_columns(code)
        .group_by("reason")
        .agg(pl.len().alias("rows"), pl.col("warned").sum(), *lists)
    )


def _count_found(records: pl.DataFrame) -> pl.DataFrame:
    is_whole = pl.col("found").list.len() == pl.col("reasons").list.len()
    listed = records.filter(is_whole).select("reasons", "found").explode("reasons", "found")
    code = pl.col("reasons").str.split("|").list.last()
    counted = (
        listed.drop_nulls("found")
        .group_by(found=pl.concat_str(code, "found", separator="|"))
        .agg(rows=pl.len())
    )
    return counted.sort("rows", "found", descending=[True, False]).head(10 * SHAPES)


def add(tallies: Sequence[Tally]) -> Tally:
    """Add up the tallies of a run; an empty run has an empty tally."""
    broken = _stack([part.broken for part in tallies], pl.Schema(BROKEN_ROW))
    return Tally(
        chunks=_stack([part.chunks for part in tallies], CHUNKS).sort("chunk"),
        breaks=frozenset().union(*(part.breaks for part in tallies)),
        closed=frozenset().union(*(part.closed for part in tallies)),
        broken=broken.unique(maintain_order=True),
        files=frozenset().union(*(part.files for part in tallies)),
        **{
            name: _sum([getattr(part, name) for part in tallies], schema)
            for name, schema in COUNTS.items()
        },
    )


def _sum(frames: Sequence[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    """Add frames up by their first column (SUMS), most rows first."""
    key, *values = schema
    sums = [SUMS[schema[value]](pl.col(value)) for value in values]
    total = _stack(frames, schema).group_by(key).agg(sums)
    if "rows" in values:
        return total.sort("rows", key, descending=[True, False])
    return total.sort(key)


def _stack(frames: Sequence[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *(frame.cast(schema) for frame in frames)])
