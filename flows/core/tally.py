"""What a report counts of a run's sent rows: tallied per ledger part, added up, never larger for more rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.attribution import ERROR, LINKED, Attributed
from flows.core.reconcile import Reconciled
from schemas.breaks import Break

SHAPES = 100  # kinds of error text kept; a partner that writes every text differently must not swell the report
FIRST_ROWS = 5  # source rows named for each reason

CHUNKS = pl.Schema(
    {
        "run": pl.String(),
        "chunk": pl.UInt32(),
        **{name: pl.UInt32() for name in ("sent", "answers", "links", "linked", "error", "awaiting")},
        "state": pl.String(),
        "results": pl.List(pl.String()),
    }
)
REASONS = pl.Schema({"reason": pl.String(), "rows": pl.UInt32(), "first": pl.List(pl.UInt32())})
KINDS = pl.Schema(
    {
        "shape": pl.String(),
        "reason": pl.String(),
        "rows": pl.UInt32(),
        "message": pl.String(),
    }
)
EXPIRY = pl.Schema({"expires_on": pl.Date(), "links": pl.UInt32()})
HOW = pl.Schema({"how": pl.String(), "rows": pl.UInt32()})


class ResultFile(NamedTuple):
    """A result file of the run: digest of its bytes, name, day it came, rows."""

    digest: str
    name: str
    received: date | None
    rows: int


class Tally(NamedTuple):
    """Counts of sent rows: chunks (as reconciled), reasons, shapes of errors, days links expire, how attributed."""

    chunks: pl.DataFrame
    breaks: frozenset[Break]
    files: frozenset[ResultFile]
    reasons: pl.DataFrame
    shapes: pl.DataFrame
    expiry: pl.DataFrame
    how: pl.DataFrame


def tally(settled: Reconciled, outcomes: Sequence[Attributed]) -> Tally:
    """Count the reconciled rows of one ledger part."""
    rows = settled.rows
    failed = rows.filter(state=ERROR)
    return Tally(
        settled.chunks,
        frozenset(settled.breaks),
        frozenset(ResultFile(one.digest, one.name, one.received, one.outcomes.height) for one in outcomes),
        failed.select("row", pl.col("reasons").alias("reason"))
        .explode("reason")
        .drop_nulls("reason")
        .group_by("reason")
        .agg(pl.len().alias("rows"), pl.col("row").sort().head(FIRST_ROWS).alias("first")),
        failed.group_by("shape").agg(
            pl.col("reasons").list.first().drop_nulls().min().alias("reason"),
            pl.len().alias("rows"),
            pl.col("message").min(),
        ),
        rows.filter(state=LINKED).group_by("expires_on").agg(pl.len().alias("links")),
        rows.drop_nulls("how").group_by("how").agg(pl.len().alias("rows")),
    )


def add(tallies: Sequence[Tally]) -> Tally:
    """Add up the tallies of a run's parts; an empty run has an empty tally."""
    reasons = _stack([one.reasons for one in tallies], REASONS).group_by("reason")
    shapes = _stack([one.shapes for one in tallies], KINDS).group_by("shape")
    rows = pl.col("rows").sum()
    return Tally(
        _stack([one.chunks for one in tallies], CHUNKS).sort("chunk"),
        frozenset().union(*(one.breaks for one in tallies)),
        frozenset().union(*(one.files for one in tallies)),
        reasons.agg(rows, pl.col("first").explode().sort().head(FIRST_ROWS)).sort(
            "rows", "reason", descending=[True, False]
        ),
        shapes.agg(pl.col("reason").min(), rows, pl.col("message").min())
        .sort("rows", "shape", descending=[True, False])
        .head(SHAPES),
        _stack([one.expiry for one in tallies], EXPIRY)
        .group_by("expires_on")
        .agg(pl.col("links").sum())
        .sort("expires_on"),
        _stack([one.how for one in tallies], HOW)
        .group_by("how")
        .agg(rows)
        .sort("rows", "how", descending=[True, False]),
    )


def _stack(frames: Sequence[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *(frame.cast(schema) for frame in frames)])
