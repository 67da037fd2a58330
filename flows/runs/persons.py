"""Cardholders whom decisions are about: the journal and decisions have a name of ours for each.

The table `person` says who that is. A row of it that is deleted is somebody who is erased: what was
decided stands, and is about nobody any more.
"""

import secrets
from collections.abc import Iterable, Mapping
from typing import TypeVar

import polars as pl
from sqlalchemy import insert, select

from flows.runs.adapters import Adapters
from flows.runs.cards import CONTENT_FINGERPRINTS
from flows.runs.erased import People
from flows.runs.journal import Act, enter
from schemas.database import PERSON
from schemas.records import KeptLink, NamedCard

C = TypeVar("C", NamedCard, KeptLink)
_OF_CONTENT = rf"^((?:\d+ ){{{len(CONTENT_FINGERPRINTS)}}})\S+$"  # a holder without a cuid


def holders_of(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return what each person is known by, by our name for them."""
    query = select(PERSON.c.person, PERSON.c.holder).where(PERSON.c.issuer == issuer)
    with adapters.database.snapshot() as connection:
        return {row.person: row.holder for row in connection.execute(query)}


def by_person(adapters: Adapters, act: Act, cards: Iterable[C]) -> tuple[C, ...]:
    """Return cards with our names for their holders; who has none is given one.

    The journal does not say who that is.
    """
    cards = list(cards)
    holders = holders_of(adapters.within(act.connection), act.issuer)
    persons = {holder: person for person, holder in holders.items()}
    new = {card.holder: secrets.token_hex(8) for card in cards if card.holder not in persons}
    if new:
        rows = [
            {"issuer": act.issuer, "person": person, "holder": holder}
            for holder, person in new.items()
        ]
        act.connection.execute(insert(PERSON), rows)
    persons |= new
    return tuple(card._replace(holder=persons[card.holder]) for card in cards)


def by_holder(cards: Iterable[C], holders: Mapping[str, str]) -> list[C]:
    """Return cards with what their holders are known by, without those who were erased."""
    return [card._replace(holder=holders[card.holder]) for card in cards if card.holder in holders]


def forget_persons(adapters: Adapters, issuer: str, people: People) -> None:
    """Remove who the persons are that are some of these cardholders."""
    holders = holders_of(adapters, issuer)
    known_by = pl.Series("holder", list(holders.values()), pl.String)
    contents = known_by.str.extract(_OF_CONTENT).str.strip_chars_end(" ")
    is_meant = people.named_by(known_by) | people.described_by(contents)
    meant = [person for person, is_one in zip(holders, is_meant, strict=True) if is_one]

    def work(act: Act) -> None:
        for person in meant:
            act.delete(PERSON, {"person": person})

    enter(adapters, issuer, "persons forgotten", work)
