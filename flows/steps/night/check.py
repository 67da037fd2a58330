"""The dry run: settings, template, key, a trial seal, the store, and with an extract every row; nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.errors import CardlinkError
from flows.core.rows.known import ATTEMPT
from flows.core.run.gates import Night, refusal
from flows.core.run.planning import business_date
from flows.steps.again.attempts import survey
from flows.steps.edges import IssuerEdges
from flows.steps.night.plan import expected_run, find_extract, identify
from flows.steps.night.scan import Scan, open_extract
from flows.steps.runs import HABIT, keys_of, rows_before
from flows.submissions.rows import Choice
from schemas.manifest import Counts
from schemas.portal import CUID
from schemas.states import AWAITING

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


@dataclass
class Nights:
    """What earlier nights of one rehearsal would have left: attempts at the cards they send, and their rows."""

    sent: list[pl.DataFrame] = field(default_factory=list)
    read: list[tuple[date, int]] = field(default_factory=list)


def check_extract(
    edges: IssuerEdges, name: str, day: date | None, opened: Collection[str] = (), nights: Nights | None = None
) -> Checked:
    """Read and check the whole extract exactly as a submit would; nothing is sealed, nothing is written.

    `nights` are taken for sent before it; where it would pass, it is added to them.
    """
    entry = find_extract(edges, name)
    source = identify(edges.edges.store, entry)
    as_of = day or business_date(entry.key, entry.modified, edges.issuer.time_zone)
    world = survey(edges, nights.sent if nights else ()) if edges.issuer.full_portfolio else None
    run = expected_run(edges, source, as_of, world.digest if world else "")
    with open_extract(edges, entry, source) as stream:
        scan = Scan(edges, stream, source, as_of, Choice(known=world.known if world else None))
        seen = _see(scan, keep=world is not None and nights is not None)
    refused = _refusal(edges, source.key, run, scan, opened, nights)
    if nights is not None and refused is None:
        nights.sent += seen.sent
        nights.read.append((as_of, scan.counts.read))
    repairs, chunks = dict(scan.route.repairs), seen.chunk_rows
    found = _found(seen.reasons)
    return Checked(source.key, run, as_of, scan.counts, len(chunks), chunks, found, repairs, str(refused or ""))


class _Seen(NamedTuple):
    chunk_rows: tuple[int, ...]
    reasons: list[pl.DataFrame]
    sent: list[pl.DataFrame]


def _see(scan: Scan, *, keep: bool) -> _Seen:
    """Make the pass; keep who is sent only where a later night has to know."""
    sizes, reasons, sent = [], [], []
    for piece in scan:
        sizes += [chunk.height for chunk in piece.chunks]
        reasons += [_reasons(frame) for frame in (piece.others, *piece.chunks)]
        sent += [_attempts(chunk) for chunk in piece.chunks] if keep else []
    return _Seen(tuple(sizes), reasons, sent)


def _refusal(
    edges: IssuerEdges, extract: str, run: str, scan: Scan, opened: Collection[str], nights: Nights | None
) -> CardlinkError | None:
    """Return what would refuse the run, the nights before it taken for committed."""
    this, route = keys_of(run).run, scan.route
    between = [read for day, read in nights.read if day < this.day] if nights else []
    before = (rows_before(edges.edges.store, this) + between)[-HABIT:]
    night = Night(extract, scan.counts, before, route.test_cards, route.other_cards)
    return refusal(night, edges.issuer.limits, test=edges.issuer.test, opened=opened)


def _attempts(chunk: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a chunk as attempts that wait for their answer."""
    waiting = chunk.with_columns(
        pl.col(CUID).alias("cuid"), pl.lit(AWAITING).alias("state"), pl.lit(None).alias("expires_on")
    )
    return waiting.select(pl.col(name).cast(kind) for name, kind in ATTEMPT.items())


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
