"""What is wrong with what is handed over: alerts, and what `check` says of places and keys."""

from collections.abc import Iterator
from datetime import timedelta

from flows.errors import CardlinkError, OperatorError
from flows.extensions.deliveries import acknowledgement
from flows.extensions.deliveries import reaching as delivery_handover
from flows.extensions.deliveries.acknowledgement import first_unconfirmed, not_told
from flows.extensions.deliveries.reaching import late_receipts, troubles
from flows.extensions.deliveries.receivers import without_table
from flows.extensions.deliveries.settings import acknowledging, receivers_in
from flows.operations.alert_kinds import Cause
from flows.runs.context import IssuerContext

TELLING = timedelta(hours=1)  # the time that telling the issuer may take
REACHING = timedelta(minutes=15)  # the time that a receiver of links may be away


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
    if settings.receipt_within_hours is None:
        return
    within = timedelta(hours=settings.receipt_within_hours)
    late = first_unconfirmed(context.adapters, context.issuer.issuer, within, now)
    if late is not None:
        number, last, record = late
        text = f"acknowledgements {number} to {last}: no receipt since {record.at:%Y-%m-%d %H:%M}"
        yield Cause("issuer-not-told", f"receipt-{number}", text)


def _delivery_causes(context: IssuerContext) -> Iterator[Cause]:
    """Yield the receivers that have not got their last delivery, or not confirmed it in time."""
    now = context.adapters.now()
    stuck = dict(troubles(context))
    for receiver, trouble in stuck.items():
        if now - trouble.failing_since >= REACHING:
            since = f"since {trouble.failing_since:%Y-%m-%d %H:%M}"
            text = f"{receiver}: links have not come there {since}: {trouble.problem}"
            yield Cause("links-not-taken", receiver, text)
    for receiver, number, moment in late_receipts(context):
        if receiver not in stuck:
            text = f"{receiver}: no receipt of delivery {number} since {moment:%Y-%m-%d %H:%M}"
            yield Cause("links-not-taken", receiver, text)


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
    for receiver in receivers_in(context.issuer):
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
