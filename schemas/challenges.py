"""The challenges at a link (interface.md 2.10): what a cardholder must know to open it.

An institution configures them in the partner's portal, and names them in `[rules] challenges` of
the TOML. Rules follow from them (`Rule.is_answer`), the request for a single link, and what the
practice service asks.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, get_args

from schemas.portal import CVV, MONTH, PAN, POSTAL_CODE, YEAR

Challenge = Literal["CVV", "ZIP Code", "PAN Last 4", "PAN Last 5", "Expiration Date"]

CHALLENGES: Final[tuple[Challenge, ...]] = get_args(Challenge)
USUAL: Final[tuple[Challenge, ...]] = ("CVV", "ZIP Code")
# The columns that have the answer of each.
ANSWERS: Final[Mapping[Challenge, tuple[str, ...]]] = {
    "CVV": (CVV,),
    "ZIP Code": (POSTAL_CODE,),
    "PAN Last 4": (PAN,),
    "PAN Last 5": (PAN,),
    "Expiration Date": (YEAR, MONTH),
}


def asked_columns(challenges: Collection[Challenge]) -> Iterator[str]:
    """Yield the columns that have the answers of these challenges."""
    for challenge in challenges:
        yield from ANSWERS[challenge]
