"""An extract that has the name of a committed one and other content: held back for a decision.

The operator who decides learns how many rows are the same, new and gone, by a scan that seals
nothing.
"""

from datetime import date
from typing import NamedTuple

import polars as pl

from flows.errors import GateError
from flows.extracts.opening import open_extract
from flows.runs.context import IssuerContext
from flows.runs.errors import LedgerPurgedError
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from flows.steps import counted
from flows.submissions.gates import CHANGED_EXTRACT
from flows.submissions.plan import dismiss_step, expected_run, runs_under_name, submit_step
from flows.submissions.prior_state import PriorState
from flows.submissions.row_scope import RowScope
from flows.submissions.run_choice import RunInputs
from flows.submissions.scan import Scan
from schemas.manifest import Counts, SourceIdentity
from schemas.portal import CUID

COMPARED = ["cuid", "cuid_made", "last_4", "expiration"]


class ChangedExtractError(GateError):
    """A name that was committed with other content."""

    message = (
        "{extract} has other content than run {run}, committed under that name: {rows}. "
        "Nothing was committed."
    )
    next_step = (
        "Ask the issuer which it is. A correction: {submit} sends {sent} rows. "
        "Not to be sent: {dismiss} sends none. "
        'Where every file has that name: [source] same_name = "replace".'
    )


def changed_extract(
    context: IssuerContext,
    entry: Entry,
    source: SourceIdentity,
    inputs: RunInputs,
    prior: PriorState | None,
) -> ChangedExtractError | None:
    """Return the error that holds back an extract whose name was committed with other content.

    None where nothing does: then it is not read. Raises what `expected_run` raises, since a
    dismissed or repeated extract is that rather than changed.
    """
    with context.adapters.database.snapshot() as connection:
        runs = runs_under_name(connection, context.issuer.issuer, source.key)
    committed = [run for run in runs if run.turn is not None]
    is_known = source.sha256 in {run.planned().source.sha256 for run in committed}
    if is_known or not committed:
        return None
    expected_run(context, source, inputs)
    last = max(committed, key=lambda run: run.turn or 0)
    scan = _scan_cards(context, entry, source, inputs.as_of, prior)
    return ChangedExtractError(
        extract=source.key,
        run=last.run,
        rows=_compared(StoredRun.recorded(context.adapters, last), scan),
        submit=submit_step(source.key, open=CHANGED_EXTRACT),
        sent=f"{scan.counts.submitted:,}",
        dismiss=dismiss_step(source.key),
    )


class _CardScan(NamedTuple):
    """The cards of an extract, and where its rows would go."""

    cards: pl.Series
    counts: Counts


def _scan_cards(
    context: IssuerContext,
    entry: Entry,
    source: SourceIdentity,
    as_of: date,
    prior: PriorState | None,
) -> _CardScan:
    cards: list[pl.Series] = []
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, as_of, RowScope(prior=prior))
        for piece in scan:
            sent = [chunk.with_columns(pl.col(CUID).alias("cuid")) for chunk in piece.chunks]
            cards += [_cards(rows) for rows in (piece.others, *sent)]
    return _CardScan(pl.concat(cards), scan.counts)


def _compared(last: StoredRun, scan: _CardScan) -> str:
    """Return how the rows of an extract compare with those of the run that has its name."""
    cards = scan.cards
    parts = last.ledger(COMPARED)
    try:
        before = pl.concat([pl.Series("card", dtype=pl.UInt64), *map(_cards, parts)])
    except LedgerPurgedError:
        read = counted(scan.counts.read, "row")
        return f"{read}, not compared since the ledger of that run was purged"
    same = int(cards.is_in(before.implode()).sum())
    gone = int((~before.is_in(cards.implode())).sum())
    known = counted(same, "row is the same", "rows are the same")
    return f"{known}, {cards.len() - same:,} new, {gone:,} gone"


def _cards(rows: pl.DataFrame) -> pl.Series:
    """Return what a row's card is known by, in this process.

    A cuid that we made is another one in each content, so it does not count.
    """
    cuid = pl.when(~pl.col("cuid_made")).then("cuid").alias("cuid")
    return rows.select(pl.struct(cuid, "last_4", "expiration").hash().alias("card")).to_series()
