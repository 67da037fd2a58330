"""Tell people: what is late and what is over, summaries, and a switch outside that all is well."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from flows.errors import CardlinkError
from flows.extensions.alerts.addresses import HEARTBEAT, known_addresses
from flows.extensions.alerts.channels import open_channels, ping
from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.alerts.notices import (
    Channel,
    NoChannelError,
    Sending,
    open_notices,
    require_channels,
    write_notice,
)
from flows.extensions.alerts.settings import channels_of
from flows.extensions.alerts.summaries import MORNING, NIGHT, write_summaries
from flows.operations.conditions import Event
from flows.operations.matters import IS_UNTOLD, Matter, matters, read_matters
from flows.reports.business_result import result_sentence
from flows.reports.work_kinds import is_known, kind_named
from flows.runs.context import IssuerContext
from flows.runs.journal import Act, enter
from flows.runs.stored_run import StoredRun
from schemas.database import MATTER

OVER = "over"
ALERT = "alert"
NAMED = 3  # kinds in a title
# kinds of which it is also said what came of the cards of their run
_OF_RESULTS = ("break ", "results ")


def events(context: IssuerContext) -> Iterator[Event]:
    """Yield what people were not told yet, for automations; each is the same event every time."""
    issuer = context.issuer.issuer
    for matter in _untold(context):
        place = "-".join(f"{matter.kind}.{matter.subject}".split())
        labels = {"prefect.resource.name": matter.kind, "issuer": issuer}
        payload = {"kind": matter.kind, "subject": matter.subject, "text": matter.text}
        payload["then"] = str(kind_named(matter.kind).then) if is_known(matter.kind) else ""
        opened = 2 * matter.number
        resource = f"cardlink.alert.{issuer}.{place}"
        if matter.told is None:
            yield Event("alert.opened", resource, opened, labels, payload)
        if matter.ended is not None:
            yield Event("alert.closed", resource, opened + 1, labels, payload)


def after_watch(context: IssuerContext) -> list[str]:
    """Write the metrics, and tell people what is new; return the titles of sent summaries."""
    write_metrics(context)
    known = known_addresses()
    heartbeat = known.pop(HEARTBEAT, "").replace("{issuer}", context.issuer.issuer)
    return tell(context, open_channels(known), partial(ping, heartbeat) if heartbeat else None)


def tell(
    context: IssuerContext,
    channels: Sequence[Channel],
    ping: Callable[[], None] | None = None,
) -> list[str]:
    """Send what was not sent yet, then ping the switch outside; return the titles of summaries that
    are with everybody now.

    What does not work is noted for the news of the next watch, and raises nothing.
    """
    sending = Sending(context, channels)
    settings = channels_of(context.issuer)
    receivers = {NIGHT: settings.nights, MORNING: settings.mornings}
    _note_unknown(context, sending, channels)
    write_alerts(context)
    write_summaries(context)
    titles = []
    for notice in open_notices(context.adapters, context.issuer.issuer):
        is_summary = notice.kind in receivers
        if sending.send(notice, receivers.get(notice.kind, settings.alerts)) and is_summary:
            titles.append(notice.title)
    if ping is not None:
        _ping(sending, ping)
    sending.close()
    return titles


def write_alerts(context: IssuerContext) -> None:
    """Write one notice of all that is late and was not told, and one of all that is over."""
    untold = _untold(context)
    if not untold:
        return
    issuer = context.issuer.issuer
    now = context.adapters.now()
    texts = {matter.number: _text(context, matter) for matter in untold}

    def act(act: Act) -> None:
        current = read_matters(act.connection, issuer, IS_UNTOLD)
        still = [matter for matter in current if matter in untold]  # another watch may be first
        late = [matter for matter in still if matter.told is None]
        over = [matter for matter in still if matter.ended is not None]
        if late:
            text = "\n\n".join(texts[matter.number] for matter in late)
            write_notice(act.connection, issuer, ALERT, now, _title(issuer, late), text)
        if over:
            text = "\n\n".join(f"Resolved: {matter.text}" for matter in over)
            title = _title(issuer, over, "resolved: ")
            write_notice(act.connection, issuer, OVER, now, title, text)
        for matter in still:
            end = {"end_told": now} if matter.ended is not None else {}
            act.update(MATTER, {"number": matter.number}, told=matter.told or now, **end)

    enter(context.adapters, issuer, "told", act)


def _untold(context: IssuerContext) -> list[Matter]:
    return matters(context.adapters, context.issuer.issuer, IS_UNTOLD)


def _title(issuer: str, about: Sequence[Matter], before: str = "") -> str:
    kinds = list(dict.fromkeys(matter.kind for matter in about))
    more = f" and {len(kinds) - NAMED} more" if len(kinds) > NAMED else ""
    return f"cardlink {issuer}: {before}{', '.join(kinds[:NAMED])}{more}"


def _text(context: IssuerContext, matter: Matter) -> str:
    """Return what people are told of a matter, and what is to be done about it."""
    parts = [matter.text]
    if matter.run and matter.kind.startswith(_OF_RESULTS):
        with suppress(CardlinkError):  # whoever needs the run meets what is unreadable
            parts.append(result_sentence(StoredRun.by_id(context.adapters, matter.run)))
    if is_known(matter.kind):
        parts.append(str(kind_named(matter.kind).then))
    return " ".join(filter(None, parts))


def _note_unknown(context: IssuerContext, sending: Sending, channels: Sequence[Channel]) -> None:
    try:
        require_channels(context, channels)
    except NoChannelError as error:
        sending.note(error.fields["channel"], "no address is configured")


def _ping(sending: Sending, ping: Callable[[], None]) -> None:
    trouble = ""
    try:
        ping()
    except CardlinkError as error:
        trouble = str(error.fields["trouble"])
    sending.note(HEARTBEAT, trouble)
