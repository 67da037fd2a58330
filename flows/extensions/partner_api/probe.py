"""The records of the service in words and by the types of their fields, and a profile that fits.

A URL, a token and names are personal or secret: of them it is only said that they are there. A
profile is guessed by names alone; a guess that could be wrong is a doubt, which a person answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime
from itertools import chain, product
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from flows.extensions.partner_api.profile import NAMES, Places, Profile
from flows.extensions.partner_api.run_links import LinkedRow
from flows.extensions.partner_api.service import StrangeAnswerError
from flows.extensions.partner_api.service_objects import CardLink
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.translation import (
    ADDRESS,
    fields_of,
    fold,
    link_in_our_words,
    no_link_in,
    value_at,
)
from flows.redaction import redact
from flows.results.partner_days import form_of, read_day, read_moment
from flows.steps import counted
from schemas.reference import toml

NOT_SAID: Final = "the record does not say"


class ReadRecord(NamedTuple):
    """What a record says, and its other fields by their types.

    `opened_at`: when the link was opened, as far as the record says it.
    """

    link: CardLink
    expires_on: date | None
    opened_at: datetime | None
    others: dict[str, str]

    @property
    def facts(self) -> dict[str, Any]:
        """What may be shown, as data; None: the record does not say."""
        return {
            "expires_on": self.expires_on.isoformat() if self.expires_on else None,
            "opened": self.link.opened,
            "opened_at": self.opened_at.isoformat() if self.opened_at else None,
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
            return f"on a day in a form nobody knows: {form_of(raw)}" if raw else NOT_SAID
        days = (self.expires_on - today).days
        distance = f"in {counted(days, 'day')}" if days >= 0 else f"{counted(-days, 'day')} ago"
        return f"on {self.expires_on}, {distance}"

    def _opening(self) -> str:
        if self.link.opened is None:
            return NOT_SAID
        if not self.link.opened:
            return "not yet"
        return f"on {self.opened_at:%Y-%m-%d %H:%M:%S} UTC" if self.opened_at else "yes"


def read_record(document: object, settings: ServiceSettings) -> ReadRecord:
    """Return what the record of a link says; StrangeAnswerError for what is no such record."""
    values = link_in_our_words(document, settings)
    link = CardLink.model_validate(values)
    if not (link.id or link.url or link.cardholder_long_token):
        raise StrangeAnswerError(place=settings.link_place(), problem=no_link_in(document))
    opened_at = read_moment(str(values.get("opened_on")))
    known = set(_paths(settings.fields("link")))
    others = {path: kind for path, kind in fields_of(document).items() if path not in known}
    return ReadRecord(link, read_day(link.expires_raw or "").day, opened_at, others)


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


def _harmless(text: str | None) -> str | None:
    return redact(text) if text else None


def _named(cuid: str | None, record_id: str | None) -> str:
    names = [redact(cuid)] if cuid else []
    names += [f"id {redact(record_id)} at the partner"] if record_id else []
    return ", ".join(names) or NOT_SAID


def _paths(fields: Mapping[str, Places]) -> Iterator[str]:
    """Yield the paths of the values that are put into words, in the record itself or below it."""
    for path in chain.from_iterable(places for name, places in fields.items() if name != RECORD):
        yield path
        yield from (f"{selector}.{path}" for selector in fields[RECORD])


RECORD: Final = "record"  # the name of where a record is in a body
# what a record need not have: nothing is lost without it
OPTIONAL: Final = frozenset({"cardholder_long_token", "card_id", "job_timeout"})


class Guess(NamedTuple):
    """Lines of `[service.names]`, and what a person has to answer."""

    lines: list[str]
    doubts: list[str]


def guessed(table: str, document: object, types: Mapping[str, str], profile: Profile) -> Guess:
    """Return the names for a record, `link` or `job`, that has them as the interface does, but in
    another place; of the others, that nothing is called so. `types`: of its fields, by path.
    """
    lines = list[str]()
    doubts = list[str]()
    fields = profile.fields(table)
    in_record = _of_record(document, types, fields[RECORD])
    for field, places in fields.items():
        usual = [_last_name(place) for place in NAMES[f"{table}.{field}"].usual]
        if field == RECORD or not usual or _is_found(document, fields[RECORD], places):
            continue
        paths = _called(in_record, usual)
        if not paths and f"{table}.{field}" == "link.url":
            paths = _only_address(in_record)
        if paths:
            lines.append(f"{table}.{field} = {toml(paths[:1])}  # guessed")
            doubts.append(f"{table}.{field}: is it {' or '.join(paths)}?")
        elif field not in OPTIONAL:
            lines.append(f"# {table}.{field}: nothing that came is called so")
    return Guess(lines, doubts)


def _called(in_record: Mapping[str, str], usual: Collection[str]) -> list[str]:
    """Return the paths that end in one of these names, the nearest to the top first."""
    named = [path for path in in_record if "[]" not in path and _last_name(path) in usual]
    return sorted(named, key=lambda path: path.count("."))


def _only_address(in_record: Mapping[str, str]) -> list[str]:
    """Return the path of the only address that came, nothing where there are several."""
    paths = [path for path, kind in in_record.items() if kind == ADDRESS and "[]" not in path]
    return paths if len(paths) == 1 else []


def _last_name(path: str) -> str:
    return fold(path.rpartition(".")[2])


def _of_record(document: object, types: Mapping[str, str], selectors: Places) -> Mapping[str, str]:
    """Return the fields of the record by their paths in it, where a selector finds it."""
    for selector in selectors:
        if _is_there(document, selector):
            below = f"{selector}."
            return {
                path.removeprefix(below): kind
                for path, kind in types.items()
                if path.startswith(below)
            }
    return types


def _is_found(document: object, selectors: Places, places: Places) -> bool:
    """Return whether a setting, or its default, finds the field already."""
    records = [document, *(value_at(document, selector) for selector in selectors)]
    return any(_is_there(record, place) for record, place in product(records, places))


def _is_there(record: object, place: str) -> bool:
    names = place.split(".")
    for name in names:
        if not isinstance(record, dict) or name not in record:
            return False
        record = record[name]
    return True
