"""What is wrong with what is handed over: alerts, and what `check` says of places and keys."""

from collections.abc import Iterator
from datetime import timedelta

from flows.errors import CardlinkError, OperatorError
from flows.extensions.deliveries import acknowledgement
from flows.extensions.deliveries import reaching as delivery_handover
from flows.extensions.deliveries.acknowledgement import acknowledgements_to, not_told
from flows.extensions.deliveries.delivered import line_of
from flows.extensions.deliveries.handover import NotReachedError, late_receipt
from flows.extensions.deliveries.reaching import troubles
from flows.extensions.deliveries.receivers import without_table
from flows.extensions.deliveries.settings import acknowledging, receivers_in
from flows.operations.alert_kinds import Cause, Kind
from flows.runs.context import IssuerContext

TELLING = timedelta(hours=1)  # the time that telling the issuer may take
REACHING = timedelta(minutes=15)  # the time that a receiver of links may be away


def alert_kinds() -> dict[str, Kind]:
    """Return the kinds of alerts."""
    return {
        "issuer-not-told": Kind(
            "The issuer was not told of an extract, or has not confirmed it",
            "Acknowledge by hand, which says what stands in the way; ask for the receipt.",
        ),
        "links-not-taken": Kind(
            "Links have not come to a receiver, or it has not confirmed them",
            "Check the issuer, which says what stands in the way; ask the receiver. "
            "It is tried again.",
        ),
    }


def alerts(context: IssuerContext) -> Iterator[Cause]:
    """Yield what is wrong with what is handed over."""
    yield from _acknowledgement_causes(context)
    yield from _delivery_causes(context)


def _acknowledgement_causes(context: IssuerContext) -> Iterator[Cause]:
    """Yield the extracts of which the issuer was not told, and a receipt that is late."""
    settings = acknowledging(context.issuer)
    if settings is None:
        return
    now = context.adapters.now()
    for run in not_told(context, now - TELLING):
        yield Cause("issuer-not-told", run, f"{run}: the issuer was not told what became of it")
    line = acknowledgements_to(context.issuer.issuer)
    late = late_receipt(context, line, settings, now)
    if late is not None:
        since = f"{late.record.at:%Y-%m-%d %H:%M}"
        text = f"acknowledgements {late.first} to {late.last}: no receipt since {since}"
        yield Cause("issuer-not-told", f"receipt-{late.first}", text)


def _delivery_causes(context: IssuerContext) -> Iterator[Cause]:
    """Yield the receivers that have not got their last delivery, or not confirmed it in time."""
    now = context.adapters.now()
    stuck = dict(troubles(context))
    for receiver, trouble in stuck.items():
        if now - trouble.failing_since >= REACHING:
            since = f"since {trouble.failing_since:%Y-%m-%d %H:%M}"
            text = f"{receiver}: links have not come there {since}: {trouble.problem}"
            yield Cause("links-not-taken", receiver, text)
    for receiver, settings in receivers_in(context.issuer).items():
        line = line_of(context.issuer.issuer, receiver)
        late = late_receipt(context, line, settings, now)
        if late is not None and receiver not in stuck:
            since = f"{late.record.at:%Y-%m-%d %H:%M}"
            text = f"{receiver}: no receipt of delivery {late.last} since {since}"
            yield Cause("links-not-taken", receiver, text)


RECEIVERS = "receivers"


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
    for receiver in receivers_in(context.issuer):
        trouble = stuck.get(receiver)
        if trouble is not None:
            since = f"{trouble.failing_since:%Y-%m-%d %H:%M} UTC"
            yield (
                RECEIVERS,
                NotReachedError(whom=receiver, since=since, problem=trouble.problem),
            )
            continue
        try:
            for line in delivery_handover.check_receiver(context, receiver):
                yield RECEIVERS, f"{receiver}: {line}"
        except CardlinkError as error:
            yield RECEIVERS, error
    for receiver in without_table(context):
        yield RECEIVERS, WithoutTableError(receiver=receiver)
