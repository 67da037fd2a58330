"""The alerts about deliveries of links and acknowledgements."""

from collections.abc import Iterator
from datetime import timedelta

from flows.operations.acknowledgement import not_told
from flows.operations.alert_kinds import Cause
from flows.operations.delivery_handover import late_receipts, troubles
from flows.runs.context import IssuerContext
from flows.runs.told import first_unconfirmed

TELLING = timedelta(hours=1)  # the time that telling the issuer may take
REACHING = timedelta(minutes=15)  # the time that a receiver of links may be away


def alerts(context: IssuerContext) -> Iterator[Cause]:
    """Yield what is wrong with what is handed over."""
    yield from _acknowledgement_causes(context)
    yield from _delivery_causes(context)


def _acknowledgement_causes(context: IssuerContext) -> Iterator[Cause]:
    """Yield the extracts of which the issuer was not told, and a receipt that is late."""
    settings = context.issuer.acknowledgement
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
