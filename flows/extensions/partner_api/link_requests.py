"""The request for one link (interface.md 2.8), made of a refined row, or codes of what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extensions.partner_api.run_links import CardReferences, LinkRecords
from flows.extensions.partner_api.service import (
    AnswerLostError,
    Linking,
    LinkRequestError,
    NoServiceError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.service_objects import CardLink, CardLinkRequest, Refusal
from flows.extensions.partner_api.settings import (
    USUAL_LIFE,
    ServiceSettings,
    after,
    expiration_object,
    last_day,
)
from flows.redaction import redact
from flows.results.confirmed_forms import link_rules
from flows.results.links import judge_link
from flows.results.masking import mask
from flows.results.partner_days import PartnerDay, read_day
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.single_links import SingleLink, record_answer, record_request
from flows.runs.stored_journal import flush_journal
from flows.steps import Option
from schemas import breaks
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)
from schemas.records import LINKED, REFUSED, UNSENT, SingleAnswered, SingleAsked

# properties of the request, each with its column
_CARDHOLDER: Final = {
    "cuid": CUID,
    "first_name": FIRST_NAME,
    "last_name": LAST_NAME,
    "email": EMAIL,
}
_ADDRESS: Final = {
    "address1": ADDRESS1,
    "address2": ADDRESS2,
    "city": CITY,
    "subnational": SUBNATIONAL,
    "postal_code": POSTAL_CODE,
    "country": COUNTRY,
    "phone_number": PHONE,
    "email": EMAIL,
}
_CARD: Final = {
    "pan": PAN,
    "expiration_month": MONTH,
    "expiration_year": YEAR,
    "name_on_card": NAME_ON_CARD,
    "nickname": NICKNAME,
    "cvv": CVV,
}
_MISSING: Final = frozenset({"missing", "string_too_short", "none_not_allowed"})


def link_request(
    row: Mapping[str, str | None],
    until: date | None = None,
    reference: Mapping[str, Any] | None = None,
) -> CardLinkRequest:
    """Return the request for the link of a refined row (columns of 2.6), until its last day.

    With the reference of a card that the partner has, nothing of the card itself is in it.

    The row's hash of a CVV has no place in it. A nickname, which 2.8 requires and 2.6 does not, is
    made of the last four digits. Raises LinkRequestError, which names entity, property and kind,
    never a value.
    """
    card = _filled(row, _CARD) if reference is None else {}
    if "pan" in card:
        card.setdefault("nickname", f"Card ending in {card['pan'][-4:]}")
    address: dict[str, object] = {**_filled(row, _ADDRESS)}
    if row.get(IS_PRIMARY):
        address["is_primary"] = row.get(IS_PRIMARY) == "TRUE"
    request: dict[str, object] = {
        "cardholder": _filled(row, _CARDHOLDER),
        "address": address,
        "card": {"reference": reference, **card},
    }
    if until is not None:
        request["expiration"] = expiration_object(until)
    return checked_request(request)


def checked_request(plain: Mapping[str, object]) -> CardLinkRequest:
    """Return the request of these objects; LinkRequestError with a code per broken rule."""
    try:
        return CardLinkRequest.model_validate(plain)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        codes = [_code(fault["loc"], fault["type"]) for fault in faults]
    raise LinkRequestError(codes=", ".join(dict.fromkeys(codes)))


def _filled(row: Mapping[str, str | None], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the properties whose columns have a value."""
    values = {name: row.get(column) for name, column in columns.items()}
    return {name: value for name, value in values.items() if value}


def _code(place: tuple[int | str, ...], kind: str) -> str:
    """Name a broken rule as `entity.property.kind`; an unknown property is not quoted."""
    if kind == "extra_forbidden":
        place = (*place[:-1], "property")
        reported = "unknown"
    elif kind == "unknown":
        reported = kind
    else:
        reported = "missing" if kind in _MISSING else "format"
    entity, name = (*map(str, place), "record")[:2]
    return f"{entity}.{name}.{reported}"


