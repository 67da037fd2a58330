"""The reconciled rows of a run: its ledger with all its outcomes, part by part.

So memory stays flat, however many rows the run has: no chunk spans two parts of the ledger.
"""

from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from typing import NamedTuple

import polars as pl

from flows.reports.tally import Tally, add, tally
from flows.results.batches import CHUNKS
from flows.results.reconcile import reconcile, with_single_links
from flows.runs.cards import FINGERPRINTS
from flows.runs.context import IssuerContext
from flows.runs.outcomes import StoredOutcomes
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from schemas import ledger
from schemas.breaks import Break
from schemas.ledger import AWAITING
from schemas.manifest import LedgerPart
from schemas.records import Closing

AS_SENT = ["expiration", "origin", *FINGERPRINTS]  # kept with the outcome: later runs need them
_OF_REJECTS = ["line", "reasons", "found"]
RECORD = ["row", "cuid", "last_4", "fate", "chunk", "position", *AS_SENT, *_OF_REJECTS]
AT_A_TIME = 2  # threads


class ReconciledPart(NamedTuple):
    """The rows of a ledger part as they are now, and a tally for each group of its chunks."""

    part: LedgerPart
    rows: pl.DataFrame
    tallies: tuple[Tally, ...]


class Findings(NamedTuple):
    """The open breaks of a run, their rows, and the rows sent that no result names."""

    breaks: tuple[Break, ...]
    broken: pl.DataFrame
    unanswered: pl.DataFrame  # chunk, row


class _Answers(NamedTuple):
    """What came of a run's rows after they were sent."""

    outcomes: StoredOutcomes
    single_links: pl.DataFrame
    closings: Sequence[Closing]
    cancelled: frozenset[tuple[str, int]]


def reportable(run: StoredRun) -> StoredRun:
    """Return a run whose report may be written, as it is stored now.

    Only its manifest, which never changes, is not read again. Raises UnknownRunError where it is
    not committed, AbandonedError, LedgerPurgedError.
    """
    current = StoredRun.of(run.adapters, run.committed())
    current.refuse_purged()
    return current


def reconciled_parts(run: StoredRun, today: date) -> Iterator[ReconciledPart]:
    """Yield the parts of a committed run's ledger, each reconciled."""
    answers = _Answers(
        run.outcomes,
        run.single_links,
        run.closed_breaks,
        frozenset((run.id, chunk) for chunk in run.cancelled_chunks),
    )
    return (_reconciled_part(run, part, answers, today) for part in run.committed().ledger)


def find_breaks(context: IssuerContext, run: StoredRun) -> Findings:
    """Return the open breaks of a committed run as its outcomes are now; nothing is written."""
    tallies: list[Tally] = []
    unanswered = [pl.DataFrame(schema={"chunk": pl.UInt32, "row": pl.UInt32})]
    for part in reconciled_parts(reportable(run), context.adapters.now().date()):
        tallies += part.tallies
        without_answer = part.rows.filter(pl.col("trouble").is_null(), state=AWAITING)
        unanswered.append(without_answer.select("chunk", "row"))
    total = add(tallies)
    open_breaks = tuple(run_break for run_break in sorted(total.breaks) if not run_break.notice)
    return Findings(open_breaks, total.broken, pl.concat(unanswered))


def _reconciled_part(
    run: StoredRun, part: LedgerPart, answers: _Answers, today: date
) -> ReconciledPart:
    """Reconcile a few chunks at a time: answers take five times the memory of what was sent."""
    reconcile_group = partial(_reconciled_group, run.id, answers=answers, today=today)
    groups = concurrently(reconcile_group, _groups(run, part), AT_A_TIME)
    rows = pl.concat([rows for rows, _ in groups])
    if not rows["row"].is_sorted():  # chunks are mostly cut in row order
        rows = rows.sort("row")
    return ReconciledPart(part, rows, tuple(group_tally for _, group_tally in groups))


def _groups(run: StoredRun, part: LedgerPart) -> list[pl.DataFrame]:
    """Return the records of a part, some chunks together; rows not sent come with the first."""
    group = pl.col("chunk").sub(1).floordiv(CHUNKS).fill_null(0).alias("group")
    records = run.ledger_part(part, RECORD).with_columns(group)
    return records.partition_by("group", maintain_order=True, include_key=False)


def _reconciled_group(
    run: str, records: pl.DataFrame, answers: _Answers, today: date
) -> tuple[pl.DataFrame, Tally]:
    """Return the rows of a group of chunks as they are now, and their tally."""
    sent = records.filter(fate=ledger.SUBMITTED).drop(_OF_REJECTS).with_columns(run=pl.lit(run))
    outcomes = answers.outcomes.of(sent["chunk"].unique().to_list(), sent)
    single_links = answers.single_links.join(records, on="row", how="semi")
    settled = with_single_links(
        reconcile(sent, outcomes, today, answers.cancelled, answers.closings), single_links
    )
    as_sent = records.select("row", *AS_SENT)
    rows = settled.rows.join(as_sent, on="row", how="left", maintain_order="left")
    return rows, tally(records, settled, outcomes, single_links)
