"""The tables `[rules]` and `[repairs]` of the issuer's TOML: how strict the checks are and what may be mended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.settings import Settings

Severity = Literal["reject", "warn", "off"]


class RuleSettings(Settings):
    """Severity of the checks the partner leaves open, and what normalising may fill in or cut."""

    luhn: Severity = "reject"  # the partner's own published sample PAN fails Luhn
    cvv_missing: Severity = "warn"  # the default challenge at the link is CVV plus ZIP: it may not open
    address_mismatch: Severity = "reject"  # a wrong ZIP makes a valid link that nobody can open
    expires_soon: Severity = "warn"
    email: Severity = "warn"  # optional, plays no part at the link
    phone: Severity = "warn"
    name_on_card: Severity = "warn"
    other_cuid: Severity = "warn"  # joint accounts share a card; a mix-up looks the same
    link_life_months: int = Field(2, ge=0, le=24)  # interface.md 2.8 and 8: a link lives two months
    fill_name_on_card: bool = True  # optional in the file, required by the partner's sibling interface
    keep_zip_plus_4: bool = False  # the challenge asks for the ZIP a cardholder knows: five digits
    # "Null" and "Test" with one capital are family names; these spellings come from programs.
    placeholders: tuple[str, ...] = ("NULL", "null", "(null)", "N/A", "n/a", "#N/A", "TEST", "test")


class Repairs(Settings):
    """Column-level repairs, each decided once on the evidence of the first block and counted in the report."""

    zip_zeros: bool = True  # 2108 is 02108 where no ZIP of the column kept its zero
    cvv_zeros: bool = True  # 7 is 007 where no CVV of the column kept its zero
    expiration_order: bool = True  # MMYY read as YYMM, where only the other reading fits every value
    refuse_excel: bool = True  # 4.11E+15, or every PAN ending in 0: the digits are gone
