"""The request for one link (interface.md 2.8), made of a refined row, or codes of what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from pydantic import ValidationError

from flows.partner_api.service import LinkRequestError
from schemas.partner_api.card_link import CardLinkRequest
from schemas.partner_api.expiry import expiration_object
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

# properties of the request, each with its column
_CARDHOLDER: Final = {
    "cuid": CUID,
    "first_name": FIRST_NAME,
    "last_name": LAST_NAME,
    "email": EMAIL,
}
_ADDRESS: Final = {
    "address1": ADDRESS1,
    "address2": ADDRESS2,
    "city": CITY,
    "subnational": SUBNATIONAL,
    "postal_code": POSTAL_CODE,
    "country": COUNTRY,
    "phone_number": PHONE,
    "email": EMAIL,
}
_CARD: Final = {
    "pan": PAN,
    "expiration_month": MONTH,
    "expiration_year": YEAR,
    "name_on_card": NAME_ON_CARD,
    "nickname": NICKNAME,
    "cvv": CVV,
}
_MISSING: Final = frozenset({"missing", "string_too_short", "none_not_allowed"})


def link_request(
    row: Mapping[str, str | None],
    until: date | None = None,
    reference: Mapping[str, Any] | None = None,
) -> CardLinkRequest:
    """Return the request for the link of a refined row (columns of 2.6), until its last day.

    With the reference of a card that the partner has, nothing of the card itself is in it.

    The row's hash of a CVV has no place in it. A nickname, which 2.8 requires and 2.6 does not, is
    made of the last four digits. Raises LinkRequestError, which names entity, property and kind,
    never a value.
    """
    card = _filled(row, _CARD) if reference is None else {}
    if "pan" in card:
        card.setdefault("nickname", f"Card ending in {card['pan'][-4:]}")
    address: dict[str, object] = {**_filled(row, _ADDRESS)}
    if row.get(IS_PRIMARY):
        address["is_primary"] = row.get(IS_PRIMARY) == "TRUE"
    request: dict[str, object] = {
        "cardholder": _filled(row, _CARDHOLDER),
        "address": address,
        "card": {"reference": reference, **card},
    }
    if until is not None:
        request["expiration"] = expiration_object(until)
    return checked_request(request)


def checked_request(plain: Mapping[str, object]) -> CardLinkRequest:
    """Return the request of these objects; LinkRequestError with a code per broken rule."""
    try:
        return CardLinkRequest.model_validate(plain)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        codes = [_code(fault["loc"], fault["type"]) for fault in faults]
    raise LinkRequestError(codes=", ".join(dict.fromkeys(codes)))


def _filled(row: Mapping[str, str | None], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the properties whose columns have a value."""
    values = {name: row.get(column) for name, column in columns.items()}
    return {name: value for name, value in values.items() if value}


def _code(place: tuple[int | str, ...], kind: str) -> str:
    """Name a broken rule as `entity.property.kind`; an unknown property is not quoted."""
    if kind == "extra_forbidden":
        place = (*place[:-1], "property")
        reported = "unknown"
    elif kind == "unknown":
        reported = kind
    else:
        reported = "missing" if kind in _MISSING else "format"
    entity, name = (*map(str, place), "record")[:2]
    return f"{entity}.{name}.{reported}"
