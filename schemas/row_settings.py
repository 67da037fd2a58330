"""The tables `[rules]` and `[repairs]` of the issuer's TOML: how strict the checks are, and what may be repaired."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.mapping import PortalColumn
from schemas.settings import Settings

Severity = Literal["reject", "warn", "off"]


class RuleSettings(Settings):
    """Severity of the rules that the partner leaves open, and what normalising may fill in or cut."""

    luhn: Severity = Field(
        "reject", description="check digit of the card number (the partner's own published sample number fails it)"
    )
    cvv_missing: Severity = Field(
        "warn", description="no CVV and no hash: the link may not open, since it asks the cardholder for CVV and ZIP"
    )
    address_mismatch: Severity = Field(
        "reject", description="a postal code outside its state: a wrong ZIP makes a valid link that nobody can open"
    )
    expires_soon: Severity = Field("warn", description="a card that expires before its link does")
    email: Severity = Field("warn", description="format of the e-mail address; plays no part when the link is opened")
    phone: Severity = Field("warn", description="format of the phone number")
    name_on_card: Severity = Field("warn", description="a missing name on the card, or one with digits")
    other_cuid: Severity = Field("warn", description="one card under two cuids: a joint account, or a mix-up")
    card_in_text: Severity = Field("reject", description="a card number in a text column, where others would read it")
    too_long: Severity = Field("reject", description="a text with more characters than `max_length` allows")
    max_length: dict[PortalColumn, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, description="most characters, by portal column; 254 where it is not named"
    )
    invisible: Severity = Field("warn", description="invisible characters, and those that change the direction of text")
    garbled: Severity = Field(
        "warn", description="text that lost characters (U+FFFD), or was read in the wrong encoding (JosÃ© for José)"
    )
    link_life_months: int = Field(2, ge=0, le=24, description="how long a link lives, for `expires_soon`")
    fill_name_on_card: bool = Field(True, description="take first and last name where the name on the card is empty")
    keep_zip_plus_4: bool = Field(False, description="`false`: ZIP+4 is cut to the five digits a cardholder knows")
    # "Null" and "Test" with one capital are family names; these spellings come from programs.
    placeholders: tuple[str, ...] = Field(
        ("NULL", "null", "(null)", "N/A", "n/a", "#N/A", "TEST", "test"),
        description="exact texts that count as a placeholder in a required column",
    )

    def __hash__(self) -> int:
        """Return the hash of all settings; a table has none of its own."""
        return hash(self.model_dump_json())


class Repairs(Settings):
    """Repairs of whole columns: each is decided by all rows of the extract, and counted in the report."""

    zip_zeros: bool = Field(
        True,
        description="put back leading zeros of ZIP codes (2108 becomes 02108) where no ZIP of the column kept its zero",
    )
    cvv_zeros: bool = Field(
        True, description="put back leading zeros of CVVs (7 becomes 007) where no CVV of the column kept its zero"
    )
    expiration_order: bool = Field(True, description="read MMYY as YYMM where only the other order fits every value")
    refuse_excel: bool = Field(
        True, description="refuse card numbers that went through a spreadsheet (4.11E+15, or every number ends in 0)"
    )
