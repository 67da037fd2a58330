"""What a report counts of a run's rows, tallied per group of chunks and added up; and the hours
from drop to link.

Its size does not grow with the rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import accumulate
from typing import Any, NamedTuple

import polars as pl

from flows.results.reconcile import BROKEN_ROW, Reconciled
from flows.runs.events import DROPPED
from flows.runs.keys import keys_of
from flows.runs.outcomes import Attributed
from flows.runs.single_links import ARRIVED
from flows.runs.store import Store
from flows.runs.versions import read_events
from schemas import ledger
from schemas.breaks import Break
from schemas.ledger import ERROR, LINKED
from schemas.manifest import Manifest
from schemas.records import Closing

# kinds of error text kept, so that a partner whose every text differs does not swell the report
SHAPES = 100
FIRST_ROWS = 5  # source rows named for each reason

CHUNKS = pl.Schema(
    {
        "run": pl.String(),
        "chunk": pl.UInt32(),
        **{
            name: pl.UInt32()
            for name in ("sent", "answers", "links", "linked", "error", "awaiting")
        },
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
KINDS = pl.Schema(
    {"shape": pl.String(), "reason": pl.String(), "rows": pl.UInt32(), "message": pl.String()}
)
EXPIRY = pl.Schema({"expires_on": pl.Date(), "links": pl.UInt32()})
HOW = pl.Schema({"how": pl.String(), "rows": pl.UInt32()})
ARRIVALS = pl.Schema({"arrived": ARRIVED, "links": pl.UInt32()})
COUNTS = {
    "refused": REASONS,
    "reasons": REASONS,
    "shapes": KINDS,
    "expiry": EXPIRY,
    "how": HOW,
    "arrivals": ARRIVALS,
}
SUMS: dict[pl.DataType, Callable[[pl.Expr], pl.Expr]] = {
    pl.UInt32(): pl.Expr.sum,
    pl.String(): pl.Expr.min,
    pl.List(pl.UInt32()): lambda rows: rows.explode().sort().head(FIRST_ROWS),
}


class ResultFile(NamedTuple):
    """A result file of the run: digest of its bytes, name, date received, rows."""

    digest: str
    name: str
    received: date | None
    rows: int


class Tally(NamedTuple):
    """Counts of chunks, breaks (`broken`: rows), our reasons (`refused`), the partner's, texts,
    expiries, arrivals.
    """

    chunks: pl.DataFrame
    breaks: frozenset[Break]
    closed: frozenset[tuple[Break, Closing]]
    broken: pl.DataFrame
    files: frozenset[ResultFile]
    refused: pl.DataFrame
    reasons: pl.DataFrame
    shapes: pl.DataFrame
    expiry: pl.DataFrame
    how: pl.DataFrame
    arrivals: pl.DataFrame


def tally(
    records: pl.DataFrame, settled: Reconciled, outcomes: Sequence[Attributed], alone: pl.DataFrame
) -> Tally:
    """Count a group of ledger records (row, fate, reasons), their reconciled rows and their single
    links (`alone`).
    """
    rows = settled.rows
    failed = rows.filter(state=ERROR)
    return Tally(
        settled.chunks,
        frozenset(settled.breaks),
        frozenset(settled.closed),
        settled.broken,
        frozenset(
            ResultFile(one.digest, one.name, one.received, one.outcomes.height) for one in outcomes
        ),
        _reasons(records, pl.col("fate") == ledger.SUBMITTED),
        _reasons(failed, pl.lit(value=False)),
        failed.group_by("shape")
        .agg(
            pl.col("reasons").list.first().drop_nulls().min().alias("reason"),
            pl.len().alias("rows"),
            pl.col("message").min(),
        )
        .sort("rows", "shape", descending=[True, False])
        .head(10 * SHAPES),
        rows.filter(state=LINKED).group_by("expires_on").agg(pl.len().alias("links")),
        rows.drop_nulls("how").group_by("how").agg(pl.len().alias("rows")),
        _arrivals(rows.filter(state=LINKED), outcomes, alone),
    )


def _arrivals(
    linked: pl.DataFrame, outcomes: Sequence[Attributed], alone: pl.DataFrame
) -> pl.DataFrame:
    """Count links by when they arrived: with their result file, or as single links."""
    dropped = {one.name: one.arrived for one in outcomes}
    files = pl.DataFrame(
        {"result": [*dropped], "file": [*dropped.values()]}, {"result": pl.String, "file": ARRIVED}
    )
    came = linked.join(files, on="result", how="left").join(
        alone.select("row", "arrived"), on="row", how="left"
    )
    when = pl.coalesce("file", "arrived").alias("arrived")
    return came.group_by(when).agg(pl.len().alias("links")).drop_nulls("arrived")


def _reasons(rows: pl.DataFrame, warned: pl.Expr) -> pl.DataFrame:
    some = rows.filter(pl.col("reasons").is_not_null())  # few have any
    reported = (
        some.select("row", warned.alias("warned"), "reasons")
        .explode("reasons")
        .drop_nulls("reasons")
    )
    codes = reported.with_columns(pl.col("reasons").str.split("|").list.last().alias("reason"))
    first = pl.col("row").sort().head(FIRST_ROWS).alias("first")
    return codes.group_by("reason").agg(pl.len().alias("rows"), pl.col("warned").sum(), first)


def add(tallies: Sequence[Tally]) -> Tally:
    """Add up the tallies of a run; an empty run has an empty tally."""
    return Tally(
        chunks=_stack([one.chunks for one in tallies], CHUNKS).sort("chunk"),
        breaks=frozenset().union(*(one.breaks for one in tallies)),
        closed=frozenset().union(*(one.closed for one in tallies)),
        broken=_stack([one.broken for one in tallies], pl.Schema(BROKEN_ROW)).unique(
            maintain_order=True
        ),
        files=frozenset().union(*(one.files for one in tallies)),
        **{
            name: _sum([getattr(one, name) for one in tallies], schema)
            for name, schema in COUNTS.items()
        },
    )


def _sum(frames: Sequence[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    """Add frames up by their first column, most rows first: of texts the least stays, of row
    numbers the first.
    """
    by, *names = schema
    found = (
        _stack(frames, schema).group_by(by).agg(SUMS[schema[name]](pl.col(name)) for name in names)
    )
    return found.sort("rows" if "rows" in names else by, by, descending=["rows" in names, False])


def _stack(frames: Sequence[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *(frame.cast(schema) for frame in frames)])


EXTRACT, PLAN = "the extract's drop", "the run's plan"  # what the hours are counted from


def run_hours(
    store: Store, manifest: Manifest, arrivals: pl.DataFrame, within: int
) -> dict[str, Any]:
    """Return the hours of a run's links (`flows.reports.tally.ARRIVALS`), and what they are counted
    from.
    """
    since, start = _start(store, manifest)
    spread = Counter[float]()
    for arrived, links in arrivals.iter_rows():
        spread[round(max(0.0, (arrived - start).total_seconds()) / 3600, 1)] += links
    return {
        "since": since,
        "start": start.isoformat(timespec="seconds"),
        **_figures(spread, within),
    }


def hours_of(spreads: Iterable[Mapping[str, int]], within: int) -> dict[str, Any]:
    """Return links, median, slowest and share within the agreed hours; `spread`: links by hours, in
    tenths.
    """
    spread = Counter[float]()
    for one in spreads:
        spread.update({float(hours): links for hours, links in one.items()})
    return _figures(spread, within)


def _figures(spread: Mapping[float, int], within: int) -> dict[str, Any]:
    hours, links = sorted(spread), sum(spread.values())
    sums = accumulate(spread[one] for one in hours)
    return {
        "links": links,
        "median": next(
            (one for one, upto in zip(hours, sums, strict=True) if 2 * upto >= links), None
        ),
        "slowest": hours[-1] if hours else None,
        "within": within,
        "share": sum(spread[one] for one in hours if one <= within) / links if links else None,
        "spread": {f"{one:.1f}": spread[one] for one in hours},
    }


def _start(store: Store, manifest: Manifest) -> tuple[str, datetime]:
    """Return when the extract was dropped; of a renewal, and where no event has it, when the run
    was planned.
    """
    keys = keys_of(manifest.run)
    if manifest.selection is None or manifest.selection.kind != "renew":
        for event in read_events(
            store, [one for one in store.keys(keys.events) if "-committed-" in one.key]
        ):
            if DROPPED in event:
                return EXTRACT, datetime.fromisoformat(event[DROPPED])
    with store.open(keys.plan) as plan:
        return PLAN, plan.entry.modified
