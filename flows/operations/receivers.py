"""The receivers of an issuer's links: who there is, and what stands in the way of each."""

from collections.abc import Sequence

from flows.errors import OperatorError
from flows.runs.context import IssuerContext
from flows.runs.delivered import receivers_with_deliveries
from flows.steps import Option, Sentence
from schemas.handover import DEFAULT, PLAIN, Receiver
from schemas.issuer import Issuer


class NoReceiverError(OperatorError):
    """A receiver was named that has no table in the issuer's TOML."""

    message = "{issuer} has no receiver {receiver}. Its receivers: {receivers}."
    next_step = "Name one of these, or write the table [deliveries.{receiver}] into its TOML."


class WhichReceiverError(OperatorError):
    """A delivery was to be confirmed, and there are several receivers."""

    message = "{issuer} has several receivers, each with deliveries of its own: {receivers}."
    next_step = Sentence(
        "Name the receiver after the issuer, before {option}.", option=Option("--confirm")
    )


def receivers_of(context: IssuerContext, named: str = "") -> list[str]:
    """Return the receivers of an issuer in order, or the one that is named; NoReceiverError.

    The default one is among them where it has a table, where nobody else has, and where it has
    deliveries already, whose links must still be withdrawn.
    """
    configured = list(context.issuer.deliveries)
    receivers = configured
    if DEFAULT not in configured and (not configured or has_default(context)):
        receivers = [DEFAULT, *configured]
    if not named:
        return receivers
    if named not in receivers:
        raise NoReceiverError(
            issuer=context.issuer.issuer, receiver=named, receivers=", ".join(receivers)
        )
    return [named]


def has_default(context: IssuerContext) -> bool:
    """Return whether the default receiver has deliveries."""
    return DEFAULT in receivers_with_deliveries(context.adapters, context.issuer.issuer)


def without_table(context: IssuerContext) -> list[str]:
    """Return the receivers that have deliveries and no table any more: nothing is withdrawn."""
    stored = receivers_with_deliveries(context.adapters, context.issuer.issuer)
    return [name for name in stored if name not in {DEFAULT, *context.issuer.deliveries}]


def settings_of(issuer: Issuer, receiver: str) -> Receiver:
    """Return the settings of a receiver; without a table those of the default one."""
    return issuer.deliveries.get(receiver, PLAIN)


def only_one(context: IssuerContext, named: str) -> str:
    """Return whose delivery is meant; WhichReceiverError where that is not said."""
    receivers: Sequence[str] = receivers_of(context, named)
    if len(receivers) > 1:
        raise WhichReceiverError(issuer=context.issuer.issuer, receivers=", ".join(receivers))
    return receivers[0]
