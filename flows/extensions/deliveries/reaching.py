"""Hand deliveries over to their receivers: files, what says that they are all there, an event.

Level-triggered, as alerts are: whichever command comes next brings a receiver whatever its last
delivery lacks, until it has it. A receiver that is down fails nothing: why it cannot be reached is
kept with its last delivery, and it is left alone for a while that doubles from attempt to attempt.
Only the last delivery is handed over, since it has everything since the last confirmed one.

The event may be posted more than once, always with the same id: a process can die between the
answer and the record of it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from flows.errors import CardlinkError
from flows.extensions.deliveries.delivered import (
    NOTICE,
    DeliveryId,
    HandoverTrouble,
    delivery_folder,
    line_of,
    trouble_of,
)
from flows.extensions.deliveries.delivery import Delivered, deliver, links_now
from flows.extensions.deliveries.formats import (
    EVENT,
    DeliveredFile,
    Delivery,
    DeliveryEvent,
    DeliveryNotice,
)
from flows.extensions.deliveries.handover import (
    Handed,
    copy_to,
    last_handed,
    note,
    place_lines,
    place_of,
    read_handed,
)
from flows.extensions.deliveries.receivers import confirm, place_below, receivers_of
from flows.extensions.deliveries.settings import AFTER_INGEST, receivers_in, settings_of
from flows.extensions.deliveries.webhook import Answer, announcer_of
from flows.runs.context import IssuerContext
from flows.runs.documents import parsed
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter
from flows.runs.notices import Event
from flows.runs.store import Store, is_stored, read, read_if_stored
from flows.runs.stored_journal import flush_journal

TAKEN = "taken"  # its webhook took the event
EMITTED = "emitted"  # Prefect was told
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
    tables = receivers_in(context.issuer)
    by_ingest = [name for name, each in tables.items() if each.schedule == AFTER_INGEST]
    retry_receivers(context, [name for name in tables if name not in by_ingest])
    return list(deliver_to(context, by_ingest, at_once=False))


def retry_receivers(context: IssuerContext, receivers: Sequence[str] | None = None) -> None:
    """Bring to receivers what their last deliveries lack; to all with a table by default."""
    for receiver in receivers_in(context.issuer) if receivers is None else receivers:
        hand_over(context, receiver, at_once=False)


def hand_over(context: IssuerContext, receiver: str, *, at_once: bool) -> str:
    """Bring the last delivery to its receiver, as far as that is not done.

    Return why that cannot be done, "" where it is. Nothing for a receiver without a table.
    """
    if receiver not in receivers_in(context.issuer):
        return ""
    last = last_handed(context.adapters, line_of(context.issuer.issuer, receiver))
    trouble = trouble_of(last)
    if trouble and not at_once and context.adapters.now() < trouble.not_before:
        return trouble.problem
    if last is None:
        return ""
    flush_journal(context.adapters, context.issuer.issuer)
    answer = _answer(context, receiver, last)
    if trouble or not answer.is_taken:
        _note_attempt(context, receiver, last.number, answer)
    return "" if answer.is_taken else answer.problem


def _answer(context: IssuerContext, receiver: str, last: Handed[Delivery]) -> Answer:
    """Return what came of handing a delivery over; an error is a problem, too."""
    try:
        return _attempt(context, receiver, last)
    except CardlinkError as error:
        return Answer(is_taken=False, problem=error.what_happened)


def events(context: IssuerContext) -> Iterator[Event]:
    """Bring to receivers what they lack, and yield the events of the last deliveries to those that
    want one; what was yielded was emitted when the next is asked for.
    """
    retry_receivers(context)
    issuer = context.issuer.issuer
    for receiver, settings in receivers_in(context.issuer).items():
        if not settings.prefect_event:
            continue
        last = last_handed(context.adapters, line_of(issuer, receiver))
        if last is None or last.row["emitted_at"] is not None:
            continue
        key = delivery_folder(issuer, last.number, receiver) + NOTICE
        content = read_if_stored(context.adapters.store, key)
        if content is not None:
            yield _event(parsed(content, key, DeliveryNotice))
            note(context.adapters, line_of(issuer, receiver), last.number, EMITTED)


def _event(notice: DeliveryNotice) -> Event:
    labels = {
        "prefect.resource.name": f"links for {notice.receiver}",
        "issuer": notice.issuer,
        "receiver": notice.receiver,
    }
    resource = f"cardlink.delivery.{notice.issuer}.{notice.receiver}"
    return Event(EVENT, resource, notice.number, labels, notice.model_dump(mode="json"))


def check_receiver(context: IssuerContext, receiver: str) -> list[str]:
    """Return what is fine about handing files over to a receiver; raises what is not."""
    lines = place_lines(context, settings_of(context.issuer, receiver))
    if announcer_of(context, receiver) is not None:
        lines.append("the secret of its webhook is as Standard Webhooks has it")
    return lines


def troubles(context: IssuerContext) -> Iterator[tuple[str, HandoverTrouble]]:
    """Yield the receivers that have not got their last delivery, and why."""
    for receiver in receivers_of(context):
        trouble = trouble_of(
            last_handed(context.adapters, line_of(context.issuer.issuer, receiver))
        )
        if trouble is not None:
            yield receiver, trouble


def late_receipts(context: IssuerContext) -> Iterator[tuple[str, int, datetime]]:
    """Yield the receivers that have not confirmed their last delivery in time: its number, and when
    it was made.
    """
    for receiver, settings in receivers_in(context.issuer).items():
        last = last_handed(context.adapters, line_of(context.issuer.issuer, receiver))
        if last is None or last.confirmed or settings.receipt_within_hours is None:
            continue
        is_due = last.record.at + timedelta(hours=settings.receipt_within_hours)
        if context.adapters.now() >= is_due:
            yield receiver, last.number, last.record.at


# One attempt
# --------------------------------------------------------------------------------------------------


def _attempt(context: IssuerContext, receiver: str, delivery: Handed[Delivery]) -> Answer:
    """Hand a delivery over, as far as its receiver does not have it."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    id_ = DeliveryId(receiver, delivery.number)
    folder = delivery_folder(issuer, id_.number, receiver)
    names = delivery.record.names
    # its files are gone, or the next `deliver` finishes them
    if delivery.confirmed or not delivery.is_done or not is_stored(store, folder + max(names)):
        return DONE_ALREADY
    settings = settings_of(context.issuer, receiver)
    notice = _notice(context, id_, delivery.record)
    place = place_of(context, settings)
    if place is not None:
        done = {settings.done_marker: notice}
        copy_to(store, folder, names, place, place_below(issuer, id_), done)
    return _announced(context, id_, delivery, notice)


