"""Reads an on-demand card link request (interface.md 2.8) by the rules of the upload file.

It adds its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, Final

from flows.extensions.simulator.portal import two_months_after
from flows.extensions.simulator.service.refusals import RefusedRequestError
from flows.extensions.simulator.validation import Fault, faults
from schemas.portal import columns

SERVER: Final = re.compile(r"https://[^/\s]+(/.*)?|http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/.*)?")
CONDITIONAL: Final = ("pan", "expiration_month", "expiration_year", "name_on_card", "nickname")
CARD_FIELDS: Final = (*CONDITIONAL, "cvv")


def read_fields(request: Mapping[str, Any], today: date) -> dict[str, str]:
    """Return the fields of a request as an upload row names them (`pan`, `address.city`).

    Refused with all its faults. The caller has seen to it that every required object and string is
    there; a card given by reference is left empty.
    """
    fields = _as_upload_row(request)
    request_faults = tuple(_faults(request, fields, today))
    if request_faults:
        raise RefusedRequestError(422, request_faults)
    return fields


def _as_upload_row(request: Mapping[str, Any]) -> dict[str, str]:
    cardholder = request["cardholder"]
    card = request["card"]
    fields = {name.partition(".")[2]: "" for name in columns()}
    fields |= _address_fields(request["address"])
    fields |= {name: card.get(name) or "" for name in CARD_FIELDS}
    fields["cuid"] = cardholder.get("cuid") or ""
    fields["address.first_name"] = cardholder["first_name"]
    fields["address.last_name"] = cardholder["last_name"]
    if cardholder.get("email"):
        fields["address.email"] = cardholder["email"]
    return fields


def _address_fields(address: Mapping[str, Any]) -> dict[str, str]:
    fields = {f"address.{name}": text for name, text in address.items() if isinstance(text, str)}
    fields["address.is_primary"] = "FALSE" if address.get("is_primary") is False else "TRUE"
    return fields


def expiry(expiration: Mapping[str, str | None] | None, today: date) -> date:
    """Return the day the link ends: by default two months from now (interface.md 8)."""
    usual = two_months_after(today)
    if not expiration:
        return usual
    day, month, year = (
        int(expiration.get(name) or getattr(usual, name)) for name in ("day", "month", "year")
    )
    try:
        ends = date(year, month, day)
    except ValueError:
        ends = None
    if ends is None or ends < today:
        raise RefusedRequestError(422, [Fault("expiration", "day", "invalid", "is no day to come")])
    return ends


def _faults(request: Mapping[str, Any], fields: Mapping[str, str], today: date) -> Iterator[Fault]:
    card = request["card"]
    if card.get("reference") is None:
        for name in CONDITIONAL:
            if not card.get(name):
                yield Fault("card", name, "missing", f"{name} is required")
    if not SERVER.fullmatch(request["service"]["service_server"]):
        yield Fault(
            "service", "service_server", "invalid", "service_server is not an HTTPS address"
        )
    for fault in faults(fields, today):
        if (fault.entity, fault.kind) == ("card", "missing"):
            continue  # above, in the words of 2.8
        if fault.property.endswith("_name"):
            fault = fault._replace(entity="cardholder")
        yield fault
