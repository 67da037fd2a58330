"""One link for one cardholder, now: a row prepared exactly as in a run, requested once.

It is recorded before and after the request.

A request whose response was lost is not repeated, since a link may have been created. A crash
between record and answer leaves "unknown", never a second link.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Callable, Mapping
from datetime import date
from io import BytesIO, StringIO
from itertools import chain
from typing import Any, Final

import polars as pl

from flows import steps
from flows.book.attempts import SINGLE, active
from flows.book.book import Book, read_book
from flows.book.given_up import is_given_up
from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extracts.decode import Readable
from flows.extracts.opening import open_extract
from flows.partner_api.link_requests import link_request
from flows.partner_api.service import (
    AnswerLostError,
    Linking,
    LinkRequestError,
    NoServiceError,
    StrangeAnswerError,
)
from flows.redaction import hiding, redact
from flows.reports.rebuild import rebuild_lasting
from flows.resend.corrections import by_row, cells_of
from flows.resend.selected_run import reopen_source
from flows.results.confirmed_forms import link_rules
from flows.results.lineage import newest_first
from flows.results.links import judge_link
from flows.results.masking import mask
from flows.results.read import day_in
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.errors import NoSuchRowError
from flows.runs.events import record_event
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.single_links import SingleLink, answer_key
from flows.runs.stored_run import StoredRun
from flows.steps import REASON, Option, Sentence, Step
from flows.submissions.gates import WrongCardsError
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from flows.submissions.scan import Scan
from schemas import breaks
from schemas.issuer import SourceSettings
from schemas.manifest import SourceIdentity
from schemas.partner_api.card_link import CardLink, CardLinkRequest, Refusal
from schemas.partner_api.service import ServiceSettings
from schemas.portal import CUID, NAME_ON_CARD, PHONE, columns
from schemas.records import LINKED, REFUSED, UNSENT, SingleAnswered, SingleAsked

# a request requires them, the upload file does not (2.6, 2.8)
SUPPLIED: Final = (PHONE, NAME_ON_CARD)
# why a URL is no link, by its break
NO_LINK_CODES: Final = {
    breaks.URL_NOT_ALLOWED: "link.url.not_allowed",
    breaks.LINK_FORM: "link.url.form",
    breaks.LINK_CUT: "link.url.cut",
    breaks.LINK_SHOWS_CARD: "link.url.shows_card",
}
DEFAULT_LIFE: Final = "2mo"  # interface.md 8

Supply = Callable[[str], str]  # a column's name to what is typed in for it, "" for nothing


class CardTakenError(OperatorError):
    """The card has a link or awaits one, or is given up."""

    message = "No link was requested: {reason}."
    next_step = Sentence(
        "{trace} shows the history. To request another one anyway: {override}.",
        trace=Step("trace", steps.CUID),
        override=Option("--override", REASON, of="link"),
    )


class SingleUnderWayError(TryAgainError):
    """Another command is requesting the same link."""

    message = "This link is already being requested: {key} exists."
    next_step = "Run {same_command} again: it shows the outcome."


def link_row(
    context: IssuerContext,
    linking: Linking,
    run: str,
    row: int,
    *,
    override: str = "",
    supply: Supply = lambda _: "",
) -> SingleLink:
    """Request one link for a row (from 1) of a run's source, and count it in the run's report.

    The row is read and refined again. Raises NoServiceError, LedgerPurgedError, NoSuchRowError,
    SourceGoneError, LinkRequestError, CardTakenError, and what the service's client raises.
    """
    stored = StoredRun.by_id(context.adapters.store, run)
    fields = _fields_of_row(context, stored, row)
    earlier = [single for single in stored.single_link_attempts if single.asked.row == row]
    if any(single.state == LINKED for single in earlier):  # killed before it was counted?
        _report(context, stored)
    key = f"{stored.keys.singles}{row:09d}-{len(earlier) + 1}.json"
    request = _SingleRequest(context, linking, key, stored.keys, row)
    single = request.send(fields, override, supply)
    if single.state == LINKED:
        _report(context, stored)
    return single


def _fields_of_row(context: IssuerContext, run: StoredRun, row: int) -> dict[str, Any]:
    """Return the refined fields of a row of a run's source, with what was corrected."""
    manifest = run.committed()
    # without its ledger it is unknown whether the card has a link
    run.refuse_purged()
    if not any((part["row"] == row).any() for part in run.ledger(["row"])):
        raise NoSuchRowError(place=run.id, rows=row)
    entry, source = reopen_source(context, run.id, manifest.source)
    rows = pl.DataFrame({"row": [row], "origin": [row]}, PICK)
    selected = SelectedRows(rows, by_row(cells_of(context, manifest)))
    with open_extract(context, entry, source) as stream:
        return _refined(context, stream, source, RowScope(selected, keep_cells=True))


