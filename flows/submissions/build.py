"""Build a run between plan and commit: one streaming pass from blocks to sealed chunks and ledger
parts.

A submit publishes the pieces of the pass; a dry run only counts them. Every row is accounted for.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from functools import partial
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.extracts.decode import Readable
from flows.extracts.delivery import open_extract, read_sidecar
from flows.extracts.errors import EmptyExtractError
from flows.extracts.mapping import plan_mapping
from flows.extracts.reader import Block, Extract
from flows.runs.context import IssuerContext
from flows.runs.documents import nights_before
from flows.runs.keys import keys_of
from flows.runs.sealing import Sealer
from flows.runs.store import Entry
from flows.runs.threads import prefetch
from flows.submissions.drift import departures
from flows.submissions.gates import Built, out_of_sequence, sequence_number
from flows.submissions.ledger import LedgerWriter, sent_records
from flows.submissions.publisher import Outcome, PartialRunError, Publisher
from flows.submissions.rows import EVERY_ROW, Route, RowScope, Validated
from flows.submissions.splitter import Splitter
from schemas import ledger
from schemas.corrections import BESIDE
from schemas.issuer import SourceSettings
from schemas.manifest import Counts, Inputs, Manifest, ManifestChunk, Plan, SourceIdentity


def describe_pace(rows: int, share: float, elapsed: float) -> str:
    """Return rows read, rows a second and time left; `share` of the extract's bytes was read in
    `elapsed` seconds.
    """
    pace = f", {rows / elapsed:,.0f} a second" if elapsed > 0 and rows else ""
    left = (
        f", {timedelta(seconds=round(elapsed * (1 - share) / share))} left"
        if pace and share > 0
        else ""
    )
    return f"{rows:,} rows{pace}{left}"


class Piece(NamedTuple):
    """The result of one block: chunks that are full, and ledger records of rows that are not
    sent.
    """

    chunks: list[pl.DataFrame]
    others: pl.DataFrame


class Scan:
    """The pass itself; iterate once, then read `counts` and the route's tallies. `held` is why it
    must not begin.
    """

    def __init__(
        self,
        context: IssuerContext,
        stream: Readable,
        source: SourceIdentity,
        as_of: date,
        scope: RowScope = EVERY_ROW,
        *,
        opened: Collection[str] = (),
    ) -> None:
        issuer = context.issuer
        self._selected = scope.selected is not None
        # selected rows: their run proved the extract
        proofs = SourceSettings() if self._selected else issuer.source
        self._sidecar = read_sidecar(context.adapters.store, proofs, source.key)
        self._sidecar.prove(bytes=source.size, sha256=source.sha256)
        self._extract = Extract(stream, issuer.source, source.key, proven=self._selected)
        self.number = sequence_number(proofs, source.key, self._extract.before)
        self.held = out_of_sequence(context, source, as_of, self.number, opened)
        beside = BESIDE if self._selected else ()
        mapping = plan_mapping(
            self._extract.header, issuer, source.key, context.header.names, beside, scope.note
        )
        reread = partial(_reread, context, stream, source)
        self.route = Route(issuer, mapping, as_of, source, scope, context.header.order, reread)
        self._splitter = Splitter(issuer.portal.rows_per_chunk)
        self._fates = Counter(dict.fromkeys(ledger.FATES, 0))

    def __iter__(self) -> Generator[Piece, None, None]:
        """Yield a piece per block, and a last one with the chunks that stayed short; close it if
        left early.
        """
        normalised = prefetch(map(self.route.normalise, self._blocks()))
        with (
            closing(normalised),
            closing(prefetch(map(self.route.validate, normalised))) as validated,
        ):
            yield from map(self._piece, validated)
        yield Piece(list(self._splitter.finish()), pl.DataFrame(schema=ledger.dtypes()))

    def _piece(self, block: Validated) -> Piece:
        good, others = self.route.process(block)
        self._fates[ledger.SUBMITTED] += good.height
        self._fates.update(dict(others["fate"].value_counts().iter_rows()))
        return Piece(list(self._splitter.add(good)), others)

    def _blocks(self) -> Iterator[Block]:
        """Yield the extract's blocks; SidecarError where the sidecar counts other rows, or any of
        none.
        """
        try:
            yield from self._extract
        except EmptyExtractError:
            self._sidecar.prove(count=0)
            raise
        self._sidecar.prove(count=self._extract.height)

    @property
    def counts(self) -> Counts:
        """The counts of the rows so far."""
        seen = self._extract
        if self._selected:  # the extract as a whole was counted by the run that is repeated
            return Counts(lines=seen.lines, read=sum(self._fates.values()), **self._fates)
        return Counts(lines=seen.lines, read=seen.height, trailer=seen.trailer_count, **self._fates)


def _reread(context: IssuerContext, stream: Readable, source: SourceIdentity) -> Iterator[Block]:
    """Yield the blocks of an extract that is being read a second time; of one in memory, from
    there.
    """
    if isinstance(stream, BytesIO):
        yield from Extract(
            BytesIO(stream.getvalue()), context.issuer.source, source.key, proven=True
        )
        return
    with context.adapters.store.open(source.key) as stored:
        entry = stored.entry
    with open_extract(context, entry, source) as second:
        yield from Extract(second, context.issuer.source, source.key, proven=True)


class ExpectedOutcome(NamedTuple):
    """What an operator approved: the extract's digest, and where its rows go and why."""

    sha256: str
    counts: Counts
    reasons: dict[str, int]


