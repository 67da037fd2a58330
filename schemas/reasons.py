"""Reason codes: `entity.property.kind`, and what each asks of whom. One table for our rejects and the partner's errors."""

from __future__ import annotations

from typing import NamedTuple

FIX = "fix at source"
RESUBMIT = "resubmit as is"
NOTHING = "nothing"
ASK = "ask the partner"


class Reason(NamedTuple):
    """What a code asks for: who acts (`action`), and what would be accepted (`hint`)."""

    code: str
    action: str
    hint: str


ACTIONS = {
    "missing": FIX, "placeholder": FIX, "format": FIX, "unknown": FIX, "mismatch": FIX, "luhn": FIX, "expired": FIX,
    "far": FIX, "soon": FIX, "both": FIX, "card_number": FIX, "newline": FIX, "hex": FIX, "base64_of_hex": FIX,
    "base64url": FIX, "empty": FIX, "lost_zero": FIX, "repeated": NOTHING, "other_cuid": FIX,
}  # fmt: skip
HINTS: dict[str, str] = {
    "card.pan.missing": "a card number of 16 digits",
    "card.pan.placeholder": "a card number of 16 digits",
    "card.pan.format": "a card number of 16 digits",
    "card.pan.luhn": "a card number whose check digit is right",
    "card.expiration_year.format": "a year of two digits",
    "card.expiration_month.format": "a month from 01 to 12",
    "card.expiration.expired": "a card valid on the business date",
    "card.cvv.missing": "a CVV of three or four digits, or its hash",
    "row.content.repeated": "each cardholder's row once",
    "card.pan.repeated": "each card of a cardholder once",
}


def reason(code: str) -> Reason:
    """Return what `code` asks for; an unknown one is decided by its kind, else the partner is asked."""
    kind = code.rpartition(".")[2]
    return Reason(code, ACTIONS.get(kind, ASK), HINTS.get(code, ""))