def _report(context: IssuerContext, run: StoredRun) -> None:
    """Count a single link in the report of its run, and of those that this one repeats."""
    for affected in newest_first([run]):
        rebuild_lasting(context, affected)


def link_typed(
    context: IssuerContext, linking: Linking, typed: Mapping[str, str], *, override: str = ""
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
        "filter": {},
        "deleted": {},
        "full_portfolio": False,
    }
    issuer = context.issuer.model_copy(update=as_the_portal_has_them)
    text = StringIO()
    cells = [typed.get(name, "") for name in columns()]
    csv.writer(text, lineterminator="\n").writerows([columns(), cells])
    source = SourceIdentity(key="typed.csv", version="", size=0, sha256=secrets.token_hex(32))
    stream = BytesIO(text.getvalue().encode())
    fields = _refined(context._replace(issuer=issuer), stream, source, RowScope(keep_cells=True))
    name = f"{context.adapters.now():%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.json"
    key = f"{prompted_prefix(context.issuer.issuer)}{name}"
    return _SingleRequest(context, linking, key).send(fields, override, lambda _: "")


def _refined(
    context: IssuerContext, stream: Readable, source: SourceIdentity, scope: RowScope
) -> dict[str, Any]:
    """Return the one valid row of a source; LinkRequestError says why there is none."""
    issuer = context.issuer
    today = local_day(context.adapters.now(), issuer.time_zone)
    scan = Scan(context, stream, source, today, scope)
    pieces = list(scan)
    chunks = chain.from_iterable(piece.chunks for piece in pieces)
    rows = chain.from_iterable(chunk.iter_rows(named=True) for chunk in chunks)
    row = next(rows, None)
    if row is None:
        reasons = pl.concat([piece.others for piece in pieces])["reasons"].explode().drop_nulls()
        codes = reasons.str.split("|").list.last().unique(maintain_order=True)
        raise LinkRequestError(codes=", ".join(codes) or "row.record.missing")
    if issuer.test and scan.route.other_cards:
        raise WrongCardsError(extract=source.key, count=1, kind="real", test="true")
    if not issuer.test and scan.route.test_cards:
        raise WrongCardsError(extract=source.key, count=1, kind="test", test="false")
    return row


