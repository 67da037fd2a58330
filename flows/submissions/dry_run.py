"""The dry run: settings, key, a trial seal, the store, and every row of an extract; nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.open import open_extract
from flows.runs.attempts import survey
from flows.runs.chains import late_commits
from flows.runs.context import IssuerEdges
from flows.runs.documents import HABIT, finished, has_manifest, keys_of, read_manifest, rows_before
from flows.runs.identity import business_date
from flows.runs.prior_state import ATTEMPT
from flows.submissions.build import Scan
from flows.submissions.gates import Night, refusal
from flows.submissions.plan import expected_run, find_extract, identify
from flows.submissions.rows import Choice
from flows.submissions.submit import Request, guard_twice, plans_of
from schemas.ledger import AWAITING
from schemas.manifest import Counts, Plan
from schemas.portal import CUID

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


class Rehearsal(NamedTuple):
    """What a real run would do: the run it would be, its rows, and `already` where it is committed."""

    checked: Checked
    already: str

    @property
    def verdict(self) -> str:
        """Say in a sentence what a real run would do."""
        checked = self.checked
        if self.already:
            return f"{checked.extract} is committed as run {self.already}: a real run would send nothing."
        if checked.refused:
            return f"{checked.extract} would be refused: {checked.refused}"
        rows = f"{checked.counts.submitted:,} of {checked.counts.read:,} rows in {checked.chunks:,} chunks"
        return f"{checked.extract} would be run {checked.run}, as of {checked.as_of}: {rows} would be sent."


def rehearse(edges: IssuerEdges, request: Request, nights: Nights | None = None) -> Rehearsal:
    """Check every row as a submit would after `nights`; SentTwiceError where a new run would send a card twice."""
    guard_twice(edges, request)
    found = [] if request.new_run else plans_of(edges, request.extract)
    known = [plan for plan in found if plan.selection is None]
    for plan in known[-1:]:
        finished(edges.edges.store, keys_of(plan.run))  # AbandonedError, as a real run would raise it
    committed = [plan.run for plan in known if plan.run in _about_to_be(edges) or _committed(edges, plan)]
    day = known[-1].as_of if known else request.business_date  # a rerun takes the day over from the plan
    checked = check_extract(edges, request.extract, day, request.opened, nights)
    return Rehearsal(checked, committed[-1] if committed else "")


def _about_to_be(edges: IssuerEdges) -> set[str]:
    """Return the runs that died between their turn and their manifest: a real run finishes them first."""
    store = edges.edges.store
    lately = (manifest.run for manifest in late_commits(store, edges.issuer.issuer))
    return {run for run in lately if not has_manifest(store, keys_of(run))}


def _committed(edges: IssuerEdges, plan: Plan) -> bool:
    return read_manifest(edges.edges.store, keys_of(plan.run)) is not None
