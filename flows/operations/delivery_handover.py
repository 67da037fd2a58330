"""Hand deliveries over to their receivers: files, what says that they are all there, an event.

Level-triggered, as alerts are: whichever command comes next brings a receiver whatever its last
delivery lacks, until it has it. A receiver that is down fails nothing: why it cannot be reached is
kept beside its chain, and it is left alone for a while that doubles from attempt to attempt. Only
the last delivery is handed over, since it has everything since the last confirmed one.

The event may be posted more than once, always with the same id: a process can die between the
answer and the record of it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from flows.errors import CardlinkError
from flows.operations.delivered_so_far import confirm, place_below
from flows.operations.delivery import Delivered, deliver, links_now
from flows.operations.handing_over import copy_to, place_lines
from flows.operations.receivers import receivers_of, settings_of
from flows.redaction import redact
from flows.runs.context import Answer, IssuerContext
from flows.runs.delivered import (
    DONE,
    EMITTED,
    TAKEN,
    DeliveryId,
    delivery_folder,
    is_confirmed,
    last_delivery,
    trouble_key,
    trouble_of,
)
from flows.runs.documents import parsed
from flows.runs.identity import canonical, digest
from flows.runs.store import Store, is_stored, read, read_if_stored
from flows.runs.stored_journal import flush_journal
from schemas.delivery import DeliveredFile, DeliveryEvent, DeliveryNotice
from schemas.handover import AFTER_INGEST
from schemas.records import Delivery, HandoverTrouble, Taken

FIRST_WAIT = timedelta(minutes=5)
LONGEST_WAIT = timedelta(hours=6)
DOUBLINGS = 8  # after which the wait is the longest in any case
DONE_ALREADY = Answer(is_taken=True)


class Outcome(NamedTuple):
    """What came of delivering to a receiver; `problem`: why it has not got it, "" where it has.

    `error`: why there is no delivery.
    """

    receiver: str
    delivered: Delivered = Delivered()
    problem: str = ""
    error: CardlinkError | None = None


def deliver_to(
    context: IssuerContext,
    receivers: Sequence[str],
    *,
    at_once: bool,
    hands_over: bool = True,
    opened: str = "",
) -> Iterator[Outcome]:
    """Deliver to receivers one after another; what one lacks does not keep the others waiting.

    `at_once`: also to one that is left alone for a while. `opened`: why any number of links may be
    withdrawn.
    """
    now = links_now(context) if receivers else None
    for receiver in receivers:
        try:
            delivered = deliver(context, receiver, now, opened)
        except CardlinkError as error:
            yield Outcome(receiver, problem=str(error.text), error=error)
            continue
        problem = ""
        if hands_over:
            problem = hand_over(context, receiver, at_once=at_once)
        yield Outcome(receiver, delivered, problem)


def deliver_after_ingest(context: IssuerContext) -> list[Outcome]:
    """Deliver to the receivers whose schedule says so, and bring to the others what they lack."""
    tables = context.issuer.deliveries
    by_ingest = [name for name, each in tables.items() if each.schedule == AFTER_INGEST]
    retry_receivers(context, [name for name in tables if name not in by_ingest])
    return list(deliver_to(context, by_ingest, at_once=False))


def retry_receivers(context: IssuerContext, receivers: Sequence[str] | None = None) -> None:
    """Bring to receivers what their last deliveries lack; to all with a table by default."""
    for receiver in context.issuer.deliveries if receivers is None else receivers:
        hand_over(context, receiver, at_once=False)


def hand_over(context: IssuerContext, receiver: str, *, at_once: bool) -> str:
    """Bring the last delivery to its receiver, as far as that is not done.

    Return why that cannot be done, "" where it is. Nothing for a receiver without a table.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    if receiver not in context.issuer.deliveries:
        return ""
    trouble = trouble_of(store, issuer, receiver)
    if trouble is not None and not trouble.problem:
        trouble = None
    if trouble and not at_once and context.adapters.now() < trouble.not_before:
        return trouble.problem
    number, record = last_delivery(store, issuer, receiver)
    if record is None:
        return ""
    flush_journal(context.adapters, issuer)
    try:
        answer = _attempt(context, DeliveryId(receiver, number), record)
    except CardlinkError as error:
        answer = Answer(is_taken=False, problem=error.what_happened)
    if trouble or not answer.is_taken:
        _note(context, receiver, number, answer, trouble)
    return "" if answer.is_taken else answer.problem


