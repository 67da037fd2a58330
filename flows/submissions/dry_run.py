"""The dry run: settings, key, a trial seal, the store, and every row of an extract; nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.open import open_extract
from flows.runs.attempts import survey_cards
from flows.runs.chains import recent_commits
from flows.runs.context import IssuerContext
from flows.runs.documents import HABIT, finished, has_manifest, keys_of, read_manifest, rows_before
from flows.runs.identity import business_date
from flows.runs.prior_state import ATTEMPT
from flows.submissions.build import Scan
from flows.submissions.gates import GateFacts, refusal
from flows.submissions.plan import expected_run, find_extract, identify
from flows.submissions.rows import Choice
from flows.submissions.submit import Request, plans_of_extract, refuse_resend
from schemas.ledger import AWAITING
from schemas.manifest import Counts, Plan
from schemas.portal import CUID

FIRST_ROWS = 5  # row numbers named for each reason


class ReasonRows(NamedTuple):
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
    found: tuple[ReasonRows, ...]
    repairs: dict[str, int]
    refused: str


@dataclass
class EarlierRuns:
    """What earlier nights of one rehearsal would have left: attempts at the cards they send, and their rows."""

    sent: list[pl.DataFrame] = field(default_factory=list)
    read: list[tuple[date, int]] = field(default_factory=list)


def check_extract(
    context: IssuerContext, name: str, day: date | None, opened: Collection[str] = (), nights: EarlierRuns | None = None
) -> Checked:
    """Read and check the whole extract exactly as a submit would; nothing is sealed, nothing is written.

    `nights` are taken for sent before it; where it would pass, it is added to them.
    """
    entry = find_extract(context, name)
    source = identify(context.adapters.store, entry)
    as_of = day or business_date(entry.key, entry.modified, context.issuer.time_zone)
    world = survey_cards(context, nights.sent if nights else ()) if context.issuer.full_portfolio else None
    run = expected_run(context, source, as_of, world.digest if world else "")
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, as_of, Choice(known=world.known if world else None))
        seen = _scan_extract(scan, keep=world is not None and nights is not None)
    refused = _refusal(context, source.key, run, scan, opened, nights)
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


def _scan_extract(scan: Scan, *, keep: bool) -> _Seen:
    """Make the pass; keep who is sent only where a later night has to know."""
    sizes, reasons, sent = [], [], []
    for piece in scan:
        sizes += [chunk.height for chunk in piece.chunks]
        reasons += [_reasons(frame) for frame in (piece.others, *piece.chunks)]
        sent += [_attempts(chunk) for chunk in piece.chunks] if keep else []
    return _Seen(tuple(sizes), reasons, sent)


def _refusal(
    context: IssuerContext, extract: str, run: str, scan: Scan, opened: Collection[str], nights: EarlierRuns | None
) -> CardlinkError | None:
    """Return what would refuse the run, the nights before it taken for committed."""
    this, route = keys_of(run).run, scan.route
    between = [read for day, read in nights.read if day < this.day] if nights else []
    before = (rows_before(context.adapters.store, this) + between)[-HABIT:]
    night = GateFacts(extract, scan.counts, before, route.test_cards, route.other_cards)
    return refusal(night, context.issuer.limits, test=context.issuer.test, opened=opened)


def _attempts(chunk: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a chunk as attempts that wait for their answer."""
    waiting = chunk.with_columns(
        pl.col(CUID).alias("cuid"), pl.lit(AWAITING).alias("state"), pl.lit(None).alias("expires_on")
    )
    return waiting.select(pl.col(name).cast(kind) for name, kind in ATTEMPT.items())


def _reasons(frame: pl.DataFrame) -> pl.DataFrame:
    """Return row and code of every reason, thinned to the first rows and the count of each."""
    reported = frame.select("row", "reasons").explode("reasons").drop_nulls()
    codes = reported.select("row", pl.col("reasons").str.split("|").list.last().alias("code"))
    return codes.group_by("code").agg(pl.len().alias("rows"), pl.col("row").sort().head(FIRST_ROWS).alias("first"))


def _found(frames: list[pl.DataFrame]) -> tuple[ReasonRows, ...]:
    every = pl.concat(frames).explode("first")
    counts = pl.concat(frames).group_by("code").agg(pl.col("rows").sum())
    first = every.group_by("code").agg(pl.col("first").sort().head(FIRST_ROWS))
    joined = counts.join(first, on="code").sort(["rows", "code"], descending=[True, False])
    return tuple(ReasonRows(code, rows, tuple(numbers)) for code, rows, numbers in joined.iter_rows())


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


def rehearse(context: IssuerContext, request: Request, nights: EarlierRuns | None = None) -> Rehearsal:
    """Check every row as a submit would after `nights`; SentTwiceError where a new run would send a card twice."""
    refuse_resend(context, request)
    found = [] if request.new_run else plans_of_extract(context, request.extract)
    known = [plan for plan in found if plan.selection is None]
    for plan in known[-1:]:
        finished(context.adapters.store, keys_of(plan.run))  # AbandonedError, as a real run would raise it
    committed = [plan.run for plan in known if plan.run in _finishing_runs(context) or _committed(context, plan)]
    day = known[-1].as_of if known else request.business_date  # a rerun takes the day over from the plan
    checked = check_extract(context, request.extract, day, request.opened, nights)
    return Rehearsal(checked, committed[-1] if committed else "")


def _finishing_runs(context: IssuerContext) -> set[str]:
    """Return the runs that died between their turn and their manifest: a real run finishes them first."""
    store = context.adapters.store
    lately = (manifest.run for manifest in recent_commits(store, context.issuer.issuer))
    return {run for run in lately if not has_manifest(store, keys_of(run))}


def _committed(context: IssuerContext, plan: Plan) -> bool:
    return read_manifest(context.adapters.store, keys_of(plan.run)) is not None
