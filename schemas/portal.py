"""The portal's input file: its columns in order, and what each accepts (interface.md 2.6 and 8).

The partner's interface changes over time: only this file and `schemas.rules` follow it.
"""

INTERFACE = "2.6/2026-11"  # part of the settings digest: a changed contract makes another run
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


# The columns in order, each with what it accepts, which is the hint of its rules.
COLUMNS = {
    CUID: "a reference of your own: another one for each cardholder, without line breaks, and no card number",
    PAN: "16 digits with the right check digit",
    YEAR: "two digits: 27 for 2027",
    MONTH: "01 to 12",
    NAME_ON_CARD: "a name: letters, no digits",
    CVV_HASH: "Base64, with its padding, of the SHA-256 of the CVV's digits as ASCII text and nothing else",
    CVV: "three or four digits, leading zeros kept, or their hash",
    CUSTOMER_KEY: "nothing: reserved for future use",
    NICKNAME: "a name for the card",
    ADDRESS1: "a street line",
    ADDRESS2: "an apartment, suite or building",
    CITY: "a city",
    SUBNATIONAL: "a state or province of the row's country, as two letters or by its name",
    COUNTRY: "US or CA, or a usual spelling of either",
    POSTAL_CODE: "a ZIP of five digits, leading zeros kept, or A1A 1A1, in the row's state or province",
    EMAIL: "one address: name@example.com",
    PHONE: "7 to 15 digits, with or without + and separators",
    FIRST_NAME: "a first name",
    LAST_NAME: "a last name",
    IS_PRIMARY: "TRUE or FALSE",
}


def subject(column: str) -> str:
    """Return entity and property of a column's reason codes: `card.pan`, `address.city`."""
    return ".".join(column.split(".")[-2:]).removeprefix("service_")


def columns() -> tuple[str, ...]:
    """Return the names of the columns, in order (interface.md 2.6)."""
    return tuple(COLUMNS)
