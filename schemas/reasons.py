"""Reason codes, `entity.property.kind`, for our rejects and the partner's errors alike: who acts, what is accepted.

The kind decides the action, the property the hint.
"""

from __future__ import annotations

from typing import NamedTuple

FIX = "fix at source"
RESUBMIT = "resubmit as is"
NOTHING = "nothing"
ASK = "ask the partner"


class Reason(NamedTuple):
    """A code, who acts on it (`action`), and what would be accepted (`hint`)."""

    code: str
    action: str
    hint: str


ACTIONS = {
    "missing": FIX, "placeholder": FIX, "format": FIX, "unknown": FIX, "mismatch": FIX, "luhn": FIX,
    "expired": FIX, "far": FIX, "soon": FIX, "both": FIX, "card_number": FIX, "other_cuid": FIX,
    "newline": FIX, "utf16": FIX, "lost_zero": FIX, "empty": FIX, "hex": FIX, "base64_of_hex": FIX,
    "base64url": FIX, "unpadded": FIX,
    "repeated": NOTHING, "excluded": NOTHING, "standing": NOTHING, "awaiting": NOTHING, "refused": FIX,
    "renewed": NOTHING, "absent": NOTHING, "before_link": NOTHING,
    "invalid": FIX, "unterminated": FIX, "bare": FIX, "too_few": FIX, "too_many": FIX, "short": FIX, "long": FIX,
    "control": FIX,
    # The kinds of the partner's errors, as flows.core.results.partner_terms reads them from its words:
    "unavailable": RESUBMIT, "length": FIX, "exists": ASK, "unsupported": ASK, "unreadable": ASK, "other": ASK,
}  # fmt: skip

HINTS = {
    "cardholder.cuid": "a reference of your own without line breaks, which is no card number and differs by cardholder",
    "card.pan": "16 digits with the right check digit",
    "card.expiration_year": "two digits: 27 for 2027",
    "card.expiration_month": "01 to 12",
    "card.expiration": "a card valid on the business date and until its link expires",
    "card.name_on_card": "a name of letters, without digits",
    "card.cvv": "three or four digits, leading zeros kept, or their hash",
    "card.cvv_hash": "Base64, with its padding, of the SHA-256 of the CVV's digits as ASCII text and nothing else",
    "address.address1": "a street line",
    "address.city": "a city",
    "address.subnational": "a state or province of the row's country, as two letters or by its name",
    "address.country": "US or CA, or a usual spelling of either",
    "address.postal_code": "a ZIP of five digits, leading zeros kept, or A1A 1A1, lying in the row's state or province",
    "address.email": "one address: name@example.com",
    "address.phone_number": "7 to 15 digits, with or without + and separators",
    "address.first_name": "a first name",
    "address.last_name": "a last name",
    "address.is_primary": "TRUE or FALSE",
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
EXACT_HINTS = {
    "card.pan.repeated": "each card of a cardholder once",
    "card.expiration.before_link": "a card that outlives its link: one that ends first needs no other link",
    "card.pan.other_cuid": "one cuid for all rows of a card, unless its holders differ",
    "card.cvv_hash.newline": "the hash of the digits alone: a line break was hashed with them",
    "card.cvv_hash.utf16": "the hash of the digits as ASCII: they were hashed as UTF-16",
    "card.cvv_hash.lost_zero": "the hash of all three digits: leading zeros were lost before hashing",
    "card.cvv_hash.empty": "nothing at all where there is no CVV: the empty text was hashed",
    "card.cvv_hash.hex": "the digest in Base64: it was written in hexadecimal",
    "card.cvv_hash.base64_of_hex": "the Base64 of the digest's 32 bytes, not of its hexadecimal text",
    "card.cvv_hash.base64url": "the plain Base64 alphabet with + and /, not the one for URLs",
    "card.cvv_hash.unpadded": "Base64 with the = at its end",
    "card.cvv_hash.mismatch": "the hash of the CVV beside it, or only one of the two",
    "card.cvv_hash.unknown": "the hash of a CVV of three or four digits, without salt",
}


def reason(code: str) -> Reason:
    """Return what `code` asks for; an unknown kind goes to the partner, an unknown property has no hint."""
    subject, _, kind = code.rpartition(".")
    return Reason(code, ACTIONS.get(kind, ASK), EXACT_HINTS.get(code) or HINTS.get(subject, ""))
