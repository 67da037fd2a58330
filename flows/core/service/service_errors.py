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

    says = "Issuer {0} has no [service] in its TOML."
    then = "Add the table with at least base_url; README lists its settings."

    def __init__(self, issuer: str) -> None:
        super().__init__(issuer)


class ServiceSecretsError(OperatorError):
    """Who we are at the service is not in the environment."""

    says = "To log in at the service these are missing in the environment: {0}."
    then = "Set them; they never stand in the TOML."

    def __init__(self, names: str) -> None:
        super().__init__(names)


class UnauthorisedError(OperatorError):
    """The service does not accept our credentials."""

    says = "The service does not let us in at {0} (HTTP {1})."
    then = "Compare the CARDLINK_SERVICE_* variables with the integrator's credentials, and ask the partner."

    def __init__(self, place: str, status: int) -> None:
        super().__init__(place, status)


class NoSuchRecordError(OperatorError):
    """The service knows no such job, cardholder or link."""

    says = "The service has nothing at {0}."
    then = "Check the id, and that it is of this issuer's environment."

    def __init__(self, place: str) -> None:
        super().__init__(place)


class ServiceRefusedError(OperatorError):
    """The service says no; the reason is its own, with card numbers and CVVs masked."""

    says = "The service refused {0} (HTTP {1}): {2}."
    then = "Mend what it names; nothing was done."

    def __init__(self, place: str, status: int, reason: str) -> None:
        super().__init__(place, status, reason)


class LinkRequestError(OperatorError):
    """A link request that breaks the rules; entities, properties and kinds are told, never values."""

    says = "No link was asked for: {0}."
    then = "Mend these fields at the source and try again."

    def __init__(self, codes: str) -> None:
        super().__init__(codes)


class AnswerLostError(OperatorError):
    """A request that must not be sent twice was sent, and its answer did not come."""

    says = "The answer to {0} was lost ({1}): nobody knows whether it was done."
    then = "It is not repeated by itself. {2}"

    def __init__(self, place: str, kind: str, then: str) -> None:
        super().__init__(place, kind, then)


class StrangeAnswerError(OperatorError):
    """An answer that is not what the interface says."""

    says = "The service's answer to {0} is not what its interface says: {1}."
    then = "Compare [service] with the partner's documentation; the interface moves."

    def __init__(self, place: str, what: str) -> None:
        super().__init__(place, what)


class ServiceBusyError(TryAgainError):
    """Limited, unreachable or out of order; nothing was done."""

    says = "The service did not take {0} ({1})."
    then = "Run the same command again when it is well."

    def __init__(self, place: str, kind: str) -> None:
        super().__init__(place, kind)
