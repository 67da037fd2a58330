"""Cardholders, cards and card links, and the verification at a link (interface.md 2.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from flows.extensions.simulator.portal import cvv_hash, known_cvv_hash, known_postal_code
from flows.extensions.simulator.service.refusals import refused
from schemas.challenges import CHALLENGES, USUAL


@dataclass(frozen=True)
class Card:
    """A card as the service keeps it: what the challenges ask for, never the whole number."""

    id: int
    cardholder_id: int
    nickname: str
    name_on_card: str
    last_4: str
    expiration: str  # MM/YY
    # the right answer of each challenge, the CVV as its hash
    known: Mapping[str, str] = field(repr=False)

    def answers(self, challenge: str, answer: str) -> bool:
        """Return whether `answer` is what the challenge wants to know."""
        known = self.known[challenge]
        return known != "" and known == _as_kept(challenge, answer)

    def can_answer(self, challenges: Sequence[str]) -> bool:
        """Return whether a right answer to each challenge is known, so that anybody can give it."""
        return all(self.known[challenge] for challenge in challenges)

    def record(self) -> dict[str, Any]:
        """Return the hydrated card of a card link record."""
        month, year = self.expiration.split("/")
        return {
            "id": self.id,
            "cardholder_id": self.cardholder_id,
            "nickname": self.nickname,
            "name_on_card": self.name_on_card,
            "last_4": self.last_4,
            "expiration_month": month,
            "expiration_year": year,
        }


@dataclass(frozen=True)
class Cardholder:
    """A cardholder: one for each cuid, however many links it has."""

    id: int
    cuid: str
    first_name: str
    last_name: str
    email: str

    def record(self) -> dict[str, Any]:
        """Return the hydrated cardholder of a card link record."""
        return dict(vars(self))


@dataclass
class Link:
    """A card link and how far its cardholder came."""

    id: str
    url: str
    cardholder_long_token: str
    cardholder_id: int
    card_id: int
    created_on: datetime
    expires: date
    opened_on: datetime | None = None
    authenticated_on: datetime | None = None


class Links:
    """All links with their cards and cardholders."""

    def __init__(self, challenges: Sequence[str] = USUAL) -> None:
        if not set(challenges) <= set(CHALLENGES) or not challenges:
            raise ValueError(f"challenges: one or more of {', '.join(CHALLENGES)}")
        self.challenges = tuple(challenges)
        self.cards: dict[int, Card] = {}
        self.cardholders: dict[int, Cardholder] = {}
        self.links: dict[str, Link] = {}
        self._of_cuid: dict[str, int] = {}

    def cardholder(self, cuid: str, fields: Mapping[str, str]) -> Cardholder:
        """Return the cardholder of a cuid, new or brought up to date (interface.md 2.6)."""
        number = self._of_cuid.setdefault(cuid, len(self.cardholders) + 1)
        cardholder = Cardholder(
            id=number,
            cuid=cuid,
            first_name=fields["address.first_name"],
            last_name=fields["address.last_name"],
            email=fields["address.email"],
        )
        self.cardholders[number] = cardholder
        return cardholder

    def card(self, cardholder: Cardholder, fields: Mapping[str, str]) -> Card:
        """Keep a card."""
        expiration = f"{fields['expiration_month']}/{fields['expiration_year']}"
        card = Card(
            id=len(self.cards) + 1,
            cardholder_id=cardholder.id,
            nickname=fields["nickname"],
            name_on_card=fields["name_on_card"],
            last_4=fields["pan"][-4:],
            expiration=expiration,
            known=_known(fields, expiration),
        )
        self.cards[card.id] = card
        return card

    def find(self, link_id: str) -> Link:
        """Return a link; refused with 404 where there is none."""
        if link_id not in self.links:
            raise refused(404, "card_link", "unknown", "there is no such card link", "id")
        return self.links[link_id]

    def open(self, link_id: str, now: datetime) -> Link:
        """Let a cardholder open the verification page; refused with 410 after its last day."""
        link = self.find(link_id)
        if now.date() > link.expires:
            raise refused(410, "card_link", "expired", "has expired", "expiration_date")
        link.opened_on = link.opened_on or now
        return link

    def verify(self, link_id: str, answers: Mapping[str, str], now: datetime) -> Link:
        """Let a cardholder answer the challenges.

        Refused with 403, which does not say which one was wrong.
        """
        link = self.open(link_id, now)
        card = self.cards[link.card_id]
        for challenge in self.challenges:
            if not card.answers(challenge, answers.get(challenge, "")):
                raise refused(403, "verification", "refused", "the answers do not fit the card")
        link.authenticated_on = link.authenticated_on or now
        return link

    def record(self, link: Link, hydrate: Sequence[str] = ()) -> dict[str, Any]:
        """Return a card link record (interface.md 2.9).

        `hydrate` asks for more: card, card.cardholder.
        """
        record = dict(vars(link))
        record["expiration_date"] = record.pop("expires").isoformat()
        for moment in ("created_on", "opened_on", "authenticated_on"):
            record[moment] = record[moment].isoformat() if record[moment] else None
        if hydrate:
            record["card"] = self.cards[link.card_id].record()
        if "card.cardholder" in hydrate:
            record["card"]["cardholder"] = self.cardholders[link.cardholder_id].record()
        return record


def _known(fields: Mapping[str, str], expiration: str) -> dict[str, str]:
    """Return the right answer of each challenge."""
    return {
        "CVV": known_cvv_hash(fields),
        "ZIP Code": known_postal_code(fields["address.postal_code"]),
        "PAN Last 4": fields["pan"][-4:],
        "PAN Last 5": fields["pan"][-5:],
        "Expiration Date": expiration,
    }


def _as_kept(challenge: str, answer: str) -> str:
    """Return an answer in the form of `_known`."""
    if challenge == "CVV":
        return cvv_hash(answer) if answer else ""
    if challenge == "ZIP Code":
        return known_postal_code(answer)
    return answer.strip()
