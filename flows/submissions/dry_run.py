"""The dry run: every row of an extract is read and checked as a submit would; nothing is sealed or written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

import polars as pl

from flows.extracts.delivery import business_date, open_extract
from flows.reports.lists import UNSENT
from flows.runs.attempts import survey_cards
from flows.runs.chains import recent_commits
from flows.runs.context import IssuerContext
from flows.runs.documents import Night, finished, has_manifest, keys_of, read_manifest, shaped
from flows.runs.identity import local_day
from flows.runs.prior_state import ATTEMPT, seen_rows
from flows.runs.store import Entry
from flows.submissions.build import Scan
from flows.submissions.gates import OPENABLE, GateFacts, Numbered, gate_facts, refusals
from flows.submissions.pending import changed_from
from flows.submissions.plan import DuplicateExtractError, RunInputs, dismiss_line, expected_run, find_extract, identify
from flows.submissions.rows import Inspection, ReasonRows, RowScope, SelectedRows
from flows.submissions.submit import Request, guards, plans_of_extract, refuse_resend
from schemas.ledger import AWAITING, FATES
from schemas.manifest import Counts, SourceIdentity
from schemas.portal import CUID

REJECTS = "what `cardlink check ISSUER EXTRACT --rejects FILE` writes"


class Checked(NamedTuple):
    """The result of a dry run: where rows would go, why, and the gate that would refuse the run."""

    extract: str
    run: str
    as_of: date
    counts: Counts
    chunks: int
    chunk_rows: tuple[int, ...]
    found: tuple[ReasonRows, ...]
    repairs: dict[str, int]
    refused: str
    already: str = ""  # the committed run of the extract, if there is one

    @property
    def verdict(self) -> str:
        """A sentence on what a submit would do."""
        if self.already:
            return f"{self.extract} is committed as run {self.already}: a real run would send nothing."
        if self.refused:
            return f"{self.extract} would be refused: {self.refused}"
        rows = f"{self.counts.submitted:,} of {self.counts.read:,} rows in {self.chunks:,} chunks"
        seen = seen_rows({one.code: one.rows for one in self.found})
        rest = f" {seen:,} already have or await a link." if seen else ""
        return f"{self.extract} would be run {self.run}, as of {self.as_of}: {rows} would be sent.{rest}"

    @property
    def facts(self) -> dict[str, Any]:
        """The result as plain facts."""
        return {**self._asdict(), "counts": self.counts.model_dump()}


@dataclass
class EarlierRuns:
    """What earlier extracts of one dry run would leave: attempts at cards, sizes and profiles, numbers, runs."""

    sent: list[pl.DataFrame] = field(default_factory=list)
    read: list[Night] = field(default_factory=list)
    numbered: list[Numbered] = field(default_factory=list)
    runs: dict[tuple[str, date | None], tuple[str, str]] = field(default_factory=dict)  # by content: extract, run


def check_extract(
    context: IssuerContext,
    name: str | Entry,
    day: date | None,
    opened: Collection[str] = (),
    nights: EarlierRuns | None = None,
    new_run: str = "",
    inspection: Inspection | None = None,
) -> Checked:
    """Check the whole extract as a submit after `nights` would; where it would pass, it is added to them.

    An extract by its name, or a file that is not among the issuer's extracts. What is wrong with mapping and gates is
    noted in `inspection`, where there is one.

    Raises DismissedError, DuplicateExtractError.
    """
    entry = find_extract(context, name) if isinstance(name, str) else name
    source = identify(context.adapters.store, entry)
    as_of = business_date(context, entry, day)
    survey = survey_cards(context, nights.sent if nights else ()) if guards(context.issuer) else None
    asked = RunInputs(as_of, new_run, known=survey.digest if survey else "", dated=True)
    run = expected_run(context, source, asked)
    changed = changed_from(context, source, opened)
    nights = nights or EarlierRuns()
    content = (source.sha256, as_of if context.issuer.full_portfolio else None)
    other, of_run = nights.runs.setdefault(content, (source.key, run))
    if other != source.key and not new_run:
        raise DuplicateExtractError(extract=source.key, other=other, run=of_run, dismiss=dismiss_line(source.key))
    sizes, sent = list[int](), list[pl.DataFrame]()
    with open_extract(context, entry, source) as stream:
        scope, planned = RowScope(prior=survey.known if survey else None, inspection=inspection), nights.numbered
        scan = Scan(context, stream, source, as_of, scope, opened=opened, planned=planned)
        for piece in scan:
            sizes += [chunk.height for chunk in piece.chunks]
            if inspection is not None:
                inspection.unsent.append(piece.others.filter(UNSENT))
            if changed:
                changed.add(piece)
            if survey:
                awaiting = (chunk.with_columns(cuid=CUID, state=pl.lit(AWAITING)) for chunk in piece.chunks)
                sent += [shaped(chunk, ATTEMPT) for chunk in awaiting]
    route, profile = scan.route, scan.route.sample.profile()
    facts = gate_facts(context, keys_of(run).run, source.key, scan.counts, route, profile, nights.read)
    first = [changed.error(scan.counts) if changed else None, scan.held]
    errors = [*filter(None, first), *refusals(facts._replace(rejects=REJECTS), context.issuer, opened)]
    if inspection is not None:
        inspection.errors += errors
    if not errors:
        nights.numbered += [Numbered(scan.number, run, as_of)] if scan.number is not None else []
        nights.sent += sent
        nights.read.append(Night(as_of, scan.counts.read, profile))
    return Checked(
        extract=source.key,
        run=run,
        as_of=as_of,
        counts=scan.counts,
        chunks=len(sizes),
        chunk_rows=tuple(sizes),
        found=tuple(route.reasons),
        repairs=dict(route.repairs),
        refused=str(errors[0]) if errors else "",
    )


class SelectionOutcome(NamedTuple):
    """What a run of selected rows would come to: its counts, its chunks, and the gate that would refuse it."""

    counts: Counts
    chunks: int = 0
    refused: str = ""


NO_ROWS = SelectionOutcome(Counts(lines=0, read=0, **dict.fromkeys(FATES, 0)))


def check_selection(
    context: IssuerContext, entry: Entry, source: SourceIdentity, rows: SelectedRows
) -> SelectionOutcome:
    """Check rows that are sent again as their run would."""
    as_of = local_day(context.adapters.now(), context.issuer.time_zone)
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, as_of, RowScope(selected=rows))
        chunks = sum(len(piece.chunks) for piece in scan)
    facts = GateFacts(source.key, scan.counts, (), scan.route.test_cards, scan.route.other_cards, 0)
    return SelectionOutcome(scan.counts, chunks, str(next(refusals(facts, context.issuer, OPENABLE), "")))


def rehearse(
    context: IssuerContext, request: Request, nights: EarlierRuns | None = None, inspection: Inspection | None = None
) -> Checked:
    """Check every row as a submit would after `nights`; SentTwiceError where a new run would send a card twice."""
    store = context.adapters.store
    refuse_resend(context, request)
    plans = [] if request.new_run else plans_of_extract(context, request.extract)
    key = find_extract(context, request.extract).key
    whole = [plan for plan in plans if plan.selection is None and plan.source.key == key]
    if whole:
        finished(store, keys_of(whole[-1].run))  # AbandonedError, as a real run would raise it
    recent = {manifest.run for manifest in recent_commits(store, context.issuer.issuer)}
    dying = {run for run in recent if not has_manifest(store, keys_of(run))}  # a real run finishes these first
    committed = [plan.run for plan in whole if plan.run in dying or read_manifest(store, keys_of(plan.run)) is not None]
    day = request.business_date or (whole[-1].as_of if whole else None)  # a rerun keeps the date of its plan
    checked = check_extract(context, request.extract, day, request.opened, nights, request.new_run, inspection)
    return checked._replace(already=committed[-1] if committed else "")
