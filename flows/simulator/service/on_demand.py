"""Reads an on-demand card link request (interface.md 2.8) by the rules of the upload file, and adds
its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, Final

from flows.simulator.portal import two_months_after
from flows.simulator.service.refusals import RefusedRequestError
from flows.simulator.validation import Fault, faults
from schemas.portal import columns

SERVER: Final = re.compile(r"https://[^/\s]+(/.*)?|http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/.*)?")
CONDITIONAL: Final = ("pan", "expiration_month", "expiration_year", "name_on_card", "nickname")
CARD_FIELDS: Final = (*CONDITIONAL, "cvv")


def read_fields(request: Mapping[str, Any], today: date) -> dict[str, str]:
    """Return the fields of a request as an upload row names them (`pan`, `address.city`); refused
    with all its faults.

    The caller has seen to it that every required object and string is there; a card given by
    reference is left empty.
    """
    fields = {name.partition(".")[2]: "" for name in columns()}
    address, cardholder, card = request["address"], request["cardholder"], request["card"]
    primary = address.get("is_primary")
    fields |= {
        f"address.{name}": value for name, value in address.items() if isinstance(value, str)
    }
    fields |= {f"address.{name}": cardholder[name] for name in ("first_name", "last_name")}
    fields["address.email"] = cardholder.get("email") or address.get("email") or ""
    fields["address.is_primary"] = "FALSE" if primary is False else "TRUE"
    fields["cuid"] = cardholder.get("cuid") or ""
    fields |= {name: card.get(name) or "" for name in CARD_FIELDS}
    found = tuple(_found(request, fields, today))
    if found:
        raise RefusedRequestError(422, found)
    return fields


def expiry(given: Mapping[str, str | None] | None, today: date) -> date:
    """Return the day the link ends: two months from now where the request does not say
    (interface.md 8).
    """
    usual = two_months_after(today)
    if not given:
        return usual
    day, month, year = (
        int(given.get(name) or getattr(usual, name)) for name in ("day", "month", "year")
    )
    try:
        ends = date(year, month, day)
    except ValueError:
        ends = None
    if ends is None or ends < today:
        raise RefusedRequestError(422, [Fault("expiration", "day", "invalid", "is no day to come")])
    return ends


def _found(request: Mapping[str, Any], fields: Mapping[str, str], today: date) -> Iterator[Fault]:
    card = request["card"]
    referred = card.get("reference") is not None
    if not referred:
        yield from (
            Fault("card", name, "missing", f"{name} is required")
            for name in CONDITIONAL
            if not card.get(name)
        )
    if not SERVER.fullmatch(request["service"]["service_server"]):
        yield Fault(
            "service", "service_server", "invalid", "service_server is not an HTTPS address"
        )
    for fault in faults(fields, today):
        # told above, in the words of 2.8
        conditional = fault.entity == "card" and fault.kind == "missing"
        if not conditional:
            yield (
                fault
                if not fault.property.endswith("_name")
                else fault._replace(entity="cardholder")
            )
