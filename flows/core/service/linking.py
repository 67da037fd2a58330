"""From a refined row to the request of a single link (interface.md 2.8): its rules named as reason codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from flows.core.service.service_errors import LinkRequestError
from schemas.card_link import CardLinkRequest
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)

_CARDHOLDER: Final = {"cuid": CUID, "first_name": FIRST_NAME, "last_name": LAST_NAME, "email": EMAIL}
_ADDRESS: Final = {
    "address1": ADDRESS1, "address2": ADDRESS2, "city": CITY, "subnational": SUBNATIONAL, "postal_code": POSTAL_CODE,
    "country": COUNTRY, "phone_number": PHONE, "email": EMAIL,
}  # fmt: skip
_CARD: Final = {
    "pan": PAN, "expiration_month": MONTH, "expiration_year": YEAR, "name_on_card": NAME_ON_CARD,
    "nickname": NICKNAME, "cvv": CVV,
}  # fmt: skip
_MISSING: Final = frozenset({"missing", "string_too_short", "none_not_allowed"})


def link_request(row: Mapping[str, str | None], expiration: Mapping[str, str] | None = None) -> CardLinkRequest:
    """Return the request for the link of a refined row (columns of 2.6); its hash of a CVV has no place in it.

    A nickname, which 2.8 requires and 2.6 does not, is made of the last four digits. Raises LinkRequestError, which
    names entity, property and kind, never a value.
    """
    card = _taken(row, _CARD)
    if "pan" in card:
        card.setdefault("nickname", f"Card ending in {card['pan'][-4:]}")
    primary = {"is_primary": row.get(IS_PRIMARY) == "TRUE"} if row.get(IS_PRIMARY) else {}
    return checked_request(
        {
            "cardholder": _taken(row, _CARDHOLDER),
            "address": {**_taken(row, _ADDRESS), **primary},
            "card": {"reference": None, **card},
            **({"expiration": dict(expiration)} if expiration else {}),
        }
    )


def checked_request(plain: Mapping[str, object]) -> CardLinkRequest:
    """Return the request these objects make; LinkRequestError with a code per rule that is broken."""
    try:
        return CardLinkRequest.model_validate(plain)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        codes = [_code(fault["loc"], fault["type"]) for fault in faults]
    raise LinkRequestError(codes=", ".join(dict.fromkeys(codes)))


def _taken(row: Mapping[str, str | None], names: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, column in names.items() if (value := row.get(column))}


def _code(place: tuple[int | str, ...], kind: str) -> str:
    """Name a broken rule as `entity.property.kind`; a property nobody knows is not quoted."""
    told = kind if kind == "unknown" else "missing" if kind in _MISSING else "format"
    if kind == "extra_forbidden":
        place, told = (*place[:-1], "property"), "unknown"
    entity, name = (*map(str, place), "record")[:2]
    return f"{entity}.{name}.{told}"
