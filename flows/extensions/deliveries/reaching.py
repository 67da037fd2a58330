"""Hand deliveries over to their receivers: files, what says that they are all there, an event.

The event may be posted more than once, always with the same id: a process can die between the
answer and the record of it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from flows.errors import CardlinkError
from flows.extensions.deliveries.delivered import (
    delivery_folder,
    line_of,
)
from flows.extensions.deliveries.delivery import Delivered, deliver, links_now
from flows.extensions.deliveries.formats import (
    EVENT,
    Delivery,
    DeliveryEvent,
    DeliveryNotice,
)
from flows.extensions.deliveries.handover import (
    IS_THERE,
    MARKER,
    Handed,
    Trouble,
    bring,
    last_handed,
    note,
    place_lines,
)
from flows.extensions.deliveries.receivers import confirm, receivers_of
from flows.extensions.deliveries.settings import AFTER_INGEST, receivers_in, settings_of
from flows.extensions.deliveries.webhook import Answer, announcer_of
from flows.install import Scheduled
from flows.operations.conditions import Event
from flows.runs.context import IssuerContext
from flows.runs.documents import parsed
from flows.runs.identity import canonical
from flows.runs.store import read, read_if_stored
from schemas.issuer import Issuer

TAKEN = "taken"  # its webhook took the event
EMITTED = "emitted"  # Prefect was told


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
    """Bring the last delivery to its receiver, as far as that is not done; it has everything since
    the last confirmed one.

    Return why that cannot be done, "" where it is. Nothing for a receiver without a table.
    """
    settings = receivers_in(context.issuer).get(receiver)
    if settings is None:
        return ""
    line = line_of(context.issuer.issuer, receiver)
    announce = partial(_announced, context, receiver)
    return bring(context, line, settings, settings.done_marker, announce, at_once=at_once)


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
        key = delivery_folder(issuer, last.number, receiver) + MARKER
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


def scheduled(issuer: Issuer) -> Scheduled:
    """Return the deployments of receivers that have a schedule of their own."""
    crons = {name: table.cron for name, table in receivers_in(issuer).items() if table.cron}
    variables = {
        name: {"CARDLINK_RECEIVER": name, "CARDLINK_CRON": cron} for name, cron in crons.items()
    }
    return Scheduled("deliver", "prefect-receiver.yaml", variables)


def check_receiver(context: IssuerContext, receiver: str) -> list[str]:
    """Return what is fine about handing files over to a receiver; raises what is not."""
    lines = place_lines(context, settings_of(context.issuer, receiver))
    if announcer_of(context, receiver) is not None:
        lines.append("the secret of its webhook is as Standard Webhooks has it")
    return lines


def troubles(context: IssuerContext) -> Iterator[tuple[str, Trouble]]:
    """Yield the receivers that have not got their last delivery, and why."""
    for receiver in receivers_of(context):
        last = last_handed(context.adapters, line_of(context.issuer.issuer, receiver))
        if last is not None and last.trouble is not None:
            yield receiver, last.trouble


def _announced(context: IssuerContext, receiver: str, last: Handed[Delivery]) -> Answer:
    """Post the event of a delivery, until it is taken."""
    announcer = announcer_of(context, receiver)
    if announcer is None:
        return IS_THERE
    line = line_of(context.issuer.issuer, receiver)
    answer = IS_THERE
    if last.row["taken_at"] is None:
        notice = read(context.adapters.store, line.folder(last.number) + MARKER)
        data = DeliveryNotice.model_validate_json(notice)
        event = DeliveryEvent(timestamp=last.record.at, data=data)
        # the same id whenever it is posted
        event_id = f"{line.issuer}.{receiver}.{last.number:06d}"
        answer = announcer.announce(event_id, canonical(event))
        if answer.is_taken:
            note(context.adapters, line, last.number, TAKEN)
    if answer.is_taken and settings_of(context.issuer, receiver).confirmed_by == "event":
        confirm(context, last.number, "its webhook took the event", receiver)
    return answer