class _SingleRequest:
    """One request for a link: where it is recorded, and for which row of a run, if any."""

    def __init__(
        self,
        context: IssuerContext,
        linking: Linking,
        key: str,
        keys: RunKeys | None = None,
        row: int | None = None,
    ) -> None:
        if context.issuer.service is None:
            raise NoServiceError(issuer=context.issuer.issuer)
        self._settings: ServiceSettings = context.issuer.service
        self._context = context
        self._linking = linking
        self._key = key
        self._keys = keys
        self._row = row
        self._today = local_day(context.adapters.now(), context.issuer.time_zone)
        self._rules = link_rules(context)

    def send(self, fields: dict[str, Any], override: str, supply: Supply) -> SingleLink:
        """Record, request once, record the answer."""
        supplied = {column: supply(column) for column in SUPPLIED if not fields.get(column)}
        request = link_request({**fields, **supplied})
        attempt = SingleAsked(
            row=self._row,
            cuid=fields[CUID],
            last_4=fields["last_4"],
            expiration=fields["expiration"],
            at=self._context.adapters.now(),
            by=redact(self._context.adapters.actor),
            override=redact(override.strip()),
        )
        if not attempt.override:
            self._refuse_taken(attempt)
        self._announce()
        if not self._context.adapters.store.create(self._key, canonical(attempt)):
            raise SingleUnderWayError(key=self._key)
        with hiding(request.card.pan, request.card.cvv):  # a refusal may repeat them
            answered = self._judged(self._request(request), attempt.last_4)
        self._record(answered)
        return SingleLink(self._key, attempt, answered)

    def _announce(self) -> None:
        """Record in the run's history that a link is requested, so that readers look at the run."""
        if self._keys is not None:
            number = self._key.rpartition("/")[2].removesuffix(".json")
            record_event(self._context.adapters, self._keys, "single requested", attempt=number)

    def _request(self, request: CardLinkRequest) -> CardLink | Refusal:
        try:
            return self._linking.create_link(request)
        except (AnswerLostError, StrangeAnswerError):
            raise  # the link may exist: the outcome stays unknown
        except CardlinkError as error:
            now = self._context.adapters.now()
            self._record(SingleAnswered(outcome=UNSENT, at=now, reasons=(type(error).__name__,)))
            raise

    def _judged(self, response: CardLink | Refusal, last_4: str | None) -> SingleAnswered:
        """Check the response as a result row is checked."""
        now = self._context.adapters.now()
        if isinstance(response, Refusal):
            codes = tuple(response.codes.split(", "))
            message = redact(response.message)
            return SingleAnswered(outcome=REFUSED, at=now, reasons=codes, message=message)
        url = response.url or self._settings.url_of(response.cardholder_long_token)
        if url is None:
            place = f"POST {self._settings.link_path}"
            problem = "a link without a URL; see [service] link_url"
            raise StrangeAnswerError(place=place, problem=problem)
        link_id = response.id or self._settings.id_of(url)
        trouble = judge_link(url, last_4, self._rules)
        if trouble is not None:
            reasons = (NO_LINK_CODES[trouble],)
            kept_id = mask(link_id) if link_id else None
            return SingleAnswered(outcome=REFUSED, at=now, link_id=kept_id, reasons=reasons)
        if link_id is not None and link_id not in url:
            link_id = redact(link_id)
        expires_raw = response.expires_raw
        return SingleAnswered(
            outcome=LINKED,
            at=now,
            link_id=link_id,
            url=url,
            expires_on=self._expires_on(expires_raw),
            expires_raw=redact(expires_raw) if expires_raw else None,
        )

    def _expires_on(self, raw: str | None) -> date:
        """Return the day a link expires: from its record, else two months from now."""
        usual = pl.lit(self._today).dt.offset_by(DEFAULT_LIFE)
        record = pl.DataFrame({"expires": [raw]}, {"expires": pl.String})
        day: date = record.select(pl.coalesce(day_in("expires"), usual)).item()
        return day

    def _record(self, answered: SingleAnswered) -> None:
        adapters = self._context.adapters
        adapters.store.create(answer_key(self._key), canonical(answered))
        if self._keys is not None:
            number = self._key.rpartition("/")[2].removesuffix(".json")
            record_event(adapters, self._keys, "single", attempt=number, outcome=answered.outcome)

    def _refuse_taken(self, attempt: SingleAsked) -> None:
        """Raise CardTakenError if the card has an active link or awaits one, or is given up.

        The link may be from any run or a single link.
        """
        book = read_book(self._context.adapters.store, self._context.issuer.issuer)
        _refuse_given_up(book, attempt)
        of_card = (pl.col("cuid") == attempt.cuid) & (pl.col("last_4") == attempt.last_4)
        for earlier in book.attempts.filter(of_card & active(self._today)).iter_rows(named=True):
            raise CardTakenError(reason=_reason(earlier))


def _refuse_given_up(book: Book, attempt: SingleAsked) -> None:
    """Raise CardTakenError if an operator decided that the card needs no link."""
    if book.given_up.is_empty():
        return
    last_4 = pl.lit(attempt.last_4, pl.String)
    of_cuid = book.attempts.filter(cuid=attempt.cuid).select("holder", last_4=last_4)
    typed_in = pl.DataFrame({"holder": [attempt.cuid], "last_4": [attempt.last_4]})
    cards = pl.concat([of_cuid, typed_in])
    if not cards.filter(is_given_up(book.given_up)).is_empty():
        raise CardTakenError(reason="an operator decided that this card needs no link")


def _reason(attempt: Mapping[str, Any]) -> str:
    """Return what holds a card; `attempt`: as the book has it (ATTEMPT)."""
    place = "what was typed in for this card"
    if attempt["run"]:
        place = f"row {attempt['row']} of {attempt['run']}"
    if attempt["state"] == LINKED:
        return f"{place} has a link"
    if attempt["wait"] == SINGLE:
        return (
            f"{place} was requested as a single link and has no answer: "
            "it is under way or was lost; the partner knows which"
        )
    return f"{place} is sent and not answered"
