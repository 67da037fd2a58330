"""Backfill missed nights: list what would be sent, then send exactly that list."""

from datetime import date
from typing import NamedTuple

from flows.errors import ExtractError, OperatorError
from flows.extracts.delivery import business_date
from flows.runs.context import IssuerContext, overlaid
from flows.runs.documents import manifests
from flows.runs.errors import AbandonedError
from flows.runs.identity import digest
from flows.runs.store import Entry
from flows.submissions.build import ExpectedOutcome, OnProgress
from flows.submissions.commit import finish_commits
from flows.submissions.extract_states import pending_extracts
from flows.submissions.plan import identify
from flows.submissions.rehearsal import NO_ROWS, Checked, rehearse
from flows.submissions.submit import Request, Submitted, submit

DIGITS = 12  # of a list's digest: short enough to type, and compared only with lists of one issuer


class ListChangedError(OperatorError):
    """What would be sent now is not what was listed."""

    message = (
        "{issuer}: what would be sent now is not list {asked}, but list {now}. Nothing was sent."
    )
    next_step = "Look at the new list with `cardlink backfill {issuer} --from {start} --to {end}`, and send that one."


class BackfillList(NamedTuple):
    """What a backfill would send, oldest night first, with the outcome it must have; `digest` names
    exactly this.
    """

    missed: tuple[tuple[Checked, ExpectedOutcome], ...]
    digest: str


def backfill(context: IssuerContext, start: date, end: date) -> BackfillList:
    """List the extracts of these business dates without a committed run, and what each would send
    after the earlier.

    The digest covers what the committed runs of these dates have sent, so it stays the same while
    its list is sent.
    """
    store, dry = context.adapters.store, overlaid(context)
    dated = sorted((business_date(context, one), one.key, one) for one in pending_extracts(context))
    missed = [_rehearsed(dry, one) for day, _, one in dated if start <= day <= end]
    sent = [
        one
        for one in manifests(store, context.issuer.issuer)
        if one.selection is None and start <= one.as_of <= end
    ]
    lines = [
        (one.as_of, ExpectedOutcome(one.source.sha256, one.counts, one.reasons), "") for one in sent
    ]
    lines += [(checked.as_of, outcome, checked.refused) for checked, outcome in missed]
    texts = [
        f"{day} {one.sha256} {one.counts} {sorted(one.reasons.items())} {why}"
        for day, one, why in lines
    ]
    return BackfillList(tuple(missed), digest("\n".join(sorted(texts)).encode())[:DIGITS])


def send(
    context: IssuerContext,
    start: date,
    end: date,
    asked: str,
    on_progress: OnProgress = lambda _: None,
) -> list[Submitted]:
    """Submit exactly the list with that digest, oldest night first; after a crash, what is left of
    it.

    Raises ListChangedError, before anything is sent, where an extract came, changed, or would have
    another outcome.
    """
    finish_commits(context)
    issuer, listed = context.issuer.issuer, backfill(context, start, end)
    if listed.digest != asked:
        raise ListChangedError(
            issuer=issuer, asked=asked, now=listed.digest, start=str(start), end=str(end)
        )
    todo = [(one, outcome) for one, outcome in listed.missed if not one.refused]
    requests = [Request(one.extract, one.as_of, expected=outcome) for one, outcome in todo]
    return [submit(context, request, on_progress) for request in requests]


def _rehearsed(context: IssuerContext, entry: Entry) -> tuple[Checked, ExpectedOutcome]:
    sha256 = identify(context.adapters.store, entry).sha256
    try:
        checked = rehearse(context, Request(entry.key))
    except (ExtractError, AbandonedError) as error:
        day = business_date(context, entry)
        checked = NO_ROWS._replace(extract=entry.key, as_of=day, refused=str(error))
    if checked.already:
        checked = checked._replace(refused=checked.verdict)
    return checked, ExpectedOutcome(
        sha256, checked.counts, {one.code: one.rows for one in checked.found}
    )