# a request requires them, the upload file does not (2.6, 2.8)
SUPPLIED: Final = (PHONE, NAME_ON_CARD)
# why a URL is no link, by its break
NO_LINK_CODES: Final = {
    breaks.URL_NOT_ALLOWED: "link.url.not_allowed",
    breaks.LINK_FORM: "link.url.form",
    breaks.LINK_CUT: "link.url.cut",
    breaks.LINK_SHOWS_CARD: "link.url.shows_card",
}
# of a row that has the hash alone: its link would not open
NO_CVV: Final = (
    "card.cvv.missing (the link asks for it by [rules] challenges, and a request has no hash)"
)

Supply = Callable[[str], str]  # a column's name to what is typed in for it, "" for nothing


def nothing_supplied(_column: str) -> str:
    """Supply nothing: a field that the extract lacks stays missing."""
    return ""


class Terms(NamedTuple):
    """What a command says of every link that it requests.

    `override`: why one is made for a card that has a link or awaits one; `until`: the last day of
    the links, None for the partner's own choice; `references`: of cards that are named by
    reference, None where they are named by their numbers.
    """

    override: str = ""
    until: date | None = None
    references: CardReferences | None = None

    def reading(self, records: LinkRecords) -> Terms:
        """Return the same terms, where ids of cards are read from these records of links."""
        if self.references is None:
            return self
        return self._replace(references=self.references.reading(records))


AS_USUAL: Final = Terms()


class LinkExpiryError(OperatorError):
    """What was named as the end of a link is none."""

    message = "{expires!r} ({where}) is no end of a link: {problem}. Nothing was requested."
    next_step = "Name a day to come, such as {example}, or a period from today: 60d, 3mo."


def end_of_links(context: IssuerContext, expires: str) -> date | None:
    """Return the last day of links, as a command or else `[service] link_expires` says it; None for
    the partner's own choice. Raises LinkExpiryError.
    """
    service = context.issuer.table(ServiceSettings)
    where = Option("--expires", of="link") if expires else "[service] link_expires"
    text = expires or (service.link_expires if service else None)
    if not text:
        return None
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    try:
        return last_day(text, today)
    except ValueError as error:
        problem = str(error)
    example = after(USUAL_LIFE, today)
    raise LinkExpiryError(expires=redact(text), where=where, problem=problem, example=example)


def judged_until(context: IssuerContext, until: date | None) -> IssuerContext:
    """Return a context whose rules ask whether a card outlives a link that ends on that day, in
    place of `link_life_months`; the same one for None.
    """
    if until is None:
        return context
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    months = (until.year - today.year) * 12 + until.month - today.month
    rules = context.issuer.rules.model_copy(update={"link_life_months": months})
    return context._replace(issuer=context.issuer.model_copy(update={"rules": rules}))


class SingleUnderWayError(TryAgainError):
    """Another command is requesting the same link."""

    message = "This link is already being requested: {key} exists."
    next_step = "Run {same_command} again: it shows the outcome."


class Prepared(NamedTuple):
    """A request that can be sent, and its record."""

    request: CardLinkRequest
    single: SingleLink

    @property
    def secrets(self) -> tuple[str | None, str | None]:
        """What a refusal may repeat, and nothing may show."""
        return self.request.card.pan, self.request.card.cvv


