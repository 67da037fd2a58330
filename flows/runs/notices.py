"""Notices: what people are told, once on each channel that wants it.

A notice has a place below its issuer, such as `summaries/000001`. What was sent is an object beside
it: `<place>.<channel>.001` says that somebody began to send, `<place>.<channel>.sent` that the
channel has it. Only who creates the first may send, so two processes do not send twice; where one
was killed between both, the next sends again after a pause, under the same id. A channel that is
down is tried again ever more rarely for a day; meanwhile `channels/failing.json` says so, from
which an alert is made that the other channels get.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from flows.errors import CardlinkError, OperatorError
from flows.redaction import redact
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.identity import canonical
from flows.runs.store import Store

PAUSE = timedelta(minutes=10)  # until a channel is tried again, doubled each time
LONGEST_PAUSE = timedelta(hours=2)
EXPIRED = timedelta(days=1)  # a notice is news for so long


class ChannelError(OperatorError):
    """A channel does not take notifications."""

    message = "The channel {channel} takes no notifications: {trouble}."
    next_step = (
        "Correct its address where it is given (CARDLINK_CHANNELS, "
        "CARDLINK_HEARTBEAT_URL), or have its server looked at; what was not sent is sent for a "
        "day once it works."
    )


class NoChannelError(OperatorError):
    """`[channels]` names a channel that no secret names."""

    message = "[channels] names {channel}, of which this process has no address ({known})."
    next_step = "Name it in CARDLINK_CHANNELS, or in [channels] one that is there."


class Notice(NamedTuple):
    """What people are told: its place below the issuer, a title and a text without any secret."""

    place: str
    title: str
    text: str


class Event(NamedTuple):
    """What an automation may wait for: its name, of what it is, and which of that in order.

    `labels`: what else its resource has; nothing of it is about a person.
    """

    name: str
    resource: str
    number: int
    labels: Mapping[str, str]
    payload: Mapping[str, Any]


class Channel(Protocol):
    """A way to people: a mail server, a chat, a pager, a webhook."""

    name: str

    def send(self, notice_id: str, title: str, text: str) -> None:
        """Send a notice; its id stays the same when it is sent again. ChannelError."""

    def check(self) -> str:
        """Return what works of it without sending anything. Raises ChannelError."""


class Sending:
    """The sending of one look: what does not work is not tried again in it."""

    def __init__(self, context: IssuerContext, channels: Sequence[Channel]) -> None:
        self._store = context.adapters.store
        self._issuer = context.issuer.issuer
        self._now = context.adapters.now
        self._channels = {channel.name: channel for channel in channels}
        self._trouble: dict[str, str] = {}
        self._worked: set[str] = set()
        self._waiting: set[str] = set()  # channels that are tried again later

    def send(self, notice: Notice, receivers: Collection[str] | None) -> bool:
        """Send a notice to the channels that want it, None: to all.

        Returns whether nothing is left to do: each has it, or it is no news any more.
        """
        names = self._channels if receivers is None else receivers
        sent = [self._send_to(name, notice) for name in names]
        return all(sent)

    def note(self, channel: str, trouble: str) -> None:
        """Note whether a channel works (""), or what its trouble is."""
        if trouble:
            self._trouble[channel] = trouble
        else:
            self._worked.add(channel)

    def close(self) -> None:
        """Store which channels fail, for the alert of the next look."""
        key = _failing_key(self._issuer)
        before = read_facts(self._store, key) or {}
        now = self._now().isoformat()
        kept = self._channels.keys() - self._worked - self._recovered(before)
        failing = {name: fact for name, fact in before.items() if name in kept}
        for name, trouble in self._trouble.items():
            since = (before.get(name) or {}).get("since", now)
            failing[name] = {"since": since, "trouble": redact(trouble)}
        if failing != before:
            self._store.replace(key, [canonical(failing)])

    def _recovered(self, before: Collection[str]) -> set[str]:
        """Return the channels that failed before, have nothing to send, and work again."""
        idle = self._channels.keys() & set(before) - self._waiting - self._trouble.keys()
        recovered = set()
        for name in idle:
            with suppress(CardlinkError):
                self._channels[name].check()
                recovered.add(name)
        return recovered

    def _send_to(self, name: str, notice: Notice) -> bool:
        channel = self._channels.get(name)
        if channel is None:  # a check and an alert say so
            return True
        history = _History.read(self._store, f"{self._issuer}/{notice.place}", name)
        if history.is_over(self._now()):
            return True
        if name in self._trouble or not history.begin(self._store, self._now()):
            self._waiting.add(name)
            return False
        try:
            channel.send(f"{self._issuer}/{notice.place}", notice.title, redact(notice.text))
        except CardlinkError as error:
            self.note(name, str(error.fields.get("trouble") or type(error).__name__))
            return False
        history.end(self._store, self._now())
        self.note(name, "")
        return True


class _History(NamedTuple):
    """What was sent of a notice on a channel."""

    base: str
    attempts: int
    first: datetime | None
    last: datetime | None
    is_sent: bool

    @classmethod
    def read(cls, store: Store, place: str, channel: str) -> "_History":
        """Read it from what is stored beside the notice."""
        base = f"{place}.{channel}."
        endings = [entry.key.removeprefix(base) for entry in store.keys(base)]
        attempts = sum(ending.isdigit() for ending in endings)
        first = _moment(read_facts(store, f"{base}001")) if attempts else None
        last = _moment(read_facts(store, f"{base}{attempts:03d}")) if attempts else None
        return cls(base, attempts, first, last, "sent" in endings)

    def is_over(self, now: datetime) -> bool:
        """Return whether the channel has it, or has refused it for a day."""
        return self.is_sent or (self.first is not None and now - self.first > EXPIRED)

    def begin(self, store: Store, now: datetime) -> bool:
        """Return whether it may be sent now, by this process alone."""
        pause = min(PAUSE * 2 ** max(0, self.attempts - 1), LONGEST_PAUSE)
        if self.last is not None and now - self.last < pause:
            return False
        facts = canonical({"at": now.isoformat()})
        return store.create(f"{self.base}{self.attempts + 1:03d}", facts)

    def end(self, store: Store, now: datetime) -> None:
        """Record that the channel has it."""
        store.create(f"{self.base}sent", canonical({"at": now.isoformat()}))


def failing_channels(context: IssuerContext) -> Mapping[str, str]:
    """Return the channels that took nothing when last tried, and why."""
    facts = read_facts(context.adapters.store, _failing_key(context.issuer.issuer)) or {}
    return {name: fact["trouble"] for name, fact in facts.items() if isinstance(fact, dict)}


def require_channels(context: IssuerContext, channels: Sequence[Channel]) -> None:
    """Raise NoChannelError for a channel that `[channels]` names and nobody has an address of."""
    settings = context.issuer.channels
    known = [channel.name for channel in channels]
    for name in (*(settings.alerts or ()), *settings.nights, *settings.mornings):
        if name not in known:
            raise NoChannelError(channel=name, known=", ".join(known) or "it has none")


def _moment(facts: Mapping[str, Any] | None) -> datetime | None:
    return datetime.fromisoformat(facts["at"]) if facts else None


def _failing_key(issuer: str) -> str:
    return f"{issuer}/channels/failing.json"
