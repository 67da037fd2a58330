"""What the portal finds wrong with a row: its own small reading of interface.md 2.6.

The simulator is the independent witness of the pipeline, so nothing here imports the pipeline's
checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

REQUIRED = (
    "pan",
    "expiration_year",
    "expiration_month",
    "address.address1",
    "address.city",
    "address.subnational",
    "address.country",
    "address.postal_code",
    "address.first_name",
    "address.last_name",
    "address.is_primary",
)
COUNTRIES = frozenset(("usa", "USA", "us", "US", "canada", "Canada", "ca", "CA"))
SHAPES = {
    "pan": re.compile(r"[0-9]{16}"),
    "expiration_year": re.compile(r"[0-9]{2}"),
    "expiration_month": re.compile(r"0[1-9]|1[0-2]"),
    "cvv_hash": re.compile(r"[A-Za-z0-9+/]{43}="),
    "cvv": re.compile(r"[0-9]{3,4}"),
    "address.country": re.compile("|".join(sorted(COUNTRIES))),
    "address.is_primary": re.compile("TRUE|FALSE"),
}
EXPIRATION = ("expiration_year", "expiration_month")


class Fault(NamedTuple):
    """One thing wrong with a row; no value.

    The entity is cardholder, card or address; the message is a sentence.
    """

    entity: str
    property: str
    kind: str
    message: str


def faults(fields: Mapping[str, str], today: date) -> tuple[Fault, ...]:
    """Return what is wrong with a row, its fields without their prefix (`pan`, `address.city`)."""
    missing = [field for field in REQUIRED if not fields[field]]
    invalid = _misshapen(fields)
    unusable = {*missing, *invalid}
    row_faults = [fault(field, "missing", "is required") for field in missing]
    row_faults += [fault(field, "invalid", "is not valid") for field in invalid]
    if "pan" not in unusable and not luhn_holds(fields["pan"]):
        row_faults.append(fault("pan", "invalid", "does not pass its check digit"))
    if unusable.isdisjoint(EXPIRATION) and _has_expired(fields, today):
        row_faults.append(fault("expiration", "expired", "is in the past"))
    return tuple(row_faults)


def fault(field: str, kind: str, message: str) -> Fault:
    """Return the fault of `field` (`address.city` is the property city of the entity address)."""
    entity, dot, name = field.rpartition(".")
    return Fault(entity if dot else "card", name, kind, f"{name} {message}")


def luhn_holds(digits: str) -> bool:
    """Return whether the last digit of `digits` is its Luhn check digit."""
    doubled = (2 * int(digit) for digit in digits[-2::-2])
    total = sum(number // 10 + number % 10 for number in doubled)
    total += sum(int(digit) for digit in digits[-1::-2])
    return total % 10 == 0


def _misshapen(fields: Mapping[str, str]) -> list[str]:
    return [
        field
        for field, shape in SHAPES.items()
        if fields[field] and not shape.fullmatch(fields[field])
    ]


def _has_expired(fields: Mapping[str, str], today: date) -> bool:
    year, month = (int(fields[field]) for field in EXPIRATION)
    return (2000 + year, month) < (today.year, today.month)
