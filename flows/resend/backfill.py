"""Backfill missed nights: list what would be sent, then send exactly that list."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from pydantic import Field

from flows.errors import ExtractError, OperatorError
from flows.extracts.delivery import business_date
from flows.runs.context import IssuerContext
from flows.runs.documents import AbandonedError, keys_of, plans, read_document, read_manifest
from flows.runs.identity import canonical, digest
from flows.runs.keys import backfills, extracts
from flows.runs.store import Entry, write_once
from flows.submissions.build import ExpectedOutcome, OnProgress
from flows.submissions.dry_run import EarlierRuns, rehearse
from flows.submissions.pending import pending
from flows.submissions.plan import identify
from flows.submissions.submit import Request, Submitted, finish_commits, submit
from schemas.manifest import Counts, Document

DIGITS = 12  # of a list's digest: short enough to type, and compared only with lists of one issuer


class ListChangedError(OperatorError):
    """What would be sent now is not what was listed."""

    message = "{issuer}: what would be sent now is not list {asked}: {difference}. Nothing was sent."
    next_step = "Look at the new list with `cardlink backfill {issuer} --from {start} --to {end}`, and send that one."


class DateRange(NamedTuple):
    """A range of business dates, both ends included."""

    start: date
    end: date


class MissedExtract(Document):
    """An extract without a committed run, and what a submit of it would send, or why it would be refused."""

    extract: str
    sha256: str
    as_of: date
    run: str = ""
    counts: Counts | None = None
    chunk_rows: tuple[int, ...] = ()
    reasons: dict[str, int] = Field(default_factory=dict)
    refused: str = ""

    def expected(self) -> ExpectedOutcome | None:
        """Return the outcome a submit of it must have; None where it would be refused."""
        return ExpectedOutcome(self.sha256, self.counts, self.reasons) if self.counts and not self.refused else None


class BackfillList(Document):
    """What a backfill would send, oldest night first."""

    issuer: str
    missed: tuple[MissedExtract, ...]

    @property
    def digest(self) -> str:
        """The list's name: the first digits of its SHA-256, so it means exactly this list."""
        return digest(canonical(self))[:DIGITS]

    @property
    def to_send(self) -> tuple[MissedExtract, ...]:
        """The extracts that would be sent."""
        return tuple(one for one in self.missed if not one.refused)


def backfill(context: IssuerContext, span: DateRange) -> BackfillList:
    """List the extracts of a span without a committed run, and what each would send after the earlier ones."""
    issuer, nights = context.issuer, EarlierRuns()
    dated = [(business_date(context, one), one.key, one) for one in pending(context)]
    missed = [_rehearsed(context, one, day, nights) for day, _, one in sorted(dated) if span.start <= day <= span.end]
    return BackfillList(issuer=issuer.issuer, missed=tuple(missed))


def send(
    context: IssuerContext, span: DateRange, asked: str, on_progress: OnProgress = lambda _: None
) -> list[Submitted]:
    """Submit exactly the list with that digest, oldest night first.

    The list is stored before the first submit, so the same command finishes what a crash interrupted. Raises
    ListChangedError, before anything is sent, where an extract was added, changed, or would have another outcome.
    """
    listed = _approved_list(context, span, asked)
    return [
        submit(context, Request(one.extract, one.as_of, expected=one.expected()), on_progress) for one in listed.to_send
    ]


def _approved_list(context: IssuerContext, span: DateRange, asked: str) -> BackfillList:
    """Return the list asked for, provided that it, or the rest of it, is what would be sent now."""
    finish_commits(context)
    store, issuer = context.adapters.store, context.issuer.issuer
    key = f"{backfills(issuer)}{asked}.json"
    stored, now = read_document(store, key, BackfillList), backfill(context, span)
    wanted = stored or now
    whole = (plan for plan in plans(store, issuer) if plan.selection is None)
    done = {plan.source.sha256 for plan in whole if read_manifest(store, keys_of(plan.run)) is not None}
    left = [one for one in wanted.missed if one.refused or one.sha256 not in done]
    others = [one.extract for one, other in zip(left, now.missed, strict=False) if one != other]
    difference = ""
    if wanted.digest != asked:
        difference = f"its digest is {now.digest}"
    elif [one.extract for one in left] != [one.extract for one in now.missed]:
        difference = f"{len(now.missed)} extracts instead of {len(left)}, or others"
    elif others:
        difference = f"{others[0]} would have another outcome"
    if difference:
        start, end = str(span.start), str(span.end)
        raise ListChangedError(issuer=issuer, asked=asked, difference=difference, start=start, end=end)
    if stored is None:
        write_once(store, key, canonical(wanted))
    return wanted


def _rehearsed(context: IssuerContext, entry: Entry, day: date, nights: EarlierRuns) -> MissedExtract:
    name = entry.key.removeprefix(extracts(context.issuer.issuer))
    found = MissedExtract(extract=name, sha256=identify(context.adapters.store, entry).sha256, as_of=day)
    try:
        checked = rehearse(context, Request(name), nights)
    except (ExtractError, AbandonedError) as error:
        return found.model_copy(update={"refused": str(error)})
    outcome = {
        "run": checked.run,
        "as_of": checked.as_of,
        "counts": checked.counts,
        "chunk_rows": checked.chunk_rows,
        "reasons": {one.code: one.rows for one in checked.found},
        "refused": checked.verdict if checked.already else checked.refused,
    }
    return found.model_copy(update=outcome)
