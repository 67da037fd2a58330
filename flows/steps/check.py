"""The dry run: settings, template, key, a trial seal, the store, and with an extract every row; nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.names import RunId
from flows.core.rows.refine import Choice
from flows.core.run.gates import Night, refusal
from flows.core.run.planning import business_date
from flows.steps.attempts import survey
from flows.steps.edges import IssuerEdges
from flows.steps.plan import find_extract, identify
from flows.steps.runs import rows_before
from flows.steps.scan import Scan, open_extract
from schemas.manifest import Counts

FIRST_ROWS = 5  # row numbers named for each reason


class Found(NamedTuple):
    """One reason of an extract: how many rows have it, and the first of them."""

    code: str
    rows: int
    first: tuple[int, ...]


class Checked(NamedTuple):
    """What a dry run of an extract found: where rows would go, why, and the gate that would refuse the run."""

    extract: str
    run: str
    as_of: date
    counts: Counts
    chunks: int
    chunk_rows: tuple[int, ...]
    found: tuple[Found, ...]
    repairs: dict[str, int]
    refused: str


def check_extract(edges: IssuerEdges, name: str, day: date | None, opened: Collection[str] = ()) -> Checked:
    """Read and check the whole extract exactly as a submit would; nothing is sealed, nothing is written."""
    entry = find_extract(edges, name)
    source = identify(edges.edges.store, entry)
    as_of = day or business_date(entry.key, entry.modified, edges.issuer.time_zone)
    run = RunId(edges.issuer.issuer, as_of, source.sha256[:8])
    rows: list[pl.DataFrame] = []
    sizes: list[int] = []
    with open_extract(edges, entry, source) as stream:
        known = survey(edges).known if edges.issuer.full_portfolio else None
        scan = Scan(edges.issuer, stream, source, as_of, Choice(known=known))
        for piece in scan:
            sizes += [chunk.height for chunk in piece.chunks]
            rows += [_reasons(frame) for frame in (piece.others, *piece.chunks)]
    night = Night(
        source.key, scan.counts, rows_before(edges.edges.store, run), scan.refiner.test_cards, scan.refiner.other_cards
    )
    refused = refusal(night, edges.issuer.limits, test=edges.issuer.test, opened=opened)
    return Checked(
        source.key,
        str(run),
        as_of,
        scan.counts,
        len(sizes),
        tuple(sizes),
        _found(rows),
        dict(scan.refiner.repairs),
        str(refused or ""),
    )


def _reasons(frame: pl.DataFrame) -> pl.DataFrame:
    """Return row and code of every reason, thinned to the first rows and the count of each."""
    told = frame.select("row", "reasons").explode("reasons").drop_nulls()
    codes = told.select("row", pl.col("reasons").str.split("|").list.last().alias("code"))
    return codes.group_by("code").agg(pl.len().alias("rows"), pl.col("row").sort().head(FIRST_ROWS).alias("first"))


def _found(frames: list[pl.DataFrame]) -> tuple[Found, ...]:
    every = pl.concat(frames).explode("first")
    counts = pl.concat(frames).group_by("code").agg(pl.col("rows").sum())
    first = every.group_by("code").agg(pl.col("first").sort().head(FIRST_ROWS))
    joined = counts.join(first, on="code").sort(["rows", "code"], descending=[True, False])
    return tuple(Found(code, rows, tuple(numbers)) for code, rows, numbers in joined.iter_rows())
