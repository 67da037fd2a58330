"""What is to be done and what is wrong about what is handed over: lines of the worklist and news
with their kinds, and what `check` says of places, keys and webhooks.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import polars as pl

from flows.book.book import Book
from flows.book.stages import served_cards
from flows.errors import CardlinkError, OperatorError
from flows.extensions.deliveries.acknowledgement import acknowledgements_to, check_place, not_told
from flows.extensions.deliveries.changes import ToDeliver, to_deliver
from flows.extensions.deliveries.delivered import (
    line_of,
    names_erased,
    not_delivered_to,
    receivers_with_deliveries,
    withdrawals_owed,
)
from flows.extensions.deliveries.formats import Delivery
from flows.extensions.deliveries.handover import Handed, NotReachedError, last_handed
from flows.extensions.deliveries.reaching import check_receiver, troubles
from flows.extensions.deliveries.receipts import late_receipt
from flows.extensions.deliveries.receivers import without_table
from flows.extensions.deliveries.settings import BY_HAND, DEFAULT, acknowledging, receivers_in
from flows.reports.work import Work
from flows.reports.work_kinds import CARDHOLDERS, ISSUER, OPERATOR, Choice, Kind
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.erased import erased_people, is_interrupted, unfinished_erasures
from flows.steps import RECEIPT, WHY, Slot, Step
from schemas.issuer import Issuer, most_of

RECEIVERS = "receivers"  # the part of an installation
TELLING = timedelta(hours=1)  # the time that telling the issuer may take
REACHING = timedelta(minutes=15)  # the time that a receiver of links may be away
TO_DELIVER = Kind(
    "links to deliver",
    OPERATOR,
    "New, or ended, since the last delivery",
    Step("deliver", Slot("issuer")),
    noun="",
    rows="link",
    several=True,
)
WITHDRAWALS = Kind(
    "withdrawals to decide",
    ISSUER,
    "Their cards left, and so many links are not withdrawn without a decision",
    Step("deliver", Slot("issuer"), open="withdrawals", reason=WHY, dry_run=True),
    (
        "See what it would withdraw, and ask the issuer whether these cardholders left. Where "
        "they did not, an extract that names them again keeps their links."
    ),
    (
        Choice(
            "withdraw",
            "They left: the receivers are told not to use their links.",
            Step("deliver", Slot("issuer"), open="withdrawals", reason=WHY),
        ),
    ),
    noun="",
    rows="link",
    of_one_run=True,
)
BY_HAND_LINKS = Kind(
    "links to deliver by hand",
    OPERATOR,
    "New for a receiver that is served by hand alone",
    Step("deliver", Slot("issuer"), Slot("receiver")),
    noun="receiver",
    rows="link",
    of_one_run=True,
)
_CONFIRM = Step("deliver", Slot("issuer"), Slot("receiver"), confirm=Slot("number"), reason=RECEIPT)
UNCONFIRMED = Kind(
    "links to confirm",
    OPERATOR,
    "Delivered, and the receiving side has not confirmed it",
    _CONFIRM,
    "Confirm it with the receipt of the receiving side.",
    noun="delivery",
    rows="link",
    of_one_run=True,  # each receiver has a line of its own
)
NOT_HANDED_OVER = Kind(
    "receivers to reach",
    OPERATOR,
    "Links have not come to their receiver; it is tried again by itself",
    Step("deliver", Slot("issuer"), Slot("receiver")),
    "Ask the receiver, or correct its table in the TOML; the first step tries now.",
    (
        Choice(
            "confirm",
            "The receiver has these links in another way.",
            _CONFIRM,
            widest="issuer",
        ),
    ),
    noun="delivery",
    rows="link",
    of_one_run=True,
)
NOT_RECEIVED = Kind(
    "acknowledgements to confirm",
    ISSUER,
    "Handed to the issuer, and no receipt has come",
    Step("acknowledge", Slot("issuer")),  # which takes in a receipt that has come
    "Ask the issuer whether it takes its acknowledgements.",
    (
        Choice(
            "confirm",
            "The issuer has the newest, and those before it.",
            Step("acknowledge", Slot("issuer"), confirm=Slot("number"), reason=RECEIPT),
            widest="issuer",
        ),
    ),
    noun="acknowledgement",
    is_alert=True,
)
ERASURES = Kind(
    "forgotten cardholders",
    OPERATOR,
    "Forgotten, and what was delivered still names them, as long as a receiver may use their links",
    Step("deliver", Slot("issuer")),
    (
        "The delivery tells each receiver not to use these links; record the receipt of each; then "
        "a purge removes the last that names them. The first step is the one that is next."
    ),
    noun="erasure",
    rows=CARDHOLDERS,
    of_one_run=True,
)
NOT_TOLD = Kind(
    "extracts not acknowledged",
    ISSUER,
    "The issuer was not told of an extract",
    Step("acknowledge", Slot("issuer")),
    "Acknowledge by hand, which says what stands in the way.",
    is_alert=True,
    is_news=True,
)
KINDS = (
    *(NOT_TOLD, TO_DELIVER, BY_HAND_LINKS, WITHDRAWALS, UNCONFIRMED, NOT_HANDED_OVER),
    *(NOT_RECEIVED, ERASURES),
)


def work_kinds() -> Iterable[Kind]:
    """Return the kinds of lines."""
    return KINDS


def matters(context: IssuerContext, book: Book, now: datetime) -> Iterator[Work]:
    """Yield what is to be done about what is handed over, or has to be."""
    adapters = context.adapters
    issuer = context.issuer
    yield from _deliveries(context, now)
    yield from _late_receipts(context, now)
    yield from _forgotten(context)
    yield from _by_hand(context, book, now)
    if receivers_in(issuer) or receivers_with_deliveries(adapters, issuer.issuer):
        yield from links_to_deliver(issuer, _to_deliver(context, book, now), now)


def _to_deliver(context: IssuerContext, book: Book, now: datetime) -> ToDeliver:
    """Count what the next delivery of an issuer's cards has."""
    today = local_day(now, context.issuer.time_zone)
    delivered = book.stages.delivered
    counts = [to_deliver(part.cards(today), delivered, today) for part in book.parts()]
    return ToDeliver(*map(sum, zip(*counts, strict=True)))


