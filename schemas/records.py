"""Records added to a run after its commit: what an operator put right, single links, what was purged.

Small immutable objects, each with who, when and why.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Final, Literal

from pydantic import AwareDatetime, Field

from schemas.manifest import Document, ManifestChunk

LINKED: Final = "linked"
REFUSED: Final = "refused"  # by the partner: no link
UNSENT: Final = "unsent"  # the service did not take the request: nothing was done
UNKNOWN: Final = "unknown"  # asked for, and nobody knows what came of it

Outcome = Literal["linked", "refused", "unsent"]

Part = Literal["chunks", "ledger"]
PARTS: tuple[Part, ...] = ("chunks", "ledger")


class Record(Document):
    """What every record says: who did it, when, and why."""

    at: AwareDatetime
    by: str
    reason: str


class Abandoned(Record):
    """What stands under a run's manifest key where an operator ended the run before its commit."""

    abandoned: Literal[True] = True
    run: str


class Closing(Record):
    """One link of a run's chain `closed/`: a break was closed with so many rows, or is open again."""

    what: Literal["closed", "reopened"]
    name: str
    place: str
    rows: int = 0


class Attribution(Record):
    """One link of a result file's chain: where one of its rows belongs, or no longer, or that it is taken up again.

    It counts for the file of exactly these bytes. `position` is a data row of it; `run` and `row` are the row sent.
    """

    what: Literal["attributed", "withdrawn", "again"]
    result: str  # its key, card numbers masked
    digest: str
    runs: tuple[str, ...] = ()  # those its rows were with, as far as they were taken up
    position: int = 0
    run: str = ""
    row: int = 0
    last_4_confirmed: bool = False


class Reseal(Record):
    """One link of a run's chain `reseals/`: these chunks were sealed anew to these keys, and replace what was."""

    run: str
    generation: int
    recipients: tuple[str, ...]
    chunks: tuple[ManifestChunk, ...]


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


class Purged(Document):
    """One part of a run that is gone; `verdict` and `rows` are what its last report said."""

    run: str  # empty for single links that came from no run
    part: Part
    at: AwareDatetime
    by: str
    since: AwareDatetime  # the last answer, or the last sign of life of a run that was never committed
    setting: str  # `chunks_days = 7`
    objects: dict[str, int]  # how many, by folder of the run
    bytes: int
    verdict: str = ""
    rows: dict[str, int] = Field(default_factory=dict)
