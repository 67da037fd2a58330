"""What a receiver is told of a delivery: the file that is written last, and the event.

Nothing of it is about a person: names of files, sums and counts.
"""

from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

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
