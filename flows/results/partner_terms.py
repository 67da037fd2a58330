"""The partner's words for entities, properties and faults as reason codes `entity.property.kind`.

Change this file when the partner words its errors differently.
"""

from __future__ import annotations

import builtins
import html
import re
from functools import lru_cache
from typing import NamedTuple

from flows.results.masking import mask

_PROPERTIES = {
    "card": "pan expiration expiration_year expiration_month name_on_card cvv cvv_hash nickname customer_key last_4",
    "address": "address1 address2 city subnational country postal_code email phone_number first_name last_name "
    "is_primary",
    "cardholder": "cuid",
}
_ENTITY_OF = {name: entity for entity, names in _PROPERTIES.items() for name in names.split()}
_SPELLINGS = {
    "postal_code": "zip zip_code zipcode postal postcode",
    "pan": "card_number",
    "subnational": "state province",
    "phone_number": "phone",
    "address1": "street",
    "expiration": "expiry expiration_date",
    "cvv": "cvv2 cvc",
    "cuid": "external_cuid",
}
_ALIASES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_LONGEST_FIRST = sorted({*_ENTITY_OF, *_ALIASES} - {"cuid", "postal"}, key=len, reverse=True)
_MENTIONED = re.compile(rf"(?:^|_)({'|'.join(_LONGEST_FIRST)}|cuid(?=_(?:is|must|can|has|was|already|too)))(?:_|$)")
_ENTITY_WORDS = {"card": "card", "cards": "card", "address": "address", "addresses": "address"} | dict.fromkeys(
    ("cardholder", "cardholders", "holder", "person"), "cardholder"
)

# In this order: temporary faults first, so that "timeout: invalid response" is resent.
KINDS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "unavailable",
            r"time.?d? ?out|unavailable|try again|temporar|internal (?:server )?error|econn|network|"
            r"rate limit|too many requests|\b50[0234]\b",
        ),
        ("expired", r"expired|in the past"),
        ("exists", r"already|duplicate|exists\b|not unique|must be unique"),
        (
            "missing",
            r"requir|missing|not provided|"
            r"(?:can.?t|cannot|must not|may not|should not|is|not be) (?:be )?(?:blank|empty|null|undefined)",
        ),
        ("luhn", r"luhn|check ?(?:digit|sum)"),
        ("unsupported", r"support|not allowed|not (?:accepted|permitted)|not eligible"),
        ("length", r"too (?:long|short)|length|at most|at least|maximum|minimum|characters"),
        ("unknown", r"not found|unknown|does not exist|no such|not one of|must be one of"),
        ("format", r"valid|must be|format|match|malformed|incorrect|wrong|\bbad\b"),
    )
)
OTHER = "other"
UNREADABLE = "unreadable"
_OBJECT = re.compile(r"^(?:(?:\[object \w+\],?)+|\{\s*\}|\[\s*\]|\"\"|''|)$")


class PartnerReason(NamedTuple):
    """One objection of the partner; the message is masked."""

    entity: str
    property: str
    kind: str
    message: str

    @builtins.property  # the field above hides the plain name
    def code(self) -> str:
        """The reason code `entity.property.kind`, as in schemas/reasons.py."""
        return f"{self.entity}.{self.property}.{self.kind}"


@lru_cache(maxsize=4096)  # one night has few different faults, and the cuids are not in these texts
def partner_reason(path: tuple[str, ...], message: str, name: str = "") -> PartnerReason:
    """Classify one fault by the names on its path, its message and the error's own name."""
    text = mask(html.unescape(message))
    if _OBJECT.match(text):
        return PartnerReason("partner", "error", UNREADABLE, text or "(no text)")
    names = [snake(part) for step in reversed(path) for part in reversed(re.split(r"[.\[\]/]", step)) if part]
    kind = next((kind for kind, pattern in KINDS if pattern.search(f"{text} {name}")), OTHER)
    found = _MENTIONED.search(snake(text, alias=False))
    mentioned = _ALIASES.get(found[1], found[1]) if found else ""
    named = next((name for name in names if name in _ENTITY_OF), mentioned)
    words = (word for name in (*names, snake(text)) for word in name.split("_"))
    entity = _ENTITY_OF.get(named) or next((_ENTITY_WORDS[word] for word in words if word in _ENTITY_WORDS), "")
    if kind == "expired" and entity == "card":
        named = "expiration"
    if not entity:
        return PartnerReason("partner", "error", kind, text)
    return PartnerReason(entity, named or "record", kind, text)


def snake(name: str, *, alias: bool = True) -> str:
    """Return a name in snake case, in our spelling where it is a known alias."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    folded = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")
    return _ALIASES.get(folded, folded) if alias else folded


_BLANKS = (
    (re.compile(r"\[masked\]|\S*@\S+|https?://\S+"), "#"),
    (re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`"), "'#'"),
    (re.compile(r"\b[\w-]*\d[\w-]*\b"), "#"),
)


def shape_of(reasons: tuple[PartnerReason, ...]) -> str:
    """Return reasons as one text without ids, numbers and quoted values: same kind of error, same shape."""
    return " | ".join(dict.fromkeys(f"{one.code}: {_blank(one.message)}" for one in reasons))


@lru_cache(maxsize=4096)
def _blank(message: str) -> str:
    for pattern, blank in _BLANKS:
        message = pattern.sub(blank, message)
    return message