def _forgotten(context: IssuerContext) -> Iterator[Work]:
    """Yield the erasures whose cardholders deliveries still name."""
    adapters = context.adapters
    issuer = context.issuer.issuer
    acts = unfinished_erasures(adapters, issuer)
    if acts and not is_interrupted(acts) and names_erased(adapters, issuer):
        step, note = _next_of_erasure(context)
        yield Work(
            due=acts[0].at,
            kind=ERASURES.name,
            issuer=issuer,
            since=acts[0].at,
            rows=sum(act.people for act in acts),
            step=step,
            note=note,
        )


def _next_of_erasure(context: IssuerContext) -> tuple[Step, str]:
    """Return what is next until nothing that was delivered names who is erased, and who is waited
    for: a delivery, the receipt of a receiver, or a purge.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    for receiver, number in withdrawals_owed(adapters, issuer, erased_people(adapters, issuer)):
        if number is None:
            return Step("deliver", issuer), f"{receiver} is not told yet."
        named = () if receiver == DEFAULT and not receivers_in(context.issuer) else (receiver,)
        confirm = Step("deliver", issuer, *named, confirm=number, reason=RECEIPT)
        return confirm, f"Waits for the receipt of {receiver} for delivery {number:06d}."
    return Step("purge", issuer), "Every receiver has confirmed it."


def _by_hand(context: IssuerContext, book: Book, now: datetime) -> Iterator[Work]:
    """Yield the links that a receiver which is served by hand alone does not have, where others
    have them: for these nothing is to be delivered.
    """
    receivers = receivers_in(context.issuer)
    by_hand = [
        name
        for name, receiver in receivers.items()
        if receiver.schedule == BY_HAND and not receiver.retired
    ]
    if not by_hand or len(receivers) == 1:
        return
    today = local_day(now, context.issuer.time_zone)
    served = pl.concat(served_cards(part.cards(today), today) for part in book.parts())
    issuer = context.issuer.issuer
    for receiver in by_hand:
        missing = not_delivered_to(context.adapters, issuer, receiver, served)
        if missing:
            yield Work(
                due=now,
                kind=BY_HAND_LINKS.name,
                issuer=issuer,
                since=now,
                rows=missing,
                fields=(("name", receiver), ("receiver", receiver)),
            )


def _deliveries(context: IssuerContext, now: datetime) -> Iterator[Work]:
    """Yield the last delivery of links to each receiver, unless it is confirmed: it has not come
    there, or nobody has said that it has.
    """
    adapters = context.adapters
    issuer = context.issuer
    for receiver in receivers_with_deliveries(adapters, issuer.issuer):
        line = line_of(issuer.issuer, receiver)
        last = last_handed(adapters, line)
        if last is None or last.confirmed:
            continue
        work = _delivery(issuer, receiver, last, now)
        settings = receivers_in(issuer).get(receiver)
        if work.kind == UNCONFIRMED.name and settings is not None:
            late = late_receipt(context, line, settings, now)
            work = work._replace(alert=late is not None)
        yield work


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


def _delivery(issuer: Issuer, receiver: str, delivery: Handed[Delivery], now: datetime) -> Work:
    """Return what is to be done about a delivery that is not confirmed."""
    last = delivery.record
    number = delivery.number
    named = "" if receiver == DEFAULT else receiver
    has_others = bool(receivers_in(issuer).keys() - {DEFAULT})
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
    trouble = delivery.trouble
    if trouble is not None:
        since = trouble.failing_since
        note = f"Since {since:%Y-%m-%d %H:%M} UTC: {trouble.problem}"
        is_away = now - since >= REACHING
        return work._replace(kind=NOT_HANDED_OVER.name, since=since, note=note, alert=is_away)
    if not delivery.is_done:
        note = "The command ended before all of its files were written."
        return work._replace(kind=NOT_HANDED_OVER.name, note=note)
    return work


def _late_receipts(context: IssuerContext, now: datetime) -> Iterator[Work]:
    """Yield the acknowledgements that the issuer has not confirmed in time."""
    issuer = context.issuer.issuer
    settings = acknowledging(context.issuer)
    if settings is None:
        return
    late = late_receipt(context, acknowledgements_to(issuer), settings, now)
    if late is None:
        return
    named = f"{late.first:06d}"
    if late.last > late.first:
        named += f", the newest is {late.last:06d}"
    yield Work(
        due=late.record.at + timedelta(hours=settings.receipt_within_hours or 0),
        kind=NOT_RECEIVED.name,
        issuer=issuer,
        run=late.record.run,
        rows=sum(late.record.rows.values()),
        since=late.record.at,
        fields=(("name", named), ("number", late.last)),
    )


def news(context: IssuerContext, _failures: object = ()) -> Iterator[Work]:
    """Yield the extracts of which the issuer was not told, and that nothing comes to it."""
    settings = acknowledging(context.issuer)
    if settings is None:
        return
    now = context.adapters.now()
    for run in not_told(context, now - TELLING):
        yield _untold(context, run, now, f"{run}: the issuer was not told what became of it.")
    last = last_handed(context.adapters, acknowledgements_to(context.issuer.issuer))
    trouble = last.trouble if last is not None else None
    if trouble is not None and now - trouble.failing_since >= REACHING:
        since = f"since {trouble.failing_since:%Y-%m-%d %H:%M}"
        text = f"What was told last has not come to the issuer {since}: {trouble.problem}"
        yield _untold(context, "place", trouble.failing_since, text)


def _untold(context: IssuerContext, name: str, since: datetime, text: str) -> Work:
    return Work(
        due=since,
        kind=NOT_TOLD.name,
        issuer=context.issuer.issuer,
        since=since,
        fields=(("name", name),),
        note=text,
    )


class WithoutTableError(OperatorError):
    """A receiver has deliveries, and no table in the issuer's TOML any more."""

    message = (
        "{receiver}: has deliveries and no table [deliveries.{receiver}], so nothing is withdrawn."
    )
    next_step = "Put it back, with retired = true to withdraw all links."


def checks(context: IssuerContext) -> Iterator[tuple[str, str | CardlinkError]]:
    """Try where the issuer is told, and each receiver of links."""
    try:
        for line in check_place(context):
            yield "issuer", f"acknowledgements: {line}"
    except CardlinkError as error:
        yield "issuer", error
    stuck = dict(troubles(context))
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
            for line in check_receiver(context, receiver):
                yield RECEIVERS, f"{receiver}: {line}"
        except CardlinkError as error:
            yield RECEIVERS, error
    for receiver in without_table(context):
        yield RECEIVERS, WithoutTableError(receiver=receiver)