class Job(NamedTuple):
    """A planned run and how to do it: which rows, which gates are open, and the command that
    finishes it.
    """

    plan: Plan
    entry: Entry
    scope: RowScope
    opened: Collection[str]
    again: str
    since: int | None = None  # the last commit that was known when the rows were chosen
    guarded: bool = True  # no card of a later commit is sent
    expected: ExpectedOutcome | None = None  # another outcome is not committed


class Progress(NamedTuple):
    """How far a run has got."""

    rows: int
    chunks: int
    share: float  # of the extract's bytes, 0 to 1


OnProgress = Callable[[Progress], None]


def build_run(
    context: IssuerContext,
    job: Job,
    sealer: Sealer | None,
    on_progress: OnProgress = lambda _: None,
) -> Built:
    """Make the one pass over an extract: every row to the ledger, every chunk published;
    PartialRunError.

    Without `sealer` chunks are only counted: a dry run.
    """
    store, plan, keys = context.adapters.store, job.plan, keys_of(job.plan.run)
    ledger, publisher = (
        LedgerWriter(store, keys, anew=sealer is None),
        Publisher(context, sealer, keys),
    )
    with closing(publisher), open_extract(context, job.entry, plan.source) as stream:
        scan = Scan(context, stream, plan.source, plan.as_of, job.scope, opened=job.opened)
        if scan.held is not None and sealer is not None:
            raise scan.held
        with closing(iter(scan)) as pieces:
            for piece in pieces:
                ledger.add(piece.others)
                if piece.chunks:
                    ledger.add(
                        sent_records(piece.chunks, [publisher.add(chunk) for chunk in piece.chunks])
                    )
                share = min(1.0, stream.tell() / plan.source.size)
                on_progress(Progress(scan.counts.read, publisher.count, share))
                if publisher.has_given_up:
                    break
        publisher.send()
        # While the last chunks are sealed; never of half an extract.
        parts = [] if publisher.has_given_up else ledger.finish()
        chunks = _all_published(plan, job.again, publisher.finish())
    profile = None if plan.selection else scan.route.sample.profile()
    manifest = Manifest(
        **{name: getattr(plan, name) for name in Inputs.model_fields},
        counts=scan.counts,
        reasons={one.code: one.rows for one in scan.route.reasons},
        repairs=dict(scan.route.repairs),
        chunks=tuple(chunks),
        ledger=tuple(parts),
        sequence=scan.number,
        profile=profile,
    )
    before, route = nights_before(store, keys.run), scan.route
    drift = departures(profile, before, context.issuer.limits.max_drift)
    cards = route.test_cards, route.other_cards
    return Built(manifest, [one.read for one in before], *cards, drift, scan.held, route.reasons)


def _all_published(plan: Plan, again: str, outcomes: Sequence[Outcome]) -> list[ManifestChunk]:
    """Return every chunk, or raise PartialRunError; ForeignChunkError, which needs an operator,
    comes first.
    """
    published = [outcome.chunk for outcome in outcomes if outcome.chunk is not None]
    foreign = next((outcome.foreign for outcome in outcomes if outcome.foreign is not None), None)
    if foreign is not None:
        raise foreign
    problems = Counter(outcome.trouble for outcome in outcomes if outcome.chunk is None)
    if problems:
        why = ", ".join(f"{number} {code}" for code, number in problems.most_common())
        raise PartialRunError(
            run=plan.run,
            count=problems.total(),
            reason=why,
            published=len(published),
            command=again,
        )
    return published
