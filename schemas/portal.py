"""The portal's input file: its columns in order, and what each accepts (interface.md 2.6 and 8).

The partner's interface changes over time: only this file and `schemas.rules` follow it. Both as
one pandera schema, with a check for each rule, are in `schemas.input_file`.
"""

from dataclasses import dataclass
from typing import Final

INTERFACE = "2.6/2026-11"  # part of the settings digest: a changed contract makes another run
MAX_ROWS = 1000  # cardholders per upload file


@dataclass(frozen=True)
class Column:
    """One column of the input file: everything that is known of it but its rules."""

    name: str  # as the interface spells it
    accepts: str  # in words
    others: str  # what a step of [columns] can make of other texts: which, and
    step: str  # the step; "" where there is none
    required: bool  # without it every row would be rejected
    closed: bool  # it accepts few shapes or words; any other is a text, with the rules for texts
    verbatim: bool  # others' identifier or secret: trimmed, never rewritten

    @property
    def hint(self) -> str:
        """What it accepts, as its rules say it, and what else a mapping can make of it."""
        if not self.step:
            return self.accepts
        return f"{self.accepts}; {self.others} by `{self.step}` in [columns]"


COLUMNS: Final[dict[str, Column]] = {}  # by name, in the order of the file


def _column(
    name: str,
    accepts: str,
    *,
    others: str = "",
    step: str = "",
    required: bool = False,
    closed: bool = False,
    verbatim: bool = False,
) -> str:
    """Add the next column of the file to COLUMNS; return its name."""
    COLUMNS[name] = Column(
        name, accepts, others, step, required=required, closed=closed, verbatim=verbatim
    )
    return name


CUID = _column(
    "cardholder.cuid",
    "a reference of your own: another one for each cardholder, no line breaks, no card number",
    verbatim=True,
)
PAN = _column(
    "service_card.pan",
    "16 digits with the right check digit",
    required=True,
    closed=True,
)
YEAR = _column(
    "service_card.expiration_year",
    "two digits: 27 for 2027",
    others="other dates",
    step="format",
    required=True,
    closed=True,
)
MONTH = _column(
    "service_card.expiration_month",
    "01 to 12",
    others="other dates",
    step="format",
    required=True,
    closed=True,
)
NAME_ON_CARD = _column("service_card.name_on_card", "a name: letters, no digits")
CVV_HASH = _column(
    "service_card.cvv_hash",
    "padded Base64 of the SHA-256 of the CVV's digits as ASCII text and nothing else",
    closed=True,
    verbatim=True,
)
CVV = _column(
    "service_card.cvv",
    "three or four digits, leading zeros kept, or their hash",
    closed=True,
    verbatim=True,
)
CUSTOMER_KEY = _column("service_card.customer_key", "nothing: reserved for future use")
NICKNAME = _column("service_card.nickname", "a name for the card")
ADDRESS1 = _column("service_card.address.address1", "a street line", required=True)
ADDRESS2 = _column("service_card.address.address2", "an apartment, suite or building")
CITY = _column("service_card.address.city", "a city", required=True)
SUBNATIONAL = _column(
    "service_card.address.subnational",
    "a state or province of the row's country, as two letters or by its name",
    required=True,
    closed=True,
)
COUNTRY = _column(
    "service_card.address.country",
    "US or CA, or a usual spelling of either",
    others="others",
    step="lookup",
    required=True,
    closed=True,
)
POSTAL_CODE = _column(
    "service_card.address.postal_code",
    "five digits with leading zeros, or A1A 1A1, in the row's state or province",
    required=True,
    closed=True,
)
EMAIL = _column("service_card.address.email", "one address: name@example.com")
PHONE = _column(
    "service_card.address.phone_number",
    "7 to 15 digits, with or without + and separators",
)
FIRST_NAME = _column("service_card.address.first_name", "a first name", required=True)
LAST_NAME = _column("service_card.address.last_name", "a last name", required=True)
IS_PRIMARY = _column(
    "service_card.address.is_primary",
    "TRUE or FALSE",
    others="other words",
    step="lookup",
    required=True,
    closed=True,
)

REQUIRED = tuple(name for name, column in COLUMNS.items() if column.required)
TEXT = tuple(name for name, column in COLUMNS.items() if not column.closed)
# what people write in words: names, places, streets
PROSE = tuple(name for name in TEXT if name not in (CUID, CUSTOMER_KEY, EMAIL, PHONE))
VERBATIM = tuple(name for name, column in COLUMNS.items() if column.verbatim)


def columns() -> tuple[str, ...]:
    """Return the names of the columns, in order (interface.md 2.6)."""
    return tuple(COLUMNS)


def subject(column: str) -> str:
    """Return entity and property of a column's reason codes: `card.pan`, `address.city`."""
    return ".".join(column.split(".")[-2:]).removeprefix("service_")