class SingleRequests:
    """Requests of one command: the service, and the rules for its links."""

    def __init__(self, context: IssuerContext, linking: Linking) -> None:
        self._settings = service_of(context)
        self._context = context
        self._linking = linking
        self._today = local_day(context.adapters.now(), context.issuer.time_zone)
        self._rules = link_rules(context)
        self._issuer = context.issuer.issuer

    def send(self, prepared: Prepared) -> SingleLink:
        """Record, request once, record the answer; the caller hides the request's secrets."""
        if not record_request(self._context.adapters, self._issuer, prepared.single):
            raise SingleUnderWayError(key=prepared.single.place)
        flush_journal(self._context.adapters, self._issuer)
        answered = self._judged(self._request(prepared), prepared.single.asked)
        return self._recorded(prepared, answered)

    def _request(self, prepared: Prepared) -> CardLink | Refusal:
        try:
            return self._linking.create_link(prepared.request)
        except (AnswerLostError, StrangeAnswerError):
            raise  # the link may exist: the outcome stays unknown
        except CardlinkError as error:
            now = self._context.adapters.now()
            unsent = SingleAnswered(outcome=UNSENT, at=now, reasons=(type(error).__name__,))
            self._recorded(prepared, unsent)
            raise

    def _judged(self, response: CardLink | Refusal, attempt: SingleAsked) -> SingleAnswered:
        """Check the response as a result row is checked."""
        now = self._context.adapters.now()
        if isinstance(response, Refusal):
            codes = tuple(response.codes.split(", "))
            message = redact(response.message)
            return SingleAnswered(outcome=REFUSED, at=now, reasons=codes, message=message)
        url = response.url or self._settings.url_of(response.cardholder_long_token)
        if url is None:
            place = f"POST {self._settings.path('create_link')}"
            problem = "a link without a URL; see [service] link_url"
            raise StrangeAnswerError(place=place, problem=problem)
        link_id = response.id or self._settings.id_of(url)
        trouble = judge_link(url, attempt.last_4, self._rules)
        if trouble is not None:
            reasons = (NO_LINK_CODES[trouble],)
            kept_id = mask(link_id) if link_id else None
            return SingleAnswered(outcome=REFUSED, at=now, link_id=kept_id, reasons=reasons)
        if link_id is not None and link_id not in url:
            link_id = redact(link_id)
        written = PartnerDay(None, None)
        if response.expires_raw:
            is_day_first = self._context.issuer.portal.day_first
            written = read_day(response.expires_raw, is_day_first=is_day_first)
        return SingleAnswered(
            outcome=LINKED,
            at=now,
            link_id=link_id,
            url=url,
            # by its record, else as requested, else as is usual
            expires_on=written.day or attempt.link_until or after(USUAL_LIFE, self._today),
            expires_form=written.form,
        )

    def _recorded(self, prepared: Prepared, answered: SingleAnswered) -> SingleLink:
        single = prepared.single._replace(answered=answered)
        return record_answer(self._context.adapters, self._issuer, single)


def prepared_request(
    context: IssuerContext,
    fields: Mapping[str, Any],
    id_: str,
    run: str | None = None,
    row: int | None = None,
    *,
    terms: Terms = AS_USUAL,
    supply: Supply = nothing_supplied,
    reference: Mapping[str, Any] | None = None,
) -> Prepared:
    """Return the request for refined fields, whoever has a link; LinkRequestError if it is none."""
    needed = SUPPLIED if reference is None else (PHONE,)  # of the card nothing is sent
    supplied = {column: supply(column) for column in needed if not fields.get(column)}
    request = link_request({**fields, **supplied}, terms.until, reference)
    if reference is None and "CVV" in context.issuer.rules.challenges and not request.card.cvv:
        raise LinkRequestError(codes=NO_CVV)
    record = SingleAsked(
        row=row,
        cuid=fields[CUID],
        last_4=fields["last_4"],
        expiration=fields["expiration"],
        at=context.adapters.now(),
        by=redact(context.adapters.actor),
        override=redact(terms.override.strip()),
        link_until=terms.until,
        by_reference=reference is not None,
    )
    return Prepared(request, SingleLink(id_, record, None, run))


def service_of(context: IssuerContext) -> ServiceSettings:
    """Return the settings of an issuer's service; NoServiceError without one."""
    service = context.issuer.table(ServiceSettings)
    if service is None:
        raise NoServiceError(issuer=context.issuer.issuer)
    return service
