"""The table `[portfolio]` of the issuer's TOML: who is sent of an extract that repeats everybody every night."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.settings import Settings

Change = Literal["name", "address", "expiration"]


class Portfolio(Settings):
    """With `full_portfolio = true` the new, the changed and those whose link is about to expire are sent."""

    changes: tuple[Change, ...] = ("name", "address", "expiration")  # what of a card known counts as a change
    renew_within_days: int = Field(14, ge=0, le=365)  # a link that ends within so many days is made anew
    resend_errors: bool = False  # true: what the partner refused goes again every night, unchanged as it is
