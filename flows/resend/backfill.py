"""Backfill missed nights: list what would be sent, then send exactly that list."""

from datetime import date
from typing import NamedTuple

from flows.errors import ExtractError, OperatorError
from flows.extracts.delivery import business_date
from flows.runs.context import IssuerContext, overlaid
from flows.runs.errors import AbandonedError
from flows.runs.identity import digest
from flows.runs.store import Entry
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence, Slot, Step
from flows.submissions.build import ExpectedOutcome, OnProgress
from flows.submissions.commit import finish_commits
from flows.submissions.extract_lookup import identify
from flows.submissions.extract_states import extracts_to_submit
from flows.submissions.rehearsal import NO_ROWS, Checked, rehearse
from flows.submissions.submit import Request, Submitted, submit

DIGITS = 12  # of a list's digest: short enough to type, and compared only with lists of one issuer


class ListChangedError(OperatorError):
    """What would be sent now is not what was listed."""

    message = (
        "{issuer}: what would be sent now is not list {asked}, but list {now}. Nothing was sent."
    )
    next_step = Sentence(
        "Look at the new list with {backfill}, and send that one.",
        backfill=Step("backfill", Slot("issuer"), from_=Slot("start"), to=Slot("end")),
    )


class DaysReversedError(OperatorError):
    """The first day is after the last, so there is no day between them."""

    message = "{start} is after {end}: there is no day from the one to the other."
    next_step = Sentence(
        "Name the earlier day first: {backfill}.",
        backfill=Step("backfill", Slot("issuer"), from_=Slot("end"), to=Slot("start")),
    )


class MissedExtract(NamedTuple):
    """An extract of a missed night: what a submit would do, and the outcome it must have."""

    checked: Checked
    outcome: ExpectedOutcome


class BackfillList(NamedTuple):
    """What a backfill would send, oldest night first; `digest` names exactly this."""

    missed: tuple[MissedExtract, ...]
    digest: str


class Sent(NamedTuple):
    """The runs that a backfill sent, and what it finished of runs that had been begun before."""

    runs: list[Submitted]
    remarks: tuple[str, ...]


def backfill(context: IssuerContext, start: date, end: date) -> BackfillList:
    """List the extracts of these business dates without a committed run.

    Each with what it would send after the earlier ones. The digest covers what the committed runs
    of these dates have sent, so it stays the same while its list is sent. Raises DaysReversedError.
    """
    if start > end:
        name = context.issuer.issuer
        raise DaysReversedError(issuer=name, start=str(start), end=str(end))
    dry = overlaid(context)
    pending = extracts_to_submit(context)
    dated = sorted((business_date(context, extract), extract.key, extract) for extract in pending)
    missed = [_rehearsed(dry, extract) for day, _, extract in dated if start <= day <= end]
    lines = [
        _line(run.as_of, ExpectedOutcome(run.source.sha256, run.counts, run.reasons))
        for run in StoredRuns(context.adapters, context.issuer.issuer).manifests()
        if run.selection is None and start <= run.as_of <= end
    ]
    lines += [
        _line(extract.checked.as_of, extract.outcome, str(extract.checked.refused))
        for extract in missed
    ]
    return BackfillList(tuple(missed), digest("\n".join(sorted(lines)).encode())[:DIGITS])


def _line(day: date, outcome: ExpectedOutcome, refused: str = "") -> str:
    """Return what the digest covers of one extract."""
    reasons = sorted(outcome.reasons.items())
    return f"{day} {outcome.sha256} {outcome.counts} {reasons} {refused}"


def send(
    context: IssuerContext,
    start: date,
    end: date,
    list_digest: str,
    on_progress: OnProgress = lambda _: None,
) -> Sent:
    """Submit exactly the list with that digest, oldest night first; after a crash, what is left.

    Raises ListChangedError, before anything is sent, where an extract came, changed, or would have
    another outcome.
    """
    finished = finish_commits(context) if start <= end else ()
    listed = backfill(context, start, end)
    if listed.digest != list_digest:
        raise ListChangedError(
            issuer=context.issuer.issuer,
            asked=list_digest,
            now=listed.digest,
            start=str(start),
            end=str(end),
        )
    requests = [
        Request(checked.extract, checked.as_of, expected=outcome)
        for checked, outcome in listed.missed
        if not checked.refused
    ]
    return Sent([submit(context, request, on_progress) for request in requests], finished)


def _rehearsed(context: IssuerContext, entry: Entry) -> MissedExtract:
    sha256 = identify(context.adapters.store, entry).sha256
    try:
        checked = rehearse(context, Request(entry.key))
    except (ExtractError, AbandonedError) as error:
        day = business_date(context, entry)
        checked = NO_ROWS._replace(extract=entry.key, as_of=day, refused=str(error))
    if checked.already:
        checked = checked._replace(refused=checked.verdict)
    reasons = {reason.code: reason.rows for reason in checked.found}
    return MissedExtract(checked, ExpectedOutcome(sha256, checked.counts, reasons))