def _notice(context: IssuerContext, id_: DeliveryId, record: Delivery) -> bytes:
    """Return the done marker of a delivery, which is written once."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    folder = delivery_folder(issuer, id_.number, id_.receiver)
    stored = read_if_stored(store, folder + NOTICE)
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
    store.create(folder + NOTICE, canonical(notice))
    return read(store, folder + NOTICE)


def _file(store: Store, folder: str, name: str) -> DeliveredFile:
    content = read(store, folder + name)
    return DeliveredFile(name=name, sha256=digest(content), bytes=len(content))


def _announced(
    context: IssuerContext, id_: DeliveryId, delivery: Handed[Delivery], notice: bytes
) -> Answer:
    """Post the event of a delivery, until it is taken."""
    issuer = context.issuer.issuer
    announcer = announcer_of(context, id_.receiver)
    if announcer is None:
        return DONE_ALREADY
    answer = DONE_ALREADY
    if delivery.row["taken_at"] is None:
        data = DeliveryNotice.model_validate_json(notice)
        event = DeliveryEvent(timestamp=delivery.record.at, data=data)
        answer = announcer.announce(event_id(issuer, id_), canonical(event))
        if answer.is_taken:
            note(context.adapters, line_of(issuer, id_.receiver), id_.number, TAKEN)
    if answer.is_taken and settings_of(context.issuer, id_.receiver).confirmed_by == "event":
        confirm(context, id_.number, "its webhook took the event", id_.receiver)
    return answer


def event_id(issuer: str, id_: DeliveryId) -> str:
    """Return the id of the event of a delivery, the same whenever it is posted."""
    return f"{issuer}.{id_.receiver}.{id_.number:06d}"


def _note_attempt(context: IssuerContext, receiver: str, number: int, answer: Answer) -> None:
    """Keep why a receiver was not reached, and from when it is tried again; or that it was."""
    line = line_of(context.issuer.issuer, receiver)

    def work(act: Act) -> None:
        [delivery] = read_handed(act.connection, line, line.table.c.number == number)
        failed = {} if answer.is_taken else _failed(context.adapters.now(), answer, delivery)
        act.update(
            line.table,
            {**line.whose, "number": number},
            **{"tries": 0, **dict.fromkeys(HandoverTrouble._fields[1:]), **failed},
        )

    enter(context.adapters, line.issuer, "delivery tried", work)


def _failed(now: datetime, answer: Answer, delivery: Handed[Delivery]) -> dict[str, Any]:
    """Return what is kept of an attempt that failed: HandoverTrouble."""
    earlier = trouble_of(delivery)
    tries = 1 + (earlier.tries if earlier else 0)
    wait = min(FIRST_WAIT * 2 ** min(tries - 1, DOUBLINGS), LONGEST_WAIT)
    since = earlier.failing_since if earlier else now
    not_before = _later(now + wait, answer.not_before)
    return HandoverTrouble(tries, answer.problem, since, now, not_before)._asdict()


def _later(moment: datetime, other: datetime | None) -> datetime:
    return moment if other is None else max(moment, other)
