"""What `check` says of the places, keys and webhooks of those who are handed something."""

from collections.abc import Iterator

from flows.errors import CardlinkError, OperatorError
from flows.operations import acknowledgement, delivery_handover
from flows.operations.receivers import without_table
from flows.runs.context import IssuerContext

RECEIVERS = "receivers"


class NotReachedError(OperatorError):
    """A receiver of links has not got its last delivery."""

    message = "{receiver}: has not got its links since {since}: {problem}."
    next_step = "Ask the receiver, or correct its table in the TOML; it is tried again by itself."


class WithoutTableError(OperatorError):
    """A receiver has deliveries, and no table in the issuer's TOML any more."""

    message = (
        "{receiver}: has deliveries and no table [deliveries.{receiver}], so nothing is withdrawn."
    )
    next_step = "Put it back, with retired = true to withdraw all links."


def checks(context: IssuerContext) -> Iterator[tuple[str, str | CardlinkError]]:
    """Try where the issuer is told, and each receiver of links."""
    try:
        for line in acknowledgement.check_place(context):
            yield "issuer", f"acknowledgements: {line}"
    except CardlinkError as error:
        yield "issuer", error
    stuck = dict(delivery_handover.troubles(context))
    for receiver in context.issuer.deliveries:
        trouble = stuck.get(receiver)
        if trouble is not None:
            since = f"{trouble.failing_since:%Y-%m-%d %H:%M} UTC"
            yield (
                RECEIVERS,
                NotReachedError(receiver=receiver, since=since, problem=trouble.problem),
            )
            continue
        try:
            for line in delivery_handover.check_receiver(context, receiver):
                yield RECEIVERS, f"{receiver}: {line}"
        except CardlinkError as error:
            yield RECEIVERS, error
    for receiver in without_table(context):
        yield RECEIVERS, WithoutTableError(receiver=receiver)
