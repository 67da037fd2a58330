"""Tell people: alerts as they open and close, summaries, and a switch outside that all is well."""

from collections.abc import Callable, Iterable, Sequence

from flows.errors import CardlinkError
from flows.operations.alert_history import Change, record_notified
from flows.operations.alert_kinds import alert_kinds
from flows.operations.summaries import MORNING, record_sent, write_summaries
from flows.runs.context import IssuerContext
from flows.runs.notices import Channel, NoChannelError, Notice, Sending, require_channels

HEARTBEAT = "heartbeat"


def tell(
    context: IssuerContext,
    changes: Iterable[Change],
    channels: Sequence[Channel],
    ping: Callable[[], None] | None = None,
) -> list[str]:
    """Send what was not sent yet, then ping the switch outside; return the titles of summaries that
    are with everybody now.

    What does not work is noted for the alert of the next watch, and raises nothing.
    """
    sending = Sending(context, channels)
    settings = context.issuer.channels
    _note_unknown(context, sending, channels)
    for change in changes:
        if sending.send(alert_notice(change), settings.alerts):
            record_notified(context, change)
    titles = []
    for summary in write_summaries(context):
        receivers = settings.mornings if summary.kind == MORNING else settings.nights
        if sending.send(summary.notice, receivers):
            record_sent(context, summary)
            titles.append(summary.title)
    if ping is not None:
        _ping(sending, ping)
    sending.close()
    return titles


def alert_notice(change: Change) -> Notice:
    """Return what people are told of an alert that opens or closes."""
    alert = change.alert
    kind = alert_kinds()[alert.kind]
    place = f"alerts/{alert.place}/{change.number:06d}"
    if change.opened:
        text = f"{alert.text}. {kind.then}"
        return Notice(place, f"cardlink {alert.issuer}: {kind.title}", text)
    text = f"No longer true: {alert.text}."
    return Notice(place, f"cardlink {alert.issuer}: over - {kind.title}", text)


def _note_unknown(context: IssuerContext, sending: Sending, channels: Sequence[Channel]) -> None:
    try:
        require_channels(context, channels)
    except NoChannelError as error:
        sending.note(error.fields["channel"], "nobody has an address of it")


def _ping(sending: Sending, ping: Callable[[], None]) -> None:
    trouble = ""
    try:
        ping()
    except CardlinkError as error:
        trouble = str(error.fields["trouble"])
    sending.note(HEARTBEAT, trouble)
