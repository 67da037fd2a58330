"""The service's placement jobs: records, status messages, credential requests (interface.md 2.1 to
2.4).

Readers of a moving interface: unknown fields are left aside, what is not as documented is absent,
statuses and termination types are open sets. Texts meant for a cardholder are in no repr.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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
