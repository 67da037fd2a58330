"""Backfill nights that were missed: list what would be sent, then send exactly that list."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from flows.errors import ExtractError, OperatorError
from flows.runs.context import IssuerContext
from flows.runs.documents import AbandonedError, keys_of, plans, read_manifest
from flows.runs.identity import business_date, canonical, digest
from flows.runs.keys import backfills, extracts
from flows.runs.store import ConflictError, Entry, ObjectMissingError, read, write_once
from flows.submissions.build import ExpectedOutcome, Progress
from flows.submissions.dry_run import Checked, EarlierRuns, rehearse
from flows.submissions.plan import identify, pending
from flows.submissions.submit import Request, Submitted, finish_commits, submit
from schemas.manifest import Counts, Document

DIGITS = 12  # of a list's digest: typed by a person, compared with lists of one issuer


class ListChangedError(OperatorError):
    """What would be sent is not what was listed."""

    message = "{issuer}: what would be sent now is not list {asked}: {difference}. Nothing was sent."
    next_step = "Look at the new list with `cardlink backfill {issuer} --from {start} --to {end}`, and send that one."


class DateRange(NamedTuple):
    """A range of business dates, both ends included."""

    start: date
    end: date


class MissedExtract(Document):
    """One extract without a committed run, and what a submit of it would send, or why it would be refused."""

    extract: str
    sha256: str
    as_of: date
    run: str = ""
    counts: Counts | None = None
    chunk_rows: tuple[int, ...] = ()
    reasons: dict[str, int] = Field(default_factory=dict)
    refused: str = ""

    def expected(self) -> ExpectedOutcome | None:
        """Return what a submit of it must come out as; None where it would be refused."""
        return ExpectedOutcome(self.sha256, self.counts, self.reasons) if self.counts and not self.refused else None


class BackfillList(Document):
    """What a backfill would send, oldest night first; its digest stands for exactly this."""

    issuer: str
    missed: tuple[MissedExtract, ...]

    @property
    def digest(self) -> str:
        """The list's name: the first digits of its SHA-256."""
        return digest(canonical(self))[:DIGITS]

    @property
    def to_send(self) -> tuple[MissedExtract, ...]:
        """The extracts that would be sent."""
        return tuple(one for one in self.missed if not one.refused)


def backfill(context: IssuerContext, span: DateRange) -> BackfillList:
    """List the extracts of a span that have no committed run and what each would send, the earlier ones taken for sent.

    Nothing is written.
    """
    nights = EarlierRuns()
    ordered = sorted((_day(context, entry), entry.key, entry) for entry in pending(context))
    missed = [_rehearsed(context, entry, day, nights) for day, _, entry in ordered if span.start <= day <= span.end]
    return BackfillList(issuer=context.issuer.issuer, missed=tuple(missed))


def missed_table(listed: BackfillList) -> list[dict[str, Any]]:
    """Return one line per extract of a list: what would be sent of it, or why nothing."""
    return [_line(one) for one in listed.missed]


def _line(one: MissedExtract) -> dict[str, Any]:
    counted = one.counts.model_dump(include={"read", "submitted", "rejected", "suppressed"}) if one.counts else {}
    reported = {"extract": one.extract, "business date": one.as_of.isoformat(), "run": one.run}
    return {**reported, **counted, "chunks": len(one.chunk_rows), "refused": one.refused}


def send(
    context: IssuerContext, span: DateRange, asked: str, on_progress: Callable[[str, Progress], None] = lambda *_: None
) -> list[Submitted]:
    """Submit exactly the list of that digest, oldest night first.

    The list is kept when it is first sent, so that the same command finishes what a crash interrupted. Raises
    ListChangedError, before anything is sent, where an extract came, changed, or would come out otherwise.
    """
    listed = _approved_list(context, span, asked)
    return [
        submit(context, Request(one.extract, one.as_of, expected=one.expected()), partial(on_progress, one.extract))
        for one in listed.to_send
    ]


def _approved_list(context: IssuerContext, span: DateRange, asked: str) -> BackfillList:
    """Return the list asked for, where what would be sent now is that list or what is left of it."""
    finish_commits(context)
    kept, now = _stored_list(context, asked), backfill(context, span)
    wanted = kept or now
    if wanted.digest != asked:
        raise _changed(context, span, asked, f"its digest is {now.digest}")
    left = _remaining(context, wanted)
    if [one.extract for one in left] != [one.extract for one in now.missed]:
        raise _changed(context, span, asked, f"{len(now.missed)} extracts instead of {len(left)}, or others")
    for one, other in zip(left, now.missed, strict=True):
        if one != other:
            raise _changed(context, span, asked, f"{one.extract} would come out otherwise")
    if kept is None:
        write_once(context.adapters.store, _key(context, asked), canonical(wanted))
    return wanted


def _remaining(context: IssuerContext, listed: BackfillList) -> list[MissedExtract]:
    """Return what of a list has no committed run yet."""
    store, issuer = context.adapters.store, context.issuer.issuer
    there = (plan for plan in plans(store, issuer) if plan.selection is None)
    done = {plan.source.sha256 for plan in there if read_manifest(store, keys_of(plan.run)) is not None}
    return [one for one in listed.missed if one.refused or one.sha256 not in done]


def _rehearsed(context: IssuerContext, entry: Entry, day: date, nights: EarlierRuns) -> MissedExtract:
    name = entry.key.removeprefix(extracts(context.issuer.issuer))
    found = MissedExtract(extract=name, sha256=identify(context.adapters.store, entry).sha256, as_of=day)
    try:
        done = rehearse(context, Request(name), nights)
    except (ExtractError, AbandonedError) as error:
        return found.model_copy(update={"refused": str(error)})
    refused = done.verdict if done.already else done.checked.refused
    return found.model_copy(update={**_outcome(done.checked), "refused": refused})


def _outcome(checked: Checked) -> dict[str, Any]:
    return {
        "run": checked.run,
        "as_of": checked.as_of,
        "counts": checked.counts,
        "chunk_rows": checked.chunk_rows,
        "reasons": {one.code: one.rows for one in checked.found},
    }


def _stored_list(context: IssuerContext, asked: str) -> BackfillList | None:
    """Return a list that was sent before, None where it was not."""
    key = _key(context, asked)
    try:
        return BackfillList.model_validate_json(read(context.adapters.store, key))
    except ObjectMissingError:
        return None
    except ValidationError:
        pass
    raise ConflictError(key=key)


def _key(context: IssuerContext, asked: str) -> str:
    return f"{backfills(context.issuer.issuer)}{asked}.json"


def _day(context: IssuerContext, entry: Entry) -> date:
    return business_date(entry.key, entry.modified, context.issuer.time_zone)


def _changed(context: IssuerContext, span: DateRange, asked: str, what: str) -> ListChangedError:
    return ListChangedError(
        issuer=context.issuer.issuer, asked=asked, difference=what, start=str(span.start), end=str(span.end)
    )
