"""Single links, for one row, for many, or for fields typed in: each recorded before and after its
request.

A command that is stopped anywhere is repeated as it is: it requests nothing twice.
"""

from __future__ import annotations

import csv
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO, StringIO
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from flows.errors import CardlinkError, TryAgainError
from flows.extensions.partner_api.link_plan import (
    LOST,
    NO_ANSWER,
    UNREQUESTED,
    LinkPlan,
    RowName,
    RowOutcome,
    refine,
    refined_rows,
    typed_row,
)
from flows.extensions.partner_api.link_requests import (
    AS_USUAL,
    Prepared,
    SingleRequests,
    SingleUnderWayError,
    Supply,
    Terms,
    nothing_supplied,
    prepared_request,
)
from flows.extensions.partner_api.run_links import CardGuard, CardReferenceError, CardTakenError
from flows.extensions.partner_api.service import (
    AnswerLostError,
    Linking,
    LinkRequestError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.settings import REQUESTS_AT_A_TIME
from flows.redaction import hiding
from flows.reports.behind import finish_reports, report_behind
from flows.resend.selected_run import SourceGoneError
from flows.runs.context import IssuerContext
from flows.runs.single_links import SingleLink, row_attempt
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.stopping import uninterrupted
from flows.submissions.row_scope import RowScope
from schemas.manifest import SourceIdentity
from schemas.portal import CUID, columns
from schemas.records import LINKED
from schemas.source import SourceSettings


def link_row(
    context: IssuerContext,
    linking: Linking,
    run: str,
    row: int,
    *,
    terms: Terms = AS_USUAL,
    supply: Supply = nothing_supplied,
) -> SingleLink:
    """Request one link for a row (from 1) of a run's source, and count it in the run's report.

    The row is read and refined again, or typed in where its extract is gone and the partner's
    reference names the card. Raises NotTypedError, NoServiceError, LedgerPurgedError,
    NoSuchRowError, SourceGoneError, LinkRequestError, CardTakenError, and what the service's client
    raises.
    """
    stored = StoredRun.by_id(context.adapters, run)
    fields = _fields(context, stored, row, terms, supply)
    earlier = sum(single.asked.row == row for single in stored.single_link_attempts)
    finish_reports(context)
    requests = SingleRequests(context, linking)
    prepared = _prepared_row(context, stored, fields, earlier, terms, supply)
    try:
        return _send_alone(context, requests, prepared)
    finally:
        report_behind(context, [stored.fresh()])


def _prepared_row(
    context: IssuerContext,
    run: StoredRun,
    fields: Mapping[str, Any],
    earlier: int,
    terms: Terms,
    supply: Supply = nothing_supplied,
) -> Prepared:
    """Return the request for a refined row of a run, which was requested so often before."""
    row = fields["row"]
    id_ = row_attempt(run.id, row, earlier + 1)
    references = terms.references
    reference = references.of(run, row, fields[CUID]) if references else None
    return prepared_request(
        context, fields, id_, run.id, row, terms=terms, supply=supply, reference=reference
    )


def _send_alone(context: IssuerContext, requests: SingleRequests, prepared: Prepared) -> SingleLink:
    """Send a request for a card that is not taken."""
    attempt = prepared.single.asked
    CardGuard(context, [attempt.cuid]).refuse_taken(attempt)
    with hiding(*prepared.secrets):  # a refusal may repeat them
        return requests.send(prepared)


def _fields(
    context: IssuerContext, run: StoredRun, row: int, terms: Terms, supply: Supply
) -> dict[str, Any]:
    """Return a row as a request is made of it, from its extract.

    By reference it may be gone: what it had of the cardholder is supplied then.
    """
    try:
        return refined_rows(context, run, [row]).single()
    except SourceGoneError:
        if terms.references is None:
            raise
    return typed_row(run, row, supply)


def link_typed(
    context: IssuerContext, linking: Linking, typed: Mapping[str, str], *, terms: Terms = AS_USUAL
) -> SingleLink:
    """Request one link for typed-in fields, under the portal's column names.

    They pass every rule an extract's row does. Without a cuid one is made that has nothing to do
    with the card. Raises as `link_row` does.
    """
    as_the_portal_has_them = {
        "source": SourceSettings(),
        "columns": {},
        "status": {},
        "eligible": context.issuer.eligible.model_copy(update={"where": {}}),
        "full_portfolio": False,
    }
    issuer = context.issuer.model_copy(update=as_the_portal_has_them)
    text = StringIO()
    cells = [typed.get(name, "") for name in columns()]
    csv.writer(text, lineterminator="\n").writerows([columns(), cells])
    source = SourceIdentity(key="typed.csv", version="", size=0, sha256=secrets.token_hex(32))
    stream = BytesIO(text.getvalue().encode())
    scope = RowScope(keep_cells=True)
    refined = refine(context._replace(issuer=issuer), stream, source, scope)
    id_ = f"{context.adapters.now():%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    requests = SingleRequests(context, linking)
    prepared = prepared_request(context, refined.single(), id_, terms=terms)
    return _send_alone(context, requests, prepared)


DUE: Final = "to be requested"  # of a dry run
NOT_REACHED: Final = "the command stopped before it"
OTHER_DAY: Final = "it expires on another day than requested"
SAME_CARD: Final = "another of these rows is for the same card"
UNDER_WAY: Final = "another command is requesting it"
MOST_LOST = 3  # answers lost in a row before the command stops: more links may be lost

OnRow = Callable[[int, int], None]  # how many rows are done, and of how many


class LinkingStoppedError(TryAgainError):
    """A signal stopped the command between two links."""

    message = "Stopped before all links were requested."
    next_step = "Run {same_command} again: it goes on where it stopped and requests nothing twice."


class ManyLinks(NamedTuple):
    """What became of each row that a link was wanted for; `stopped` is what ended it early."""

    outcomes: Mapping[RowName, RowOutcome]
    stopped: CardlinkError | None = None

    @property
    def balance(self) -> dict[str, int]:
        """How many rows came to each outcome, and how many they are."""
        counts = Counter(outcome.outcome for outcome in self.outcomes.values())
        earlier = sum(
            outcome.is_earlier and outcome.outcome == LINKED for outcome in self.outcomes.values()
        )
        return {"rows": len(self.outcomes), **counts, "linked before": earlier}


def rehearse_links(context: IssuerContext, plan: LinkPlan, *, terms: Terms = AS_USUAL) -> ManyLinks:
    """Return what `request_links` would do, by what is recorded now; nothing is requested."""
    desk = _Desk(context, plan, terms)
    for due in desk.due():
        plan.outcomes[due.name] = RowOutcome(DUE)
    return ManyLinks(plan.outcomes)


def request_links(
    context: IssuerContext,
    linking: Linking,
    plan: LinkPlan,
    *,
    terms: Terms = AS_USUAL,
    on_row: OnRow = lambda _done, _all: None,
) -> ManyLinks:
    """Request a link for each row that is due, and count them in the reports of their runs.

    A stop signal is heard between two batches of requests. A service that does not take a request,
    or whose answers are lost, ends it: what is left was not requested.
    """
    finish_reports(context)
    desk = _Desk(context, plan, terms)
    requests = SingleRequests(context, linking)
    due = desk.due()
    stopped: CardlinkError | None = None
    try:
        while stopped is None:
            with uninterrupted():
                batch = [*islice(due, REQUESTS_AT_A_TIME)]
                stopped = desk.send(requests, batch)
            if not batch:
                break
            on_row(len(plan.outcomes), desk.rows)
    except KeyboardInterrupt:
        stopped = LinkingStoppedError()
    except CardlinkError as error:  # a record that a reference needs could not be read
        stopped = error
    finally:
        report_behind(context, (run.fresh() for run in plan.runs))
    for name in plan.names:
        plan.outcomes.setdefault(name, RowOutcome(UNREQUESTED, NOT_REACHED))
    return ManyLinks(plan.outcomes, stopped)


class Due(NamedTuple):
    """A row and its request."""

    name: RowName
    prepared: Prepared

    @property
    def card(self) -> tuple[str, str | None]:
        """What two rows of one card have in common."""
        attempt = self.prepared.single.asked
        return attempt.cuid, attempt.last_4


class _Desk:
    """The rows of one command on their way: prepared, sent, and noted with what came."""

    def __init__(self, context: IssuerContext, plan: LinkPlan, terms: Terms) -> None:
        self.guard = CardGuard(context, plan.cuids)
        self.rows = len(plan.outcomes) + sum(part.rows.height for part in plan.due)
        self._context = context
        self._plan = plan
        self._outcomes = plan.outcomes
        self._terms = terms
        self._cards = set[tuple[str, str | None]]()  # those that this command requests a link for
        self._lost = 0  # answers in a row

    def due(self) -> Iterator[Due]:
        """Yield the rows that need a link with their requests, made when they are taken."""
        for part in self._plan.due:
            for fields in part.rows.iter_rows(named=True):
                name = RowName(part.run.id, fields["row"])
                try:
                    earlier = part.requests[name.row]
                    due = Due(
                        name,
                        _prepared_row(self._context, part.run, fields, earlier, self._terms),
                    )
                    self._refuse_taken(due)
                except LinkRequestError as error:
                    self._unrequested(name, error.fields["codes"])
                except (CardTakenError, CardReferenceError) as error:
                    self._unrequested(name, error.fields["reason"])
                else:
                    yield due

    def _refuse_taken(self, due: Due) -> None:
        """Raise CardTakenError for a card that needs no link, or gets one by another row."""
        if due.card in self._cards:
            raise CardTakenError(reason=SAME_CARD)
        self.guard.refuse_taken(due.prepared.single.asked)
        self._cards.add(due.card)

    def send(self, requests: SingleRequests, batch: Sequence[Due]) -> CardlinkError | None:
        """Send a batch side by side, and note what came; return what ends the command."""
        self.guard.renew()  # before the next batch is made
        secrets = chain.from_iterable(due.prepared.secrets for due in batch)
        with hiding(*secrets):  # a refusal may repeat them
            results = concurrently(lambda due: _sent(requests, due), batch, len(batch))
        ends = [self._note(due, result) for due, result in zip(batch, results, strict=True)]
        return next(filter(None, ends), None)

    def _note(self, due: Due, result: SingleLink | CardlinkError) -> CardlinkError | None:
        """Note what came of a row; return an error that ends the command."""
        match result:
            case SingleLink():
                self._lost = 0
                answer = result.answered
                why = ", ".join(answer.reasons) if answer else ""
                if result.ends_otherwise:
                    why = OTHER_DAY
                self._outcomes[due.name] = RowOutcome(result.state, why)
                return None
            case AnswerLostError() | StrangeAnswerError():
                self._lost += 1
                self._outcomes[due.name] = RowOutcome(LOST, NO_ANSWER)
                is_over = self._lost >= MOST_LOST or isinstance(result, StrangeAnswerError)
                return result if is_over else None
            case SingleUnderWayError():
                self._unrequested(due.name, UNDER_WAY)
                return None
        self._unrequested(due.name, type(result).__name__)
        return result

    def _unrequested(self, name: RowName, why: str) -> None:
        self._outcomes[name] = RowOutcome(UNREQUESTED, why)


def _sent(requests: SingleRequests, due: Due) -> SingleLink | CardlinkError:
    """Send one request; what it raises is a result, so that the others of its batch are noted."""
    try:
        return requests.send(due.prepared)
    except CardlinkError as error:
        return error
