"""The portal's input file: its columns in order, and what each accepts (interface.md 2.6 and 8).

The partner's interface moves: what moves stands here and in `schemas.rules`, nowhere else.
"""

from __future__ import annotations

from typing import NamedTuple

INTERFACE = "2.6/2026-11"  # goes into the settings digest: a changed contract is a changed run
MAX_ROWS = 1000  # cardholders per upload file

CUID = "cardholder.cuid"
PAN = "service_card.pan"
YEAR = "service_card.expiration_year"
MONTH = "service_card.expiration_month"
NAME_ON_CARD = "service_card.name_on_card"
CVV_HASH = "service_card.cvv_hash"
CVV = "service_card.cvv"
CUSTOMER_KEY = "service_card.customer_key"
NICKNAME = "service_card.nickname"
ADDRESS1 = "service_card.address.address1"
ADDRESS2 = "service_card.address.address2"
CITY = "service_card.address.city"
SUBNATIONAL = "service_card.address.subnational"
COUNTRY = "service_card.address.country"
POSTAL_CODE = "service_card.address.postal_code"
EMAIL = "service_card.address.email"
PHONE = "service_card.address.phone_number"
FIRST_NAME = "service_card.address.first_name"
LAST_NAME = "service_card.address.last_name"
IS_PRIMARY = "service_card.address.is_primary"


class Column(NamedTuple):
    """One column: its name, the subject of its reason codes, and what it accepts, as the hint of its rules."""

    name: str
    subject: str
    accepts: str


COLUMNS = (
    Column(
        CUID,
        "cardholder.cuid",
        "a reference of your own: another one for each cardholder, without line breaks, and no card number",
    ),
    Column(PAN, "card.pan", "16 digits with the right check digit"),
    Column(YEAR, "card.expiration_year", "two digits: 27 for 2027"),
    Column(MONTH, "card.expiration_month", "01 to 12"),
    Column(NAME_ON_CARD, "card.name_on_card", "a name: letters, no digits"),
    Column(
        CVV_HASH,
        "card.cvv_hash",
        "Base64, with its padding, of the SHA-256 of the CVV's digits as ASCII text and nothing else",
    ),
    Column(CVV, "card.cvv", "three or four digits, leading zeros kept, or their hash"),
    Column(CUSTOMER_KEY, "card.customer_key", "nothing: reserved for future use"),
    Column(NICKNAME, "card.nickname", "a name for the card"),
    Column(ADDRESS1, "address.address1", "a street line"),
    Column(ADDRESS2, "address.address2", "an apartment, suite or building"),
    Column(CITY, "address.city", "a city"),
    Column(
        SUBNATIONAL,
        "address.subnational",
        "a state or province of the row's country, as two letters or by its name",
    ),
    Column(COUNTRY, "address.country", "US or CA, or a usual spelling of either"),
    Column(
        POSTAL_CODE,
        "address.postal_code",
        "a ZIP of five digits, leading zeros kept, or A1A 1A1, in the row's state or province",
    ),
    Column(EMAIL, "address.email", "one address: name@example.com"),
    Column(PHONE, "address.phone_number", "7 to 15 digits, with or without + and separators"),
    Column(FIRST_NAME, "address.first_name", "a first name"),
    Column(LAST_NAME, "address.last_name", "a last name"),
    Column(IS_PRIMARY, "address.is_primary", "TRUE or FALSE"),
)


def columns() -> tuple[str, ...]:
    """Return the names of the 20 columns, in order (interface.md 2.6)."""
    return tuple(column.name for column in COLUMNS)
