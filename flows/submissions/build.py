"""Build a run between plan and commit: one pass over the extract, to chunks and ledger parts.

Every row is accounted for in the ledger; what the run would commit is its manifest, and the gates
judge it before that.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from datetime import timedelta
from typing import NamedTuple

from flows.extracts.opening import open_extract
from flows.runs.context import IssuerContext
from flows.runs.keys import keys_of
from flows.runs.sealing import Sealer
from flows.runs.store import Entry
from flows.runs.stored_runs import StoredRuns
from flows.steps import Step, counted
from flows.submissions.column_changes import column_changes
from flows.submissions.drift import drift_of
from flows.submissions.gates import Built
from flows.submissions.ledger import LedgerWriter, sent_records
from flows.submissions.normalise import normalise
from flows.submissions.one_value import columns_of_one_value
from flows.submissions.publisher import Outcome, PartialRunError, Publisher
from flows.submissions.row_scope import RowScope
from flows.submissions.scan import Piece, Scan
from flows.submissions.turnover import turnover_of
from schemas.issuer import Issuer
from schemas.manifest import Counts, Inputs, LedgerPart, Manifest, ManifestChunk, Plan


class ExpectedOutcome(NamedTuple):
    """What an operator approved: the extract's digest, and where its rows go and why."""

    sha256: str
    counts: Counts
    reasons: dict[str, int]


class Job(NamedTuple):
    """A planned run and how to do it: which rows, which gates are open, what finishes it."""

    plan: Plan
    entry: Entry
    scope: RowScope
    opened: Collection[str]
    retry_command: Step  # finishes it after a temporary failure
    since: int  # turn of the last run that was committed when the rows were chosen
    runs: StoredRuns  # those of the issuer, read after the run was planned
    guarded: bool = True  # no card of a run committed later is sent
    expected: ExpectedOutcome | None = None  # another outcome is not committed


class Progress(NamedTuple):
    """How far a run has got."""

    rows: int
    chunks: int
    share: float  # of the extract's bytes, 0 to 1


OnProgress = Callable[[Progress], None]


def describe_pace(rows: int, share: float, elapsed: float) -> str:
    """Return rows read, rows a second and time left.

    `share` of the extract's bytes was read in `elapsed` seconds.
    """
    if not rows or elapsed <= 0:
        return counted(rows, "row")
    pace = f"{counted(rows, 'row')}, {rows / elapsed:,.0f} a second"
    if share <= 0:
        return pace
    left = timedelta(seconds=round(elapsed * (1 - share) / share))
    return f"{pace}, {left} left"


def build_run(
    context: IssuerContext,
    job: Job,
    sealer: Sealer | None,
    on_progress: OnProgress = lambda _: None,
    epoch: int = 1,
) -> Built:
    """Make the one pass over an extract: every row to the ledger, every chunk published.

    Without `sealer` chunks are only counted: a dry run. `epoch`: of the claim on the run. Raises
    PartialRunError, and what the extract is refused with.
    """
    plan = job.plan
    keys = keys_of(plan.run)
    ledger = LedgerWriter(context.adapters.store, keys, anew=sealer is None)
    publisher = Publisher(context, sealer, keys, epoch)
    with closing(publisher), open_extract(context, job.entry, plan.source) as stream:
        scan = Scan(context, stream, plan.source, plan.as_of, job.scope, opened=job.opened)
        if scan.sequence_error is not None and sealer is not None:
            raise scan.sequence_error
        with closing(iter(scan)) as pieces:
            for piece in pieces:
                _write(piece, ledger, publisher)
                del piece  # free it before the next is made
                share = min(1.0, stream.tell() / plan.source.size)
                on_progress(Progress(scan.counts.read, publisher.count, share))
                if publisher.has_given_up:
                    break
        publisher.send()
        # while the last chunks are sealed; never of half an extract
        parts = [] if publisher.has_given_up else ledger.finish()
        chunks = _all_published(plan, job.retry_command, publisher.finish())
    manifest = _manifest(plan, scan, chunks, parts)
    nights = job.runs.nights_before(keys.run)
    return Built(
        manifest,
        before=[night.read for night in nights],
        test_cards=scan.route.test_cards,
        real_cards=scan.route.other_cards,
        drift=drift_of(manifest, nights, context.issuer.limits.max_drift),
        one_value=_one_value(plan, scan, context.issuer),
        turnover=turnover_of(context, plan, manifest, job.runs, job.since),
        columns=column_changes(manifest.layout, nights) if plan.selection is None else (),
        sequence_error=scan.sequence_error,
        reasons=scan.route.reasons,
        unknown_values=scan.route.unknown_values,
    )


def _write(piece: Piece, ledger: LedgerWriter, publisher: Publisher) -> None:
    """Write the ledger records of a piece, and hand its chunks to the publisher."""
    ledger.add(piece.others)
    if piece.chunks:
        numbers = [publisher.add(chunk) for chunk in piece.chunks]
        ledger.add(sent_records(piece.chunks, numbers))


def _one_value(plan: Plan, scan: Scan, issuer: Issuer) -> list[str]:
    """Say of which columns of a whole extract one value stands in too many rows."""
    if plan.selection is not None:
        return []
    rows = normalise(scan.route.sample.rows, issuer.rules)
    return list(columns_of_one_value(rows, scan.layout, issuer))


def _manifest(
    plan: Plan, scan: Scan, chunks: Sequence[ManifestChunk], parts: Sequence[LedgerPart]
) -> Manifest:
    """Return the manifest that would commit a run."""
    route = scan.route
    return Manifest(
        **{name: getattr(plan, name) for name in Inputs.model_fields},
        counts=scan.counts,
        reasons={reason.code: reason.rows for reason in route.reasons},
        repairs=dict(route.repairs),
        chunks=tuple(chunks),
        ledger=tuple(parts),
        sequence=scan.number,
        profile=None if plan.selection else route.sample.profile(),
        layout=scan.layout,
        joined=None if plan.selection else scan.joined,
    )


def _all_published(
    plan: Plan, retry_command: Step, outcomes: Sequence[Outcome]
) -> list[ManifestChunk]:
    """Return every chunk; PartialRunError where one is missing."""
    published = [outcome.chunk for outcome in outcomes if outcome.chunk is not None]
    troubles = Counter(outcome.trouble for outcome in outcomes if outcome.chunk is None)
    if troubles:
        reason = ", ".join(f"{count} {trouble}" for trouble, count in troubles.most_common())
        raise PartialRunError(
            run=plan.run,
            count=troubles.total(),
            reason=reason,
            command=retry_command,
        )
    return published
