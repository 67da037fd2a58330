"""What a run makes between plan and commit: sealed chunks and ledger parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import NamedTuple

from flows.core.ports import Entry, Sealer
from flows.core.rows.records import sent_records
from flows.steps.edges import IssuerEdges
from flows.steps.night.ledger import LedgerWriter
from flows.steps.night.publish import Outcome, PartialRunError, Publisher
from flows.steps.night.scan import Counting, Scan, open_extract
from flows.steps.runs import keys_of
from flows.submissions.rows import Choice
from schemas.manifest import Counts, LedgerPart, ManifestChunk, Plan


class Expected(NamedTuple):
    """What somebody was shown before saying yes: the extract's digest, and where its rows go and why."""

    sha256: str
    counts: Counts
    reasons: dict[str, int]


class Job(NamedTuple):
    """A planned run and how it is done: which rows, which gates are open, and the command that finishes it."""

    plan: Plan
    entry: Entry
    choice: Choice
    opened: Collection[str]
    again: str
    since: int | None = None  # the last commit that was known when the rows were chosen
    expected: Expected | None = None  # another outcome is not committed


class Progress(NamedTuple):
    """How far the work is."""

    rows: int
    chunks: int
    share: float  # of the extract's bytes, 0 to 1


Tell = Callable[[Progress], None]


class Made(NamedTuple):
    """Where the rows went and why, the kinds of cards seen, and the chunks and ledger parts that stand."""

    counts: Counts
    reasons: dict[str, int]
    repairs: dict[str, int]
    test_cards: int
    other_cards: int
    chunks: tuple[ManifestChunk, ...]
    ledger: tuple[LedgerPart, ...]


def make(edges: IssuerEdges, job: Job, sealer: Sealer, tell: Tell) -> Made:
    """Make the one pass over an extract: every piece to the ledger, every chunk sealed and published.

    Raises PartialRunError where a chunk does not stand.
    """
    store, plan, keys = edges.edges.store, job.plan, keys_of(job.plan.run)
    ledger, publisher = LedgerWriter(store, keys), Publisher(edges, sealer, keys)
    with closing(publisher), closing(ledger), open_extract(edges, job.entry, plan.source) as stream:
        counting = Counting(stream)
        scan = Scan(edges, counting, plan.source, plan.as_of, job.choice)
        with closing(iter(scan)) as pieces:
            for piece in pieces:
                ledger.add(piece.others)
                if piece.chunks:
                    ledger.add(sent_records(piece.chunks, [publisher.add(chunk) for chunk in piece.chunks]))
                share = min(1.0, counting.done / plan.source.size)
                tell(Progress(scan.counts.read, publisher.count, share))
                if publisher.gave_up:
                    break
        publisher.send()
        # Beside the last chunks' sealing; never of half an extract.
        parts = [] if publisher.gave_up else ledger.finish()
        chunks = _all_published(plan, job.again, publisher.finish())
    route = scan.route
    return Made(
        scan.counts,
        dict(route.reasons),
        dict(route.repairs),
        route.test_cards,
        route.other_cards,
        tuple(chunks),
        tuple(parts),
    )


def _all_published(plan: Plan, again: str, outcomes: Sequence[Outcome]) -> list[ManifestChunk]:
    """Return every chunk, or say how many are in trouble; what only an operator can mend comes first."""
    published = [outcome.chunk for outcome in outcomes if outcome.chunk is not None]
    foreign = next((outcome.foreign for outcome in outcomes if outcome.foreign is not None), None)
    if foreign is not None:
        raise foreign
    troubles = Counter(outcome.trouble for outcome in outcomes if outcome.chunk is None)
    if troubles:
        why = ", ".join(f"{number} {code}" for code, number in troubles.most_common())
        raise PartialRunError(run=plan.run, count=troubles.total(), reason=why, published=len(published), command=again)
    return published
