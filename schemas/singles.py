"""The documents of a single link: what was asked for, written before it is sent, and what came of it.

No card data: a cuid and the last four digits, as in the ledger; the URL as in links.csv.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Final, Literal

from schemas.manifest import Document

LINKED: Final = "linked"
REFUSED: Final = "refused"  # by the partner: no link
UNSENT: Final = "unsent"  # the service did not take the request: nothing was done
UNKNOWN: Final = "unknown"  # asked for, and nobody knows what came of it

Outcome = Literal["linked", "refused", "unsent"]


class SingleAsked(Document):
    """One link that is about to be asked for; `row` is None where its fields were typed in."""

    row: int | None
    cuid: str
    last_4: str
    expiration: str  # YYMM
    at: datetime
    by: str
    override: str = ""  # why, although the card had a link or waited for one


class SingleAnswered(Document):
    """What came of it."""

    outcome: Outcome
    at: datetime
    link_id: str | None = None
    url: str | None = None
    expires_on: date | None = None
    expires_raw: str | None = None
    reasons: tuple[str, ...] = ()  # codes
    message: str = ""  # the partner's words, masked
