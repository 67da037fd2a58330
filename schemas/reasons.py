"""Reason codes, `entity.property.kind`, for our rejects and the partner's errors alike: who acts, what is accepted.

What a rule says stands in its entry of `schemas.rules`, what any other reason of ours says in its entry below. Of the
partner's errors the kind decides the action, and the property the hint. `deploy/REASONS.md` is the page of them all.
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


class Entry(NamedTuple):
    """A reason that is no rule of a row's cells; `happens`: what happens to the row or line by default."""

    code: str
    happens: str
    action: str
    hint: str = ""  # what would be accepted, where that is not what its column accepts


LINES = (  # a line that is no record
    Entry("line.encoding.invalid", "reject", FIX, "text in the encoding the issuer's [source] names"),
    Entry("line.character.control", "reject", FIX, "no control characters"),
    Entry("line.quote.unterminated", "reject", FIX, "a field in double quotes, with quotes inside it doubled"),
    Entry("line.quote.bare", "reject", FIX, "a field in double quotes, with quotes inside it as `quoting` says"),
    Entry("line.fields.too_few", "reject", FIX, "as many fields as the header has"),
    Entry("line.fields.too_many", "reject", FIX, "as many fields as the header has"),
    Entry("line.fields.empty", "reject", FIX, "as many fields as the header has"),
    Entry("line.length.short", "reject", FIX, "a line as long as the fields' positions need"),
    Entry("line.length.long", "reject", FIX, "a line as long as the fields' positions need"),
)
_RESTS = "a card without a link, or one that changed or whose link ends soon"
_ABSENT = "a card that stands in the latest extract, in a row that can be sent"
ROWS = (  # a row among others, of this extract or of earlier runs
    Entry("row.content.repeated", "not sent: duplicate", NOTHING, "each row once"),
    Entry("card.pan.repeated", "not sent: duplicate", NOTHING, "each card of a cardholder once"),
    Entry(
        "card.pan.other_cuid", "`other_cuid`: warn", FIX, "one cuid for all rows of a card, unless its holders differ"
    ),
    Entry("row.filter.excluded", "not sent: suppressed", NOTHING, "rows that the issuer's [filter] lets through"),
    Entry("cardholder.cuid.missing", "reject, in a portfolio only", FIX),
    Entry("card.link.standing", "not sent: suppressed", NOTHING, _RESTS),
    Entry("card.link.awaiting", "not sent: suppressed", NOTHING, _RESTS),
    Entry("card.link.refused", "not sent: suppressed", FIX, _RESTS),
    Entry("card.link.renewed", "not renewed", NOTHING, _RESTS),
    Entry("card.extract.absent", "not renewed", NOTHING, _ABSENT),
    Entry("card.extract.refused", "not renewed", FIX, _ABSENT),
    Entry(
        "card.expiration.before_link",
        "not renewed",
        NOTHING,
        "a card that outlives its link: one that ends first needs no other link",
    ),
    Entry("row.result.lost", "error, by an operator's decision", RESUBMIT),
    Entry("row.link.expired", "error, by an operator's decision", RESUBMIT),
)
PARTNER = {  # the kinds of the partner's errors that no rule of ours has
    "unavailable": RESUBMIT, "length": FIX, "exists": ASK, "unsupported": ASK, "unreadable": ASK, "other": ASK,
}  # fmt: skip

_ENTRIES = {entry.code: entry for entry in (*LINES, *ROWS)}
ACTIONS = (
    {code.rpartition(".")[2]: entry.action for code, entry in _ENTRIES.items()}
    | {rule.code.rpartition(".")[2]: rule.action for rule in rules.RULES}
    | PARTNER
)
HINTS = {column.subject: column.accepts for column in portal.COLUMNS}


def reason(code: str) -> Reason:
    """Return what `code` asks for; an unknown kind goes to the partner, an unknown property has no hint."""
    subject, _, kind = code.rpartition(".")
    rule = next((rule for rule in rules.RULES if rule.code == code), None)
    if rule is not None:
        return Reason(code, rule.action, rule.hint or HINTS.get(subject, ""))
    if code in _ENTRIES:
        return Reason(code, _ENTRIES[code].action, _ENTRIES[code].hint or HINTS.get(subject, ""))
    return Reason(code, ACTIONS.get(kind, ASK), HINTS.get(subject, ""))
