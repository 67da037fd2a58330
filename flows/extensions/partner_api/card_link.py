"""A single card link: its request, with its rules, and its record (interface.md 2.8 and 2.9).

What is in a request is a cardholder and a card: no repr and no error shows a value.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from flows.extensions.partner_api.jobs import Id, ServiceObject, Text
from schemas.expressions import CVV_SHAPE, MONTH_SHAPE, YEAR_SHAPE
from schemas.places import COUNTRIES

# the hydrations of a link's record that are documented (4)
HYDRATE_CARDHOLDER: Final = ("card", "card.cardholder")

Filled = Annotated[str, StringConstraints(min_length=1)]


class Private(BaseModel):
    """An object of the request: strict, and never shows its values."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Show nothing."""
        return []


class Cardholder(Private):
    """Whose link it is; without a cuid the service generates one."""

    cuid: Filled | None = None
    first_name: Filled
    last_name: Filled
    email: Filled | None = None  # card placement notifications are sent there


class Expiration(Private):
    """When the link expires; without it, 2 months after its creation."""

    month: Annotated[str, StringConstraints(pattern=r"^(0[1-9]|1[0-2])$")] | None = None
    day: Annotated[str, StringConstraints(pattern=r"^(0?[1-9]|[12][0-9]|3[01])$")] | None = None
    year: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}$")] | None = None


class Address(Private):
    """The billing address."""

    address1: Filled
    address2: Filled | None = None
    city: Filled
    subnational: Filled
    postal_code: Filled
    country: str
    phone_number: Filled
    is_primary: bool | None = None
    email: Filled | None = None

    @field_validator("country")
    @classmethod
    def _one_of_eight(cls, country: str) -> str:
        if country not in COUNTRIES:
            raise PydanticCustomError("unknown", "one of the eight documented spellings")
        return country


class Card(Private):
    """The card: a reference to one the service has, or null and every property of a new one."""

    # required, null included: first, because the rules below check it
    reference: dict[str, Any] | None
    pan: Annotated[str, StringConstraints(pattern=r"^[0-9]{12,19}$")] | None = Field(
        None, validate_default=True
    )
    expiration_month: Annotated[str, StringConstraints(pattern=MONTH_SHAPE)] | None = Field(
        None, validate_default=True
    )
    expiration_year: Annotated[str, StringConstraints(pattern=YEAR_SHAPE)] | None = Field(
        None, validate_default=True
    )
    name_on_card: Filled | None = Field(None, validate_default=True)
    nickname: Filled | None = Field(None, validate_default=True)
    cvv: Annotated[str, StringConstraints(pattern=CVV_SHAPE)] | None = None

    @field_validator("pan", "expiration_month", "expiration_year", "name_on_card", "nickname")
    @classmethod
    def _needed_without_reference(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("reference") is None:
            raise PydanticCustomError("missing", "required when reference is null")
        return value


class CardLinkRequest(Private):
    """The objects of one link request; the client adds the credentials, the FI key and the safe
    key.
    """

    cardholder: Cardholder
    address: Address
    card: Card
    expiration: Expiration | None = None

    def body(self) -> dict[str, Any]:
        """Return the request's own part of the JSON: absent properties left out, `card.reference`
        never.
        """
        plain = self.model_dump(exclude_none=True)
        return {**plain, "card": {"reference": self.card.reference, **plain["card"]}}


def _opened(value: object) -> bool | None:
    """Read when a link was opened: null, empty and false mean not yet; None for what is no time."""
    if value is None or isinstance(value, str | int | float):
        return bool(value)
    return None


class CardLink(ServiceObject):
    """A link's record (2.9): its URL and token are personal secrets."""

    id: Id = None
    url: Annotated[Text, Field(repr=False)] = None
    cardholder_long_token: Annotated[Text, Field(repr=False)] = None
    expires_raw: Annotated[Text, Field(validation_alias="expiration_date")] = None
    # None: the record does not say
    opened: Annotated[
        bool | None, BeforeValidator(_opened), Field(validation_alias="opened_on")
    ] = None
    card_id: Id = None  # at the service, which a reference names (2.8)
    cardholder_id: Id = None  # at the service
    cuid: Id = None  # the issuer's reference of the cardholder


class Refusal(NamedTuple):
    """Why the service created no link: reason codes for messages, and its own text, masked, for the
    records.
    """

    codes: str
    message: str
