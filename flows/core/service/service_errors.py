"""What can go wrong with the partner's service, each with what to do; the client raises these and nothing else.

OperatorError
├── NoServiceError           the issuer has no [service]
├── ServiceSecretsError      who we are there is not in the environment
├── UnauthorisedError        our credentials are not accepted
├── NoSuchRecordError        the service knows no such job, cardholder or link
├── ServiceRefusedError      the service says no, with a code
├── LinkRequestError         a link request that breaks the rules of 2.8; nothing was sent
├── AnswerLostError          it was sent, and the answer did not come: nobody knows whether it was done
└── StrangeAnswerError       an answer that is not what the interface says
TryAgainError
└── ServiceBusyError         limited, unreachable or out of order, and nothing was done
"""

from __future__ import annotations

from flows.core.errors import OperatorError, TryAgainError


class NoServiceError(OperatorError):
    """The issuer has no service."""

    message = "Issuer {issuer} has no [service] in its TOML."
    next_step = "Add the table with at least base_url; README lists its settings."


class ServiceSecretsError(OperatorError):
    """Who we are at the service is not in the environment."""

    message = "The service's credentials are not in the environment: {names}."
    next_step = "Set them; they never go into the TOML."


class UnauthorisedError(OperatorError):
    """The service rejected our credentials."""

    message = "The service rejected our credentials at {place} (HTTP {status})."
    next_step = "Compare the CARDLINK_SERVICE_* variables with the integrator's credentials, and ask the partner."


class NoSuchRecordError(OperatorError):
    """The service knows no such job, cardholder or link."""

    message = "The service has nothing at {place}."
    next_step = "Check the id, and that it is of this issuer's environment."


class ServiceRefusedError(OperatorError):
    """The service refused the request; the reason is its own, with card numbers and CVVs masked."""

    message = "The service refused {place} (HTTP {status}): {reason}."
    next_step = "Correct what it names; nothing was done."


class LinkRequestError(OperatorError):
    """A link request that breaks the rules; it names entities, properties and kinds, never values."""

    message = "No link was requested: {codes}."
    next_step = "Correct these fields at the source and try again."


class AnswerLostError(OperatorError):
    """A request that must not be sent twice was sent, and its answer did not come."""

    message = "The response to {place} was lost ({kind}): it is unknown whether it was done."
    next_step = "It is not repeated automatically. {advice}"


class StrangeAnswerError(OperatorError):
    """An answer that is not what the interface says."""

    message = "The service's response to {place} does not fit its interface: {problem}."
    next_step = "Compare [service] with the partner's documentation; the interface may have changed."


class ServiceBusyError(TryAgainError):
    """Limited, unreachable or out of order; nothing was done."""

    message = "The service did not accept {place} ({kind})."
    next_step = "Run the same command again when the service has recovered."
