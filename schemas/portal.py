"""The portal's input file: its columns in order, and what each accepts (interface.md 2.6 and 8).

The partner's interface changes over time: only this file and `schemas.rules` follow it.
"""

INTERFACE = "2.6/2026-11"  # part of the settings digest: a changed contract makes another run
MAX_ROWS = 1000  # cardholders per upload file

# The columns in order, each with what it accepts, which is the hint of its rules.
COLUMNS = {
    "cardholder.cuid": "a reference of your own: another one for each cardholder, no line breaks, no card number",
    "service_card.pan": "16 digits with the right check digit",
    "service_card.expiration_year": "two digits: 27 for 2027; other dates by `format` in [columns]",
    "service_card.expiration_month": "01 to 12; other dates by `format` in [columns]",
    "service_card.name_on_card": "a name: letters, no digits",
    "service_card.cvv_hash": "padded Base64 of the SHA-256 of the CVV's digits as ASCII text and nothing else",
    "service_card.cvv": "three or four digits, leading zeros kept, or their hash",
    "service_card.customer_key": "nothing: reserved for future use",
    "service_card.nickname": "a name for the card",
    "service_card.address.address1": "a street line",
    "service_card.address.address2": "an apartment, suite or building",
    "service_card.address.city": "a city",
    "service_card.address.subnational": "a state or province of the row's country, as two letters or by its name",
    "service_card.address.country": "US or CA, or a usual spelling of either; others by `lookup` in [columns]",
    "service_card.address.postal_code": "five digits with leading zeros, or A1A 1A1, in the row's state or province",
    "service_card.address.email": "one address: name@example.com",
    "service_card.address.phone_number": "7 to 15 digits, with or without + and separators",
    "service_card.address.first_name": "a first name",
    "service_card.address.last_name": "a last name",
    "service_card.address.is_primary": "TRUE or FALSE; other words by `lookup` in [columns]",
}
(
    CUID, PAN, YEAR, MONTH, NAME_ON_CARD, CVV_HASH, CVV, CUSTOMER_KEY, NICKNAME, ADDRESS1, ADDRESS2, CITY,
    SUBNATIONAL, COUNTRY, POSTAL_CODE, EMAIL, PHONE, FIRST_NAME, LAST_NAME, IS_PRIMARY
) = COLUMNS  # fmt: skip


def subject(column: str) -> str:
    """Return entity and property of a column's reason codes: `card.pan`, `address.city`."""
    return ".".join(column.split(".")[-2:]).removeprefix("service_")


def columns() -> tuple[str, ...]:
    """Return the names of the columns, in order (interface.md 2.6)."""
    return tuple(COLUMNS)
