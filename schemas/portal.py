"""The portal's input file: its columns in order, and what each accepts (interface.md 2.6 and 8).

The partner's interface changes over time: only this file and `schemas.rules` follow it. Both as
one pandera schema, with a check for each rule, are in `schemas.input_file`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INTERFACE = "2.6/2026-11"  # part of the settings digest: a changed contract makes another run
MAX_ROWS = 1000  # cardholders per upload file
MOST_EQUAL = 0.4  # half is that of two values alone; in places a third have one last name
CVVS_EQUAL = 0.2  # each CVV is that of one card in a thousand
FEWEST_JUDGED = 20  # rows from which on values are judged: fewer may be one family or firm


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
    # largest share of the rows that may have one value, where nearly all should differ
    most_equal: float | None

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
    most_equal: float | None = None,
) -> str:
    """Add the next column of the file to COLUMNS; return its name."""
    COLUMNS[name] = Column(
        name,
        accepts,
        others,
        step,
        required=required,
        closed=closed,
        verbatim=verbatim,
        most_equal=most_equal,
    )
    return name


CUID = _column(
    "cardholder.cuid",
    "a reference of your own: another one for each cardholder, no line breaks, no card number",
    verbatim=True,
    most_equal=MOST_EQUAL,
)
PAN = _column(
    "service_card.pan",
    "16 digits with the right check digit",
    required=True,
    closed=True,
    most_equal=MOST_EQUAL,
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
    most_equal=0.9,  # the cards of a new programme, or of one reissue, may end together
)
NAME_ON_CARD = _column(
    "service_card.name_on_card", "a name: letters, no digits", most_equal=MOST_EQUAL
)
CVV_HASH = _column(
    "service_card.cvv_hash",
    "padded Base64 of the SHA-256 of the CVV's digits as ASCII text and nothing else",
    closed=True,
    verbatim=True,
    most_equal=CVVS_EQUAL,
)
CVV = _column(
    "service_card.cvv",
    "three or four digits, leading zeros kept, or their hash",
    closed=True,
    verbatim=True,
    most_equal=CVVS_EQUAL,
)
CUSTOMER_KEY = _column("service_card.customer_key", "nothing: reserved for future use")
NICKNAME = _column("service_card.nickname", "a name for the card")
ADDRESS1 = _column(
    "service_card.address.address1",
    "a street line",
    required=True,
    most_equal=MOST_EQUAL,
)
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
EMAIL = _column(
    "service_card.address.email",
    "one address: name@example.com",
    most_equal=MOST_EQUAL,
)
PHONE = _column(
    "service_card.address.phone_number",
    "7 to 15 digits, with or without + and separators",
    most_equal=MOST_EQUAL,
)
FIRST_NAME = _column(
    "service_card.address.first_name",
    "a first name",
    required=True,
    most_equal=MOST_EQUAL,
)
LAST_NAME = _column(
    "service_card.address.last_name",
    "a last name",
    required=True,
    most_equal=MOST_EQUAL,
)
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


def most_equal_cells(cells: Sequence[str], limit: float | None) -> int:
    """Return how many cells have the most frequent value, 0 where that share is within the limit.

    Fewer cells than FEWEST_JUDGED are not judged.
    """
    if limit is None or len(cells) < FEWEST_JUDGED:
        return 0
    [(_, most)] = Counter(cells).most_common(1)
    if most <= limit * len(cells):
        return 0
    return most
