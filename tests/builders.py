"""Builders shared by the tests: small frames of portal rows with published test cards only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import settings

from schemas.portal import CUID, columns

GOOD = {
    "cardholder.cuid": "c-1",
    "service_card.pan": "4242424242424242",
    "service_card.expiration_year": "29",
    "service_card.expiration_month": "11",
    "service_card.name_on_card": "Ada Byron",
    "service_card.cvv": "123",
    "service_card.address.address1": "1 Main St",
    "service_card.address.city": "Boston",
    "service_card.address.subnational": "MA",
    "service_card.address.country": "US",
    "service_card.address.postal_code": "02108",
    "service_card.address.first_name": "Ada",
    "service_card.address.last_name": "Byron",
    "service_card.address.is_primary": "TRUE",
}


def portal_rows(*changes: Mapping[str, str | None]) -> pl.DataFrame:
    """Return one good row per change, numbered from 1, with the change applied; cuids c-1, c-2,
    …
    """
    rows = [
        {"row": at, "line": at + 1, **dict.fromkeys(columns()), **GOOD, CUID: f"c-{at}", **change}
        for at, change in enumerate(changes, 1)
    ]
    schema = {"row": pl.UInt32, "line": pl.UInt32, **dict.fromkeys(columns(), pl.String)}
    return pl.DataFrame(rows, schema=schema)


def share_of(examples: float) -> int:
    """Return a share of the examples that the profile of this session has, counted as 25 at least:
    for properties whose examples cost a night each, or next to nothing. Fewer than ten show nothing.
    """
    return max(10, round(max(settings().max_examples, 25) * examples))


def quick(number: int, cases: Sequence[Any]) -> list[Any]:
    """Return cases of a parameter, of which the first so many run in `make test`, the others in
    `make test-all`.
    """
    return [
        *cases[:number],
        *(pytest.param(*_values(one), marks=pytest.mark.slow) for one in cases[number:]),
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if type(case) is tuple else (case,)  # a NamedTuple is one value
