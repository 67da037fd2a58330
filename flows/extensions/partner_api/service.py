"""The partner's service: its Protocols and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from flows.errors import OperatorError, TryAgainError

if TYPE_CHECKING:
    from flows.extensions.partner_api.service_objects import (
        CardLink,
        CardLinkRequest,
        CredentialRequest,
        JobMessage,
        JobRecord,
        Messages,
        Refusal,
    )


class Placing(Protocol):
    """What the partner knows of links and their jobs (interface.md 4).

    Raises NoSuchRecordError for an unknown id.
    """

    def card_link(self, link_id: str) -> CardLink:
        """Return a link's record, its card and cardholder with it."""

    def cardholder_messages(self, cardholder_id: str) -> bytes:
        """Return the body of the messages of a cardholder's jobs.

        Each message can be read only once.
        """

    def job(self, job_id: str) -> JobRecord:
        """Return a job's record."""


class Linking(Protocol):
    """Makes single links at the partner (interface.md 2.8)."""

    def create_link(self, request: CardLinkRequest) -> CardLink | Refusal:
        """Request one link, once; AnswerLostError if it is unknown whether it was created."""


class Jobs(Protocol):
    """The partner's placement jobs (interface.md 4): their state, and what they request."""

    def job(self, job_id: str) -> JobRecord:
        """Return the job's record with its pending requests."""

    def messages(self, job_id: str) -> Messages:
        """Read the job's messages, each status message only once.

        Raises AnswerLostError if some may be lost.
        """

    def credential_requests(self, job_id: str) -> Sequence[CredentialRequest]:
        """Return the job's pending requests."""

    def answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> object:
        """Answer a request; AnswerLostError if it is unknown whether the answer arrived."""


class Broadcasting(Protocol):
    """Jobs whose status messages are broadcast."""

    def job(self, job_id: str) -> JobRecord:
        """Return the job's record, which can be read any number of times."""

    def register(self, job_id: str) -> str:
        """Register a channel of a job and return its access key."""

    def broadcasts(self, job_id: str, access_key: str) -> Sequence[JobMessage]:
        """Read the status messages of a channel, each only once."""


class NoServiceError(OperatorError):
    """The issuer has no service."""

    message = "Issuer {issuer} has no [service] in its TOML."
    next_step = "Add the table with at least base_url; deploy/SETTINGS.md lists its keys."


class ServiceSecretsError(OperatorError):
    """The service's credentials are not in the environment."""

    message = "The service's credentials are not in the environment: {names}."
    next_step = "Set them; they never go into the TOML."


class SigningKeyError(OperatorError):
    """A request cannot be signed with the key that there is."""

    message = "Requests cannot be signed with {algorithm} and this key ({problem})."
    next_step = (
        "Compare [service.signing] with the partner's documentation: key, key_encoding, algorithm."
    )


class NoSuchPluginError(OperatorError):
    """No installed package has the entry point that authenticates requests."""

    message = "No package has the entry point {name!r} that [service.auth] names (there: {known})."
    next_step = "Install the package beside cardlink, or correct [service.auth] plugin."


class UnauthorisedError(OperatorError):
    """The service rejected our credentials, or how requests show them."""

    message = "The service rejected our credentials at {place} (HTTP {status}{reason})."
    next_step = (
        "Compare the CARDLINK_SERVICE_* variables with the integrator's credentials, and "
        "[service.auth] and [service.signing] with the partner's documentation."
    )


class ServiceBusyError(TryAgainError):
    """The service is rate limited, unreachable or out of order; nothing was done."""

    message = "The service did not accept {place} ({kind})."
    next_step = "Run {same_command} again when the service has recovered."


class SessionEndedError(ServiceBusyError):
    """A session that had worked ended, and so did the next: others log in with the same user."""

    message = "Another login with the same user ended our session at {place} (HTTP {kind})."
    next_step = (
        "Let the other process finish, then run {same_command} again; or ask the partner for a "
        "user of its own."
    )


class NoSuchRecordError(OperatorError):
    """The service has no such job, cardholder or link."""

    message = "The service has nothing at {place}."
    next_step = "Check the id, and that it belongs to this issuer's environment."


class ServiceRefusedError(OperatorError):
    """The service refused the request; the reason is its own, with card numbers and CVVs masked."""

    message = "The service refused {place} (HTTP {status}): {reason}."
    next_step = "Nothing was done. Correct what the reason names."


class RedirectedError(ServiceRefusedError):
    """The service sends us elsewhere; a redirect would carry a card or a token to anybody."""

    message = "The service redirects {place} (HTTP {status}), and redirects are not followed."
    next_step = (
        "Nothing was done. Ask the partner for the address of its service, and set "
        "`base_url` of [service] to it."
    )


class LinkRequestError(OperatorError):
    """A link request breaks the rules.

    The codes name entities, properties and kinds, never values.
    """

    message = "No link was requested: {codes}."
    next_step = "Correct these fields at the source and try again."


class AnswerLostError(OperatorError):
    """A request that must not be sent twice was sent, and its response did not arrive."""

    message = "The response to {place} was lost ({kind}): it is unknown whether it was done."
    next_step = "It is not repeated automatically. {advice}"


class StrangeAnswerError(OperatorError):
    """A response does not match the interface."""

    message = "The service's response to {place} does not fit its interface: {problem}."
    next_step = (
        "Compare [service] with the partner's documentation; the interface may have changed."
    )
