"""Requests for single links: recorded before, sent once, and recorded after.

A request whose response was lost is not repeated, since a link may have been created. A crash
between record and answer leaves "unknown", never a second link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError, TryAgainError
from flows.partner_api.link_requests import link_request
from flows.partner_api.service import (
    AnswerLostError,
    Linking,
    LinkRequestError,
    NoServiceError,
    StrangeAnswerError,
)
from flows.redaction import redact
from flows.results.confirmed_forms import link_rules
from flows.results.links import judge_link
from flows.results.masking import mask
from flows.results.read import day_in
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.events import record_event
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys
from flows.runs.single_links import SingleLink, answer_key
from schemas import breaks
from schemas.partner_api.card_link import CardLink, CardLinkRequest, Refusal
from schemas.partner_api.service import ServiceSettings
from schemas.portal import CUID, NAME_ON_CARD, PHONE
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
NO_CVV: Final = "card.cvv.missing"
DEFAULT_LIFE: Final = "2mo"  # interface.md 8

Supply = Callable[[str], str]  # a column's name to what is typed in for it, "" for nothing


def nothing_supplied(_column: str) -> str:
    """Supply nothing: a field that the extract lacks stays missing."""
    return ""


class SingleUnderWayError(TryAgainError):
    """Another command is requesting the same link."""

    message = "This link is already being requested: {key} exists."
    next_step = "Run {same_command} again: it shows the outcome."


class Prepared(NamedTuple):
    """A request that can be sent, and its record; `keys`: of the run whose row it is for."""

    request: CardLinkRequest
    attempt: SingleAsked
    key: str
    keys: RunKeys | None

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

    def send(self, prepared: Prepared) -> SingleLink:
        """Record, request once, record the answer; the caller hides the request's secrets."""
        self._announce(prepared)
        store = self._context.adapters.store
        if not store.create(prepared.key, canonical(prepared.attempt)):
            raise SingleUnderWayError(key=prepared.key)
        answered = self._judged(self._request(prepared), prepared.attempt.last_4)
        self._record(prepared, answered)
        return SingleLink(prepared.key, prepared.attempt, answered)

    def _announce(self, prepared: Prepared) -> None:
        """Record in the run's history that a link is requested, so that readers look at the run."""
        if prepared.keys is not None:
            number = _number(prepared.key)
            adapters = self._context.adapters
            record_event(adapters, prepared.keys, "single requested", attempt=number)

    def _request(self, prepared: Prepared) -> CardLink | Refusal:
        try:
            return self._linking.create_link(prepared.request)
        except (AnswerLostError, StrangeAnswerError):
            raise  # the link may exist: the outcome stays unknown
        except CardlinkError as error:
            now = self._context.adapters.now()
            unsent = SingleAnswered(outcome=UNSENT, at=now, reasons=(type(error).__name__,))
            self._record(prepared, unsent)
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

    def _record(self, prepared: Prepared, answered: SingleAnswered) -> None:
        adapters = self._context.adapters
        adapters.store.create(answer_key(prepared.key), canonical(answered))
        if prepared.keys is not None:
            number = _number(prepared.key)
            outcome = answered.outcome
            record_event(adapters, prepared.keys, "single", attempt=number, outcome=outcome)


def prepared_request(
    context: IssuerContext,
    fields: Mapping[str, Any],
    key: str,
    keys: RunKeys | None = None,
    row: int | None = None,
    *,
    override: str = "",
    supply: Supply = nothing_supplied,
) -> Prepared:
    """Return the request for refined fields, whoever has a link; LinkRequestError if it is none.

    `override` is why it is made for a card that has a link or awaits one.
    """
    supplied = {column: supply(column) for column in SUPPLIED if not fields.get(column)}
    request = link_request({**fields, **supplied})
    if "CVV" in context.issuer.rules.challenges and not request.card.cvv:
        raise LinkRequestError(codes=NO_CVV)  # the request has no hash, and the link would not open
    attempt = SingleAsked(
        row=row,
        cuid=fields[CUID],
        last_4=fields["last_4"],
        expiration=fields["expiration"],
        at=context.adapters.now(),
        by=redact(context.adapters.actor),
        override=redact(override.strip()),
    )
    return Prepared(request, attempt, key, keys)


def service_of(context: IssuerContext) -> ServiceSettings:
    """Return the settings of an issuer's service; NoServiceError without one."""
    if context.issuer.service is None:
        raise NoServiceError(issuer=context.issuer.issuer)
    return context.issuer.service


def _number(key: str) -> str:
    """Return how a run's history names an attempt."""
    return key.rpartition("/")[2].removesuffix(".json")
