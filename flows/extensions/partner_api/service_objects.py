"""What the service has and is sent (interface.md 2): jobs, their messages and requests, links.

Readers of a moving interface: unknown fields are left aside, what is not as documented is absent,
statuses and termination types are open sets. Texts meant for a cardholder are in no repr. What is
in a request for a link is a cardholder and a card: no repr and no error shows a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

from schemas.expressions import CVV_SHAPE, MONTH_SHAPE, YEAR_SHAPE
from schemas.places import COUNTRIES

# a status with this prefix blocks the job until its request is answered (2.3)
PENDING: Final = "PENDING"
UPDATING: Final = "UPDATING"  # authentication has succeeded: the user may leave (1)
# a request of the acknowledgement kind: a message was sent to the user, and there is no code (2.5)
ACK: Final = "ack"  # its answer
ACK_KEY: Final = "tfa"  # the key of its answer
ACKNOWLEDGED: Final = "tfa_message"  # its type, and a key that it may have

BILLABLE: Final = "BILLABLE"  # the success exit (interface.md 7)
# statuses of a transaction report that mean: card placed
PLACED: Final = frozenset({BILLABLE, "SUCCESSFUL"})
# statuses reached after authentication with the site only
AUTHENTICATED: Final = frozenset({UPDATING, *PLACED})
# statuses before it: the service still authenticates, waits for input, or gave up at that
AUTHENTICATING: Final = frozenset({"AUTH", "TIMEOUT_TFA", "NEVER_STARTED"})
# ends a report may name without a day (2.1, an open set); the last is seen in the wild
ENDS: Final = frozenset(
    {"USER_DATA_FAILURE", "SITE_INTERACTION_FAILURE", "PROCESS_FAILURE", "NEVER_STARTED"}
)
# ends a report names with its day: statuses of 2.3
ENDS_WITH_DAY: Final = frozenset({"DUPLICATE_CARD", "TIMEOUT_TFA"})
MEANINGS: Final[Mapping[str, str]] = {
    BILLABLE: "The card is placed with the merchant.",
    "USER_DATA_FAILURE": (
        "The cardholder's input was not accepted, or came too late: let them start again."
    ),
    "SITE_INTERACTION_FAILURE": "The merchant's site did not work as expected: try again later.",
    "PROCESS_FAILURE": (
        "The service failed: try again, and send the partner the job's id if it fails again."
    ),
    "NEVER_STARTED": (
        "The job was never started: let the cardholder open the link and choose the site again."
    ),
}
UNKNOWN_END: Final = "Unknown termination type: ask the partner what it means."
# anything that is no code: the partner's statuses are open sets, and we do not store its texts
OTHER: Final = "OTHER"
CODE: Final = r"^[A-Z][A-Z0-9_]{0,39}$"


def text(value: object) -> str | None:
    """Return a text without half surrogates, which no file or terminal accepts; None for anything
    else.
    """
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "replace").decode() or None


def identifier(value: object) -> str | None:
    """Return an id, a number or a text on the wire, as text; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return (text(value) or "").strip() or None


def number(value: object) -> float | None:
    """Return a finite number in any notation; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if math.isfinite(read) else None


def _whole(value: object) -> int | None:
    read = number(value)
    return None if read is None else int(read)


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [element for element in value if isinstance(element, dict)]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


Text = Annotated[str | None, BeforeValidator(text)]
Id = Annotated[str | None, BeforeValidator(identifier)]
Whole = Annotated[int | None, BeforeValidator(_whole)]


class ServiceObject(BaseModel):
    """Any object from the service: read tolerantly, never changed, never quoted in an error."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class RunStatus(ServiceObject):
    """A job's state: what a record and both kinds of messages have in common."""

    status: Text = None
    percent_complete: Whole = None  # of the whole job
    auth_percent_complete: Whole = None  # of the account-link phase
    job_timeout: Whole = None  # seconds left; messages only
    status_message: Annotated[Text, Field(repr=False)] = None
    termination_type: Text = None

    @property
    def blocked(self) -> bool:
        """Whether the job waits for an answer."""
        return (self.status or "").startswith(PENDING)

    @property
    def ended(self) -> bool:
        """Whether there is a termination type."""
        return self.termination_type is not None

    def is_older_than(self, other: RunStatus) -> bool:
        """Return whether a state is from before another of the same job, as far as they say."""
        pairs = zip(self._progress(), other._progress(), strict=True)
        known = ((own, others) for own, others in pairs if None not in (own, others))
        own, others = next(((own, others) for own, others in known if own != others), (0, 0))
        return (own or 0) < (others or 0)

    def _progress(self) -> tuple[int | None, ...]:
        """Return how far a job is: ended, authenticated, percents; None: it does not say."""
        is_authenticated: int | None = None
        if self.status in AUTHENTICATED:
            is_authenticated = 1
        elif self.blocked or self.status in AUTHENTICATING:
            is_authenticated = 0
        percents = (self.percent_complete, self.auth_percent_complete)
        return (int(self.ended), is_authenticated, *percents)


class Prompt(ServiceObject):
    """One element of `account_link`: a value to collect from the user (2.4)."""

    key_name: str
    label: Annotated[Text, Field(repr=False)] = None  # may contain dynamic text for the user
    secret: Annotated[
        bool, BeforeValidator(lambda value: value not in (False, "false", "False", 0))
    ] = True


def _prompts(value: object) -> list[dict[str, Any]]:
    return [prompt for prompt in _objects(value) if _is_text(prompt.get("key_name"))]


def _is_text(value: object) -> bool:
    return value is not None and text(value) == value


Prompts = Annotated[tuple[Prompt, ...], BeforeValidator(_prompts)]


class JobMessage(ServiceObject):
    """A status message (2.1): it can be read only once."""

    job_id: Id = None
    message: Annotated[RunStatus, BeforeValidator(_object)] = RunStatus()


class CredentialRequest(ServiceObject):
    """Input a job waits for (2.4): kept by the service until it is answered with its envelope
    id.
    """

    # decides nothing but whether the request is acknowledged
    kind: Annotated[Text, Field(validation_alias="type")] = None
    job_id: Id = None
    envelope_id: Annotated[str, BeforeValidator(identifier)]
    account_link: Prompts = ()
    message: Annotated[RunStatus, BeforeValidator(_object)] = RunStatus()


class JobRecord(RunStatus):
    """The job record (2.2), which can be read at any time; `requests` need the hydration header."""

    id: Id = None
    cardholder_id: Id = None
    card_id: Id = None
    account_id: Id = None
    type: Text = None
    merchant_site: Text = None
    created_on: Text = None
    last_updated_on: Text = None
    requests: tuple[CredentialRequest, ...] = ()


class Messages(NamedTuple):
    """What a messages endpoint returned: status messages in order, requests, and the number of
    other elements.
    """

    statuses: tuple[JobMessage, ...] = ()
    requests: tuple[CredentialRequest, ...] = ()
    unread: int = 0


# The request for a link, and its record (interface.md 2.8 and 2.9)
# --------------------------------------------------------------------------------------------------

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
