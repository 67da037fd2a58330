"""What those who are handed something read: the notice and event of a delivery, and the files of an
acknowledgement; and the records of both.

Nothing of a notice is about a person. The statuses of an acknowledgement are those of pain.002: of
a row that it is done (ACCP), refused (RJCT) or still open (PEND), and of an extract also that some
rows are done and others are not (PART).
"""

from collections.abc import Mapping
from typing import Final, Literal

import pandera.polars as pa
import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from schemas.manifest import Document
from schemas.records import Record
from schemas.tables import Table

EVENT: Final = "links.delivered"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeliveredFile(_Part):
    """A file of a delivery, as it is handed over."""

    name: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class DeliveryNotice(_Part):
    """The done marker: written last, it lists the files of a delivery.

    Whoever applies the files of confirmed deliveries in the order of their numbers has exactly the
    links that live; one goes on from the delivery `after` (0: from nothing), so those between were
    superseded.
    """

    format: Literal[1] = 1
    issuer: str
    receiver: str
    number: int = Field(ge=1, description="1, 2, 3 … of this receiver")
    after: int = Field(ge=0, description="the delivery that the changes are since; 0: none")
    at: AwareDatetime
    folder: str = Field(description="where the files are, below the place that was agreed on")
    files: tuple[DeliveredFile, ...]
    sealed_to: str | None = Field(description="fingerprint of the key; null: in clear")
    new: int = Field(ge=0, description="links that may be used from now on")
    replaced: int = Field(
        ge=0,
        description="links that take the place of one withdrawn of the same cuid and last 4 digits",
    )
    withdrawn: int = Field(ge=0, description="links that may no longer be used")
    living: int = Field(ge=0, description="links that the receiver has once it has applied it")


class DeliveryEvent(_Part):
    """The body of the event, as Standard Webhooks has it; `webhook-id` names the delivery."""

    type: Literal["links.delivered"] = EVENT
    timestamp: AwareDatetime
    data: DeliveryNotice


DONE: Final = "ACCP"
REFUSED: Final = "RJCT"
OPEN: Final = "PEND"
RowStatus = Literal["ACCP", "RJCT", "PEND"]
ROW_STATUSES: tuple[RowStatus, ...] = ("ACCP", "RJCT", "PEND")


def status_of(rows: Mapping[str, int]) -> Literal["ACCP", "PART", "RJCT", "PEND"]:
    """Return the status of an extract with so many rows in each status; of none, that it is done.

    PART: some are done, others not. PEND: none is done, and some are open.
    """
    if not rows[REFUSED] and not rows[OPEN]:
        return DONE
    if rows[DONE]:
        return "PART"
    return OPEN if rows[OPEN] else REFUSED


class AcknowledgedRows(Table):
    """acknowledgement.csv: a line for each row, and for each reason where it is refused for more.

    In the words of the issuer's file, as rejects.csv.
    """

    row: pl.UInt32 = pa.Field(ge=1)  # data record of the extract, from 1
    line: pl.UInt32 = pa.Field(ge=1)  # physical line it starts on, from 1, header included
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    status: pl.String = pa.Field(isin=ROW_STATUSES)
    link: pl.String  # where the card stands, in the words of the book
    link_ends: pl.Date = pa.Field(nullable=True)
    reason: pl.String = pa.Field(nullable=True)  # why it is not done
    source: pl.String = pa.Field(nullable=True)
    wrong: pl.String = pa.Field(nullable=True)
    found: pl.String = pa.Field(nullable=True)
    expected: pl.String = pa.Field(nullable=True)
    action: pl.String = pa.Field(nullable=True)


class RowTotals(_Part):
    """Rows by status, and of each the sum of the last four digits, to compare with the source."""

    status: RowStatus
    rows: int = Field(ge=0)
    last_4_total: int = Field(ge=0, description="sum of the last four digits of these rows' cards")


class FileTotals(_Part):
    """What the extract said of itself, and what was read; their rows are equal."""

    rows_stated: int | None = Field(None, description="by trailer or sidecar; null: not stated")
    rows_read: int
    sha256: str = Field(description="of the bytes that were read", pattern=r"^[0-9a-f]{64}$")
    sequence: int | None = Field(None, description="number of the extract, where it has one")


class ReasonTotal(_Part):
    """A reason for which rows are refused, once, with all its rows."""

    reason: str
    rows: int
    source: str | None
    wrong: str
    expected: str
    action: str


class AcknowledgedRow(_Part):
    """A line of acknowledgement.csv."""

    row: int
    line: int
    cuid: str | None
    last_4: str | None
    status: RowStatus
    link: str
    link_ends: str | None = Field(description="YYYY-MM-DD")
    reason: str | None
    source: str | None
    wrong: str | None
    found: str | None
    expected: str | None
    action: str | None


class AcknowledgementHead(_Part):
    """acknowledgement.json without its rows."""

    format: Literal[1] = 1
    number: int = Field(ge=1, description="1, 2, 3 … of all that this issuer is told")
    issuer: str
    run: str = Field(description="empty where a file waits, and has none yet")
    extract: str = Field(description="the extract, or the file of corrections, by its key")
    business_date: str | None = Field(description="null where it has no run")
    at: AwareDatetime
    status: Literal["ACCP", "PART", "RJCT", "PEND"]
    corrects: str | None = Field(
        None, description="of a file of corrections: the run whose rows it corrects"
    )
    waits: str | None = Field(
        None,
        description="why nothing was done with the file yet, such as a gate that holds it back",
    )
    refusal: str | None = Field(
        None, description="why the whole extract is refused, in a sentence; its rows are not judged"
    )
    file: FileTotals | None = Field(None, description="null where the extract is refused")
    totals: tuple[RowTotals, ...] = ()
    reasons: tuple[ReasonTotal, ...] = ()


class AcknowledgementFile(AcknowledgementHead):
    """acknowledgement.json: what became of an extract, in place of what was told of it before."""

    rows: tuple[AcknowledgedRow, ...] = ()


# Records
# --------------------------------------------------------------------------------------------------


class HandedOver(Document):
    """What is handed over to somebody: `files` are the SHA-256 of its files by name, in clear, also
    where they are `sealed_to` a key.
    """

    at: AwareDatetime
    by: str
    files: dict[str, str]
    sealed_to: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of its files as they are handed over."""
        return [f"{name}.pgp" if self.sealed_to else name for name in sorted(self.files)]


class Delivery(HandedOver):
    """A delivery of links: the changes since another, 0 for none."""

    after: int
    new: int
    replaced: int
    withdrawn: int
    living: int  # links that the receiving side has after it
    opened: str = ""  # why it withdraws more than max_withdrawn, "" where nobody decided that


class Confirmed(Record):
    """The record, once, that somebody has what was handed over."""


class Acknowledgement(HandedOver):
    """What an issuer was told of an extract; its `done.json` is this.

    `status`: of the extract, and `rows` by theirs.
    """

    run: str
    extract: str
    sha256: str
    status: str
    rows: dict[str, int]
