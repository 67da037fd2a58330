"""The lines of the worklist about deliveries of links and acknowledgements, and their kinds."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from flows.book.book import Book
from flows.book.served import ToDeliver, to_deliver
from flows.extensions.deliveries.work import (
    ERASURES,
    HALF_TOLD,
    NOT_HANDED_OVER,
    NOT_RECEIVED,
    TO_DELIVER,
    UNCONFIRMED,
    UNFINISHED_DELIVERY,
    WITHDRAWALS,
)
from flows.reports.work import Work
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.delivered import line_of, receivers_with_deliveries, trouble_of
from flows.runs.erased import is_interrupted, unfinished_erasures
from flows.runs.handovers import Handed, last_handed
from flows.runs.told import first_unconfirmed, half_told
from schemas.handover import DEFAULT
from schemas.issuer import Issuer, most_of
from schemas.records import Delivery


def matters(context: IssuerContext, book: Book, now: datetime) -> Iterator[Work]:
    """Yield what is to be done about what is handed over, or has to be."""
    adapters = context.adapters
    issuer = context.issuer
    yield from _deliveries(adapters, issuer)
    yield from _half_told(adapters, issuer)
    yield from _late_receipts(adapters, issuer, now)
    yield from _forgotten(adapters, issuer.issuer)
    if issuer.deliveries or receivers_with_deliveries(adapters, issuer.issuer):
        yield from links_to_deliver(issuer, _to_deliver(context, book, now), now)


def _to_deliver(context: IssuerContext, book: Book, now: datetime) -> ToDeliver:
    """Count what the next delivery of an issuer's cards has."""
    today = local_day(now, context.issuer.time_zone)
    delivered = book.stages.delivered
    counts = [to_deliver(part.cards(today), delivered, today) for part in book.parts()]
    return ToDeliver(*map(sum, zip(*counts, strict=True)))


def names_erased(adapters: Adapters, issuer: str) -> bool:
    """Return whether deliveries may name erased cardholders until a receiver confirms."""
    return bool(receivers_with_deliveries(adapters, issuer))


def _forgotten(adapters: Adapters, issuer: str) -> Iterator[Work]:
    """Yield the erasures whose cardholders deliveries still name."""
    acts = unfinished_erasures(adapters, issuer)
    if acts and not is_interrupted(acts) and names_erased(adapters, issuer):
        yield Work(
            due=acts[0].at,
            kind=ERASURES.name,
            issuer=issuer,
            since=acts[0].at,
            rows=sum(act.people for act in acts),
        )


def _deliveries(adapters: Adapters, issuer: Issuer) -> Iterator[Work]:
    """Yield the last delivery of links to each receiver, unless it is confirmed: it has not come
    there, or nobody has said that it has.
    """
    for receiver in receivers_with_deliveries(adapters, issuer.issuer):
        last = last_handed(adapters, line_of(issuer.issuer, receiver))
        if last is None or last.confirmed:
            continue
        work = _delivery(issuer, receiver, last)
        yield work if last.is_done else work._replace(kind=UNFINISHED_DELIVERY.name)


def links_to_deliver(issuer: Issuer, links: ToDeliver, now: datetime) -> Iterator[Work]:
    """Yield the links that the next delivery has."""
    name = issuer.issuer
    ended = links.ended
    if links.left > most_of(issuer.limits.max_withdrawn, links.delivered):
        ended -= links.left
        yield Work(
            due=now,
            kind=WITHDRAWALS.name,
            issuer=name,
            since=now,
            rows=links.left,
            note=f"{links.left:,} of the {links.delivered:,} links that were delivered.",
        )
    if links.new or ended:
        yield Work(
            due=now,
            kind=TO_DELIVER.name,
            issuer=name,
            since=now,
            rows=links.new + ended,
            note=f"New: {links.new:,}; to be withdrawn: {ended:,}.",
        )


def _delivery(issuer: Issuer, receiver: str, delivery: Handed[Delivery]) -> Work:
    """Return what is to be done about a delivery that is not confirmed."""
    last = delivery.record
    number = delivery.number
    named = "" if receiver == DEFAULT else receiver
    has_others = bool(issuer.deliveries.keys() - {DEFAULT})
    work = Work(
        due=last.at,
        kind=UNCONFIRMED.name,
        issuer=issuer.issuer,
        since=last.at,
        rows=last.new + last.replaced + last.withdrawn,
        fields=(
            ("name", f"{named} {number:06d}".strip()),
            ("number", number),
            ("receiver", receiver if has_others else named),
        ),
    )
    trouble = trouble_of(delivery)
    if trouble is None:
        return work
    since = trouble.failing_since
    note = f"Since {since:%Y-%m-%d %H:%M} UTC: {trouble.problem}"
    return work._replace(kind=NOT_HANDED_OVER.name, since=since, note=note)


def _half_told(adapters: Adapters, issuer: Issuer) -> Iterator[Work]:
    """Yield the last acknowledgement where it is not complete: nobody takes it."""
    last = half_told(adapters, issuer.issuer)
    if issuer.acknowledgement is not None and last is not None:
        yield Work(
            due=last.record.at,
            kind=HALF_TOLD.name,
            issuer=issuer.issuer,
            run=last.record.run,
            rows=sum(last.record.rows.values()),
            since=last.record.at,
            fields=(("name", f"{last.number:06d}"),),
        )


def _late_receipts(adapters: Adapters, issuer: Issuer, now: datetime) -> Iterator[Work]:
    """Yield the acknowledgements that the issuer has not confirmed in time."""
    settings = issuer.acknowledgement
    if settings is None or settings.receipt_within_hours is None:
        return
    within = timedelta(hours=settings.receipt_within_hours)
    late = first_unconfirmed(adapters, issuer.issuer, within, now)
    if late is not None:
        number, last, record = late
        named = f"{number:06d}, the newest is {last:06d}" if last > number else f"{number:06d}"
        yield Work(
            due=record.at + within,
            kind=NOT_RECEIVED.name,
            issuer=issuer.issuer,
            run=record.run,
            rows=sum(record.rows.values()),
            since=record.at,
            fields=(("name", named), ("number", last)),
        )
