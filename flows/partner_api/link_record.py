"""The record of a link (interface.md 2.9) in words: what it says, and how it differs from our own.

A URL, a token and names are personal or secret: of them it is only said that they are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import polars as pl

from flows.partner_api.fields import fields_of, no_link_in
from flows.partner_api.link_ids import LinkedRow
from flows.partner_api.service import StrangeAnswerError
from flows.partner_api.translation import link_in_our_words
from flows.redaction import redact
from flows.results.read import day_in
from flows.steps import counted
from schemas.partner_api.card_link import CardLink
from schemas.partner_api.profile import LinkFields
from schemas.partner_api.service import ServiceSettings

NOT_SAID: Final = "the record does not say"
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?")


class ReadRecord(NamedTuple):
    """What a record says, and its other fields by their types.

    `opened_at`: when the link was opened, as far as the record says it.
    """

    link: CardLink
    expires_on: date | None
    opened_at: str | None
    others: dict[str, str]

    @property
    def facts(self) -> dict[str, Any]:
        """What may be shown, as data; None: the record does not say."""
        return {
            "expires_on": self.expires_on.isoformat() if self.expires_on else None,
            "opened": self.link.opened,
            "opened_at": self.opened_at,
            "url_host": urlsplit(self.link.url).hostname if self.link.url else None,
            "has_token": self.link.cardholder_long_token is not None,
            "cuid": _harmless(self.link.cuid),
            "cardholder_id": _harmless(self.link.cardholder_id),
            "card_id": _harmless(self.link.card_id),
        }

    def words(self, today: date) -> dict[str, str]:
        """Return what it says in words, by what it is about."""
        link = self.link
        return {
            "expires": self._expiry(today),
            "opened": self._opening(),
            "url": f"at {urlsplit(link.url).hostname}, not shown" if link.url else NOT_SAID,
            "token": "there, not shown" if link.cardholder_long_token else NOT_SAID,
            "cardholder": _named(link.cuid, link.cardholder_id),
            "card": _named(None, link.card_id),
        }

    def _expiry(self, today: date) -> str:
        raw = self.link.expires_raw
        if self.expires_on is None:
            return f"on a day in a form nobody knows: {redact(raw)}" if raw else NOT_SAID
        days = (self.expires_on - today).days
        distance = f"in {counted(days, 'day')}" if days >= 0 else f"{counted(-days, 'day')} ago"
        return f"on {self.expires_on}, {distance}"

    def _opening(self) -> str:
        if self.link.opened is None:
            return NOT_SAID
        if not self.link.opened:
            return "not yet"
        return f"on {self.opened_at}" if self.opened_at else "yes"


def read_record(document: object, settings: ServiceSettings) -> ReadRecord:
    """Return what the record of a link says; StrangeAnswerError for what is no such record."""
    values = link_in_our_words(document, settings.link)
    link = CardLink.model_validate(values)
    if not (link.id or link.url or link.cardholder_long_token):
        raise StrangeAnswerError(place=settings.link_place(), problem=no_link_in(document))
    opened_at = _moment(values.get("opened_on"))
    known = set(_paths(settings.link))
    others = {path: kind for path, kind in fields_of(document).items() if path not in known}
    return ReadRecord(link, _day(link.expires_raw), opened_at, others)


def differences(record: ReadRecord, row: LinkedRow) -> Iterator[str]:
    """Yield where a record is not as the row that has its link."""
    link = record.link
    if link.cuid not in (None, row.cuid):
        yield f"the record is of cardholder {redact(link.cuid or '')}, the row of {row.cuid}"
    if link.url not in (None, row.url):
        yield "the record has another URL than the row"
    if None not in (record.expires_on, row.expires_on) and record.expires_on != row.expires_on:
        yield (
            f"the record expires on {record.expires_on}, our own on {row.expires_on}: "
            "renewals go by our own"
        )


def _day(raw: str | None) -> date | None:
    frame = pl.DataFrame({"raw": [raw]}, {"raw": pl.String})
    day: date | None = frame.select(day_in("raw")).item()
    return day


def _moment(value: object) -> str | None:
    """Return a time of day as a record has it, without fractions and zone; None for any other
    value.
    """
    moment = _MOMENT.match(value) if isinstance(value, str) else None
    return moment[0].replace("T", " ") if moment else None


def _harmless(text: str | None) -> str | None:
    return redact(text) if text else None


def _named(cuid: str | None, record_id: str | None) -> str:
    names = [redact(cuid)] if cuid else []
    names += [f"id {redact(record_id)} at the partner"] if record_id else []
    return ", ".join(names) or NOT_SAID


def _paths(fields: LinkFields) -> Iterator[str]:
    """Yield the paths of the values that are put into words, in the record itself or below it."""
    for name in LinkFields.model_fields.keys() - {"data_selector", "opened_values"}:
        for path in getattr(fields, name):
            yield path
            yield from (f"{selector}.{path}" for selector in fields.data_selector)
