"""Submit one extract: plan, claim, one streaming pass, gates, and the manifest last.

Nothing counts before the manifest. Whatever goes wrong before it, the same command again is the recovery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing
from datetime import date, timedelta
from typing import NamedTuple

from flows.core.errors import BalanceError, ExtractError, GateError, OperatorError
from flows.core.gates import Night, refusal
from flows.core.lease import Lease
from flows.core.planning import canonical
from flows.core.ports import Entry, Sealer
from flows.core.refine import sent_record
from flows.steps.edges import IssuerEdges, note, write_once
from flows.steps.ledger import LedgerWriter
from flows.steps.plan import find_extract, make_plan
from flows.steps.publish import Outcome, PartialRunError, Publisher
from flows.steps.report import write_rejects
from flows.steps.runs import keys_of, read_manifest, rows_before
from flows.steps.scan import Scan, open_extract
from schemas.manifest import LedgerPart, Manifest, ManifestChunk, Plan

CLAIM = timedelta(minutes=10)


class Request(NamedTuple):
    """What is asked for: an extract by name, and what an operator may decide about it."""

    extract: str
    business_date: date | None = None
    opened: Collection[str] = ()  # gates opened on purpose
    new_run: str = ""  # the reason for a new run of an extract that already has one


class Progress(NamedTuple):
    """How far the pass is."""

    rows: int
    chunks: int


class Submitted(NamedTuple):
    """A committed run, whether it was found done, and what is worth saying aloud."""

    manifest: Manifest
    already: bool
    remarks: tuple[str, ...] = ()


Tell = Callable[[Progress], None]


def submit(edges: IssuerEdges, request: Request, tell: Tell = lambda _: None) -> Submitted:
    """Take one extract all the way to its manifest; a finished run again does nothing and says so.

    Raises the gates' errors, PartialRunError, ClaimedError and what the edges raise; each says what to do.
    """
    with edges.sealer() as sealer:  # a key that does not fit is refused before anything is read
        entry = find_extract(edges, request.extract)
        planned = make_plan(edges, entry, request.business_date, request.new_run)
        remarks = (*planned.remarks, *sealer.warnings)
        outside, keys = edges.edges, keys_of(planned.plan.run)
        done = read_manifest(outside.store, keys)
        if done is not None:
            return Submitted(done, already=True, remarks=remarks)
        lease = Lease.take(outside.store, keys.claims, outside.actor, outside.now(), CLAIM)
        try:
            manifest = _work(edges, planned.plan, entry, request.opened, sealer, _renewing(lease, edges, tell))
            write_once(outside.store, keys.manifest, canonical(manifest))
            note(outside, keys, "committed", rows=manifest.counts.submitted, opened=sorted(request.opened))
        except (ExtractError, GateError, BalanceError, OperatorError) as error:
            note(outside, keys, "refused", why=type(error).__name__)
            raise
        finally:
            lease.release(outside.now())
    return Submitted(manifest, already=False, remarks=remarks)


def _work(
    edges: IssuerEdges, plan: Plan, entry: Entry, opened: Collection[str], sealer: Sealer, tell: Tell
) -> Manifest:
    """Make the one pass and return the manifest that would commit it; raises where a gate does not hold."""
    store, keys = edges.edges.store, keys_of(plan.run)
    ledger = LedgerWriter(store, keys)
    publisher = Publisher(store, sealer, keys, edges.header, edges.issuer.portal.extension)
    with closing(publisher), open_extract(edges, entry, plan.source) as stream:
        scan = Scan(edges.issuer, stream, plan.source, plan.as_of)
        for piece in scan:
            ledger.add(piece.others)
            for chunk in piece.chunks:
                ledger.add(sent_record(chunk, publisher.add(chunk)))
            tell(Progress(scan.counts.read, publisher.count))
        outcomes = publisher.finish()
    parts = ledger.finish()
    _pass_gates(edges, plan, scan, parts, opened)
    return _manifest(plan, scan, _all_published(plan, edges.issuer.issuer, outcomes), parts)


def _pass_gates(edges: IssuerEdges, plan: Plan, scan: Scan, parts: list[LedgerPart], opened: Collection[str]) -> None:
    store, keys, refiner = edges.edges.store, keys_of(plan.run), scan.refiner
    night = Night(plan.source.key, scan.counts, rows_before(store, keys.run), refiner.test_cards, refiner.other_cards)
    refused = refusal(night, edges.issuer.limits, test=edges.issuer.test, opened=opened)
    if refused is not None:
        write_rejects(store, keys, parts)
        raise refused


def _all_published(plan: Plan, issuer: str, outcomes: list[Outcome]) -> list[ManifestChunk]:
    published = [outcome.chunk for outcome in outcomes if outcome.chunk is not None]
    troubles = Counter(outcome.trouble for outcome in outcomes if outcome.chunk is None)
    if troubles:
        why = ", ".join(f"{count} {code}" for code, count in troubles.most_common())
        extract = plan.source.key.rpartition("/")[2]
        raise PartialRunError(plan.run, troubles.total(), why, len(published), issuer, extract)
    return published


def _manifest(plan: Plan, scan: Scan, chunks: list[ManifestChunk], parts: list[LedgerPart]) -> Manifest:
    return Manifest(
        run=plan.run,
        source=plan.source,
        as_of=plan.as_of,
        settings_sha256=plan.settings_sha256,
        recipe=plan.recipe,
        recipients=plan.recipients,
        counts=scan.counts,
        reasons=dict(scan.refiner.reasons),
        repairs=dict(scan.refiner.repairs),
        chunks=tuple(chunks),
        ledger=tuple(parts),
    )


def _renewing(lease: Lease, edges: IssuerEdges, tell: Tell) -> Tell:
    """Renew the claim at every block, so that a claim runs out only where its run is dead."""

    def renew(progress: Progress) -> None:
        lease.renew(edges.edges.now())
        tell(progress)

    return renew
