"""The partner's words for entities, properties and faults, as reason codes `entity.property.kind`.

Change the tables here where the partner words its errors differently. How its texts are read is in
`error_text`.
"""

import builtins
import html
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from flows.harmless_tokens import OWN
from flows.results.masking import mask
from flows.secret_words import speaks_of_cvv

_CARD_PROPERTIES = (
    "pan", "expiration", "expiration_year", "expiration_month", "name_on_card", "cvv", "cvv_hash",
    "nickname", "customer_key", "last_4",
)  # fmt: skip
_ADDRESS_PROPERTIES = (
    "address1", "address2", "city", "subnational", "country", "postal_code", "email",
    "phone_number", "first_name", "last_name", "is_primary",
)  # fmt: skip
_SECRETS = ("cvv", "cvv_hash")  # of whose errors no digit is kept
_ENTITY_OF = {
    **dict.fromkeys(_CARD_PROPERTIES, "card"),
    **dict.fromkeys(_ADDRESS_PROPERTIES, "address"),
    "cuid": "cardholder",
}
_ALIASES = {
    "zip": "postal_code",
    "zip_code": "postal_code",
    "zipcode": "postal_code",
    "postal": "postal_code",
    "postcode": "postal_code",
    "card_number": "pan",
    "state": "subnational",
    "province": "subnational",
    "phone": "phone_number",
    "street": "address1",
    "expiry": "expiration",
    "expiration_date": "expiration",
    "cvv2": "cvv",
    "cvc": "cvv",
    "external_cuid": "cuid",
}
_LONGEST_FIRST = sorted({*_ENTITY_OF, *_ALIASES} - {"cuid", "postal"}, key=len, reverse=True)
_MENTIONED = re.compile(
    rf"(?:^|_)({'|'.join(_LONGEST_FIRST)}|cuid(?=_(?:is|must|can|has|was|already|too)))(?:_|$)"
)
_ENTITY_WORDS = {
    "card": "card",
    "cards": "card",
    "address": "address",
    "addresses": "address",
    "cardholder": "cardholder",
    "cardholders": "cardholder",
    "holder": "cardholder",
    "person": "cardholder",
}

# In this order: temporary faults first, so that "timeout: invalid response" is resent.
_KIND_PATTERNS = {
    "unavailable": r"time.?d? ?out|unavailable|try again|temporar|internal (?:server )?error|econn"
    r"|network|rate limit|too many requests|\b50[0234]\b",
    "expired": r"(?<!not )expired|in the past",
    "exists": r"already|duplicate|exists\b|not unique|must be unique|not expired",
    "missing": r"requir|missing|not provided"
    r"|(?:can.?t|cannot|must not|may not|should not|is|not be) (?:be )?"
    r"(?:blank|empty|null|undefined)",
    "luhn": r"luhn|check ?(?:digit|sum)",
    "unsupported": r"support|not allowed|not (?:accepted|permitted)|not eligible",
    "length": r"too (?:long|short)|length|at most|at least|maximum|minimum|characters",
    "unknown": r"not found|unknown|does not exist|no such|not one of|must be one of",
    "format": r"valid|must be|format|match|malformed|incorrect|wrong|\bbad\b",
}
KINDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KIND_PATTERNS.items()}
OTHER = "other"
UNREADABLE = "unreadable"
# what is left of an error object that was written without its fields
_EMPTY_OBJECT = re.compile(r"^(?:(?:\[object \w+\],?)+|\{\s*\}|\[\s*\]|\"\"|''|)$")


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
def partner_reason(
    path: tuple[str, ...],
    message: str,
    name: str = "",
    *,
    secret: bool = False,
    known: tuple[str, ...] = (),
) -> PartnerReason:
    """Classify one fault by the names on its path, its message and the error's own name.

    `secret`: no digit of the message is kept, whatever it is about. `known`: texts that are kept.
    """
    text = html.unescape(message)
    if _EMPTY_OBJECT.match(text.strip()):
        return PartnerReason("partner", "error", UNREADABLE, mask(text) or "(no text)")
    names = _names_on(path)
    property_name = _property_of(names, text)
    entity = _ENTITY_OF.get(property_name) or _entity_of(names, text)
    kind = _kind_of(f"{text} {name}")
    is_secret = secret or property_name in _SECRETS or speaks_of_cvv(" ".join(path))
    kept = mask(text, secret=is_secret, known=known)
    if not entity:
        return PartnerReason("partner", "error", kind, kept)
    if kind == "expired" and entity == "card":
        property_name = "expiration"
    return PartnerReason(entity, property_name or "record", kind, kept)


def _kind_of(text: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if pattern.search(text)), OTHER)


def _names_on(path: tuple[str, ...]) -> list[str]:
    """Return the names on a path in our spelling, the last first."""
    names = list[str]()
    for step in reversed(path):
        parts = re.split(r"[.\[\]/]", step)
        names += [_our_name(part) for part in reversed(parts) if part]
    return names


def _property_of(names: Sequence[str], text: str) -> str:
    """Return the property that is named, else the first that the text mentions, else ''."""
    for name in names:
        if name in _ENTITY_OF:
            return name
    mention = _MENTIONED.search(_snake_case(text))
    return _our_name(mention[1]) if mention else ""


def _entity_of(names: Sequence[str], text: str) -> str:
    """Return the entity that a word of the names, or else of the text, stands for, else ''."""
    for name in (*names, _our_name(text)):
        for word in name.split("_"):
            if word in _ENTITY_WORDS:
                return _ENTITY_WORDS[word]
    return ""


def _our_name(name: str) -> str:
    """Return a name in snake case, in our spelling where it is a known alias."""
    folded = _snake_case(name)
    return _ALIASES.get(folded, folded)


def _snake_case(name: str) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


_BLANKS = (
    (re.compile(rf"(?:\S*\[[0-9]+ [A-Za-z0-9]+\])+|\[link\]|\[e-mail address\]|{OWN}"), "#"),
    (re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`"), "'#'"),
    (re.compile(r"\b[\w-]*\d[\w-]*\b"), "#"),
)


def shape_of(reasons: Sequence[PartnerReason]) -> str:
    """Return reasons as one text without ids, numbers and quoted values.

    Errors of the same kind have the same shape.
    """
    shapes = (f"{reason.code}: {_blank(reason.message)}" for reason in reasons)
    return " | ".join(dict.fromkeys(shapes))


@lru_cache(maxsize=4096)
def _blank(message: str) -> str:
    for pattern, blank in _BLANKS:
        message = pattern.sub(blank, message)
    return message
