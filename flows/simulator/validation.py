"""What the portal finds wrong with a row: its own small reading of interface.md 2.6, apart from
ours.

The simulator is the independent witness of the pipeline, so nothing here imports the pipeline's
checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


class Fault(NamedTuple):
    """One thing wrong with a row: entity (cardholder, card, address), property, kind, sentence; no
    value.
    """

    entity: str
    property: str
    kind: str
    message: str


def faults(fields: Mapping[str, str], today: date) -> tuple[Fault, ...]:
    """Return what is wrong with one row, its fields named without their prefix (`pan`,
    `address.city`).
    """
    return tuple(_found(fields, today))


def fault(field: str, kind: str, message: str) -> Fault:
    """Return the fault of `field` (`address.city` is the property city of the entity address)."""
    entity, dot, name = field.rpartition(".")
    return Fault(entity if dot else "card", name, kind, f"{name} {message}")


def luhn_holds(digits: str) -> bool:
    """Return whether the last digit of `digits` is its Luhn check digit."""
    doubled = (2 * int(digit) for digit in digits[-2::-2])
    kept = (int(digit) for digit in digits[-1::-2])
    return sum(kept) % 10 == -sum(two // 10 + two % 10 for two in doubled) % 10


def _found(fields: Mapping[str, str], today: date) -> Iterator[Fault]:
    for field in REQUIRED:
        if not fields[field]:
            yield fault(field, "missing", "is required")
    wrong = [
        field
        for field, shape in SHAPES.items()
        if fields[field] and not shape.fullmatch(fields[field])
    ]
    for field in wrong:
        yield fault(field, "invalid", "is not valid")
    if fields["pan"] and "pan" not in wrong and not luhn_holds(fields["pan"]):
        yield fault("pan", "invalid", "does not pass its check digit")
    year, month = fields["expiration_year"], fields["expiration_month"]
    dated = year and month and not {"expiration_year", "expiration_month"} & set(wrong)
    if dated and (2000 + int(year), int(month)) < (today.year, today.month):
        yield fault("expiration", "expired", "is in the past")