def notices_to_emit(context: IssuerContext) -> Iterator[DeliveryNotice]:
    """Yield what Prefect was not told of the last deliveries, of receivers that want that."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    for receiver, settings in context.issuer.deliveries.items():
        number, _ = last_delivery(store, issuer, receiver)
        folder = delivery_folder(issuer, number, receiver)
        notice = read_if_stored(store, folder + DONE)
        if not settings.prefect_event or notice is None:
            continue
        if not is_stored(store, folder + EMITTED):
            yield parsed(notice, folder + DONE, DeliveryNotice)


def record_emitted(context: IssuerContext, notice: DeliveryNotice) -> None:
    """Record that Prefect was told of a delivery."""
    folder = delivery_folder(notice.issuer, notice.number, notice.receiver)
    context.adapters.store.create(folder + EMITTED, canonical(_taken(context)))


def check_receiver(context: IssuerContext, receiver: str) -> list[str]:
    """Return what is fine about handing files over to a receiver; raises what is not."""
    lines = place_lines(context, settings_of(context.issuer, receiver))
    if context.announcer_of(receiver) is not None:
        lines.append("the secret of its webhook is as Standard Webhooks has it")
    return lines


def troubles(context: IssuerContext) -> Iterator[tuple[str, HandoverTrouble]]:
    """Yield the receivers that have not got their last delivery, and why."""
    store = context.adapters.store
    for receiver in receivers_of(context):
        trouble = trouble_of(store, context.issuer.issuer, receiver)
        if trouble is not None and trouble.problem:
            yield receiver, trouble


def late_receipts(context: IssuerContext) -> Iterator[tuple[str, int, datetime]]:
    """Yield the receivers that have not confirmed their last delivery in time: its number, and when
    it was made.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    for receiver, settings in context.issuer.deliveries.items():
        number, last = last_delivery(store, issuer, receiver)
        if last is None or settings.receipt_within_hours is None:
            continue
        is_due = last.at + timedelta(hours=settings.receipt_within_hours)
        is_late = context.adapters.now() >= is_due
        if is_late and not is_confirmed(store, issuer, DeliveryId(receiver, number)):
            yield receiver, number, last.at


# One attempt
# --------------------------------------------------------------------------------------------------


def _attempt(context: IssuerContext, id_: DeliveryId, record: Delivery) -> Answer:
    """Hand a delivery over, as far as its receiver does not have it."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    folder = delivery_folder(issuer, id_.number, id_.receiver)
    if is_confirmed(store, issuer, id_):
        return DONE_ALREADY
    if not is_stored(store, folder + max(record.names)):
        return DONE_ALREADY  # its files are gone, or the next `deliver` finishes them
    settings = settings_of(context.issuer, id_.receiver)
    notice = _notice(context, id_, record)
    place = context.place_of(settings)
    if place is not None:
        done = {settings.done_marker: notice}
        copy_to(store, folder, record.names, place, place_below(issuer, id_), done)
    return _announced(context, id_, record, notice)


def _notice(context: IssuerContext, id_: DeliveryId, record: Delivery) -> bytes:
    """Return the done marker of a delivery, which is written once."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    folder = delivery_folder(issuer, id_.number, id_.receiver)
    stored = read_if_stored(store, folder + DONE)
    if stored is not None:
        return stored
    is_elsewhere = settings_of(context.issuer, id_.receiver).to is not None
    notice = DeliveryNotice(
        issuer=issuer,
        receiver=id_.receiver,
        number=id_.number,
        after=record.after,
        at=record.at,
        folder=place_below(issuer, id_) if is_elsewhere else folder,
        files=tuple(_file(store, folder, name) for name in record.names),
        sealed_to=record.sealed_to,
        new=record.new,
        replaced=record.replaced,
        withdrawn=record.withdrawn,
        living=record.living,
    )
    store.create(folder + DONE, canonical(notice))
    return read(store, folder + DONE)


def _file(store: Store, folder: str, name: str) -> DeliveredFile:
    content = read(store, folder + name)
    return DeliveredFile(name=name, sha256=digest(content), bytes=len(content))


def _announced(context: IssuerContext, id_: DeliveryId, record: Delivery, notice: bytes) -> Answer:
    """Post the event of a delivery, until it is taken."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    folder = delivery_folder(issuer, id_.number, id_.receiver)
    announcer = context.announcer_of(id_.receiver)
    if announcer is None:
        return DONE_ALREADY
    answer = DONE_ALREADY
    if not is_stored(store, folder + TAKEN):
        data = parsed(notice, folder + DONE, DeliveryNotice)
        event = DeliveryEvent(timestamp=record.at, data=data)
        answer = announcer.announce(event_id(issuer, id_), canonical(event))
    if answer.is_taken:
        store.create(folder + TAKEN, canonical(_taken(context)))
        if settings_of(context.issuer, id_.receiver).confirmed_by == "event":
            confirm(context, id_.number, "its webhook took the event", id_.receiver)
    return answer


def event_id(issuer: str, id_: DeliveryId) -> str:
    """Return the id of the event of a delivery, the same whenever it is posted."""
    return f"{issuer}.{id_.receiver}.{id_.number:06d}"


def _taken(context: IssuerContext) -> Taken:
    return Taken(at=context.adapters.now(), by=redact(context.adapters.actor))


def _note(
    context: IssuerContext,
    receiver: str,
    number: int,
    answer: Answer,
    earlier: HandoverTrouble | None,
) -> None:
    """Keep why a receiver was not reached, and from when it is tried again; or that it was."""
    now = context.adapters.now()
    tries = 0
    if not answer.is_taken:
        tries = 1 + (earlier.tries if earlier else 0)
    wait = min(FIRST_WAIT * 2 ** min(max(tries - 1, 0), DOUBLINGS), LONGEST_WAIT)
    trouble = HandoverTrouble(
        number=number,
        since=earlier.since if earlier else now,
        last=now,
        tries=tries,
        problem="" if answer.is_taken else answer.problem,
        not_before=_later(now + wait, answer.not_before),
    )
    key = trouble_key(context.issuer.issuer, receiver)
    context.adapters.store.replace(key, [canonical(trouble)])


def _later(moment: datetime, other: datetime | None) -> datetime:
    return moment if other is None else max(moment, other)
