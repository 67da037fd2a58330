"""Reason codes, `entity.property.kind`, for our rejects and the partner's errors alike: who acts, what is accepted.

What a rule says stands in its entry of `schemas.rules`. Of every other code the kind decides the action, and the
property the hint.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas import portal, rules
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT


class Reason(NamedTuple):
    """A code, who acts on it (`action`), and what would be accepted (`hint`)."""

    code: str
    action: str
    hint: str


ACTIONS = {rule.code.rpartition(".")[2]: rule.action for rule in rules.RULES} | {
    "other_cuid": FIX, "both": FIX, "repeated": NOTHING, "excluded": NOTHING, "standing": NOTHING,
    "awaiting": NOTHING, "refused": FIX, "renewed": NOTHING, "absent": NOTHING, "before_link": NOTHING,
    "invalid": FIX, "unterminated": FIX, "bare": FIX, "too_few": FIX, "too_many": FIX, "short": FIX, "long": FIX,
    "control": FIX,
    # The kinds of the partner's errors:
    "unavailable": RESUBMIT, "length": FIX, "exists": ASK, "unsupported": ASK, "unreadable": ASK, "other": ASK,
}  # fmt: skip

HINTS = {column.subject: column.accepts for column in portal.COLUMNS} | {
    "card.extract": "a card that stands in the latest extract, in a row that can be sent",
    "card.link": "a card without a link, or one that changed or whose link ends soon",
    "row.content": "each row once",
    "row.filter": "rows that the issuer's [filter] lets through",
    "line.encoding": "text in the encoding the issuer's [source] names",
    "line.character": "no control characters",
    "line.quote": "a field in double quotes, with quotes inside it doubled",
    "line.fields": "as many fields as the header has",
    "line.length": "a line as long as the fields' positions need",
    "line.end": "a last line that ends like the others",
}
EXACT_HINTS = {rule.code: rule.hint for rule in rules.RULES if rule.hint} | {
    "card.pan.repeated": "each card of a cardholder once",
    "card.expiration.before_link": "a card that outlives its link: one that ends first needs no other link",
    "card.pan.other_cuid": "one cuid for all rows of a card, unless its holders differ",
}


def reason(code: str) -> Reason:
    """Return what `code` asks for; an unknown kind goes to the partner, an unknown property has no hint."""
    subject, _, kind = code.rpartition(".")
    action = next((rule.action for rule in rules.RULES if rule.code == code), ACTIONS.get(kind, ASK))
    return Reason(code, action, EXACT_HINTS.get(code) or HINTS.get(subject, ""))
