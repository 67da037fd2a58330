"""Notices: what people are told, once on each channel that wants it.

A notice is a row before anything is sent. Who begins to send it on a channel says so in the row of
its sending first, so two processes do not send twice; where one was killed between both, the next
sends again after a pause, under the same id. A channel that is down is tried again ever more rarely
for a day; meanwhile it is news, of which the other channels are told.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from flows.errors import CardlinkError, OperatorError
from flows.extensions.alerts.settings import channels_of
from flows.extensions.alerts.tables import CHANNEL_TROUBLE, NOTICE, SENDING
from flows.redaction import redact
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext

T = TypeVar("T")
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
    """A row of the table `notice`."""

    number: int
    kind: str
    at: datetime
    title: str
    text: str


class Channel(Protocol):
    """A way to people: a mail server, a chat, a pager, a webhook."""

    name: str

    def send(self, notice_id: str, title: str, text: str) -> None:
        """Send a notice; its id stays the same when it is sent again. ChannelError."""

    def check(self) -> str:
        """Return what works of it without sending anything. Raises ChannelError."""


def write_notice(
    connection: Connection,
    issuer: str,
    kind: str,
    moment: datetime,
    title: str,
    text: str,
    **more: Any,
) -> None:
    """Write what people are told within an act."""
    last = select(func.max(NOTICE.c.number)).where(NOTICE.c.issuer == issuer)
    number = (connection.execute(last).scalar() or 0) + 1
    values = {"kind": kind, "at": moment, "title": redact(title), "text": redact(text), **more}
    connection.execute(insert(NOTICE).values(issuer=issuer, number=number, **values))


def open_notices(adapters: Adapters, issuer: str) -> list[Notice]:
    """Return the notices of which something is left to send, the oldest first."""
    columns = (NOTICE.c[name] for name in Notice._fields)
    query = select(*columns).where(NOTICE.c.issuer == issuer, NOTICE.c.done.is_(None))
    with adapters.database.snapshot() as connection:
        return [Notice(*row) for row in connection.execute(query.order_by(NOTICE.c.number))]


def failing_channels(adapters: Adapters, issuer: str) -> Mapping[str, str]:
    """Return the channels that took nothing when last tried, and why."""
    columns = (CHANNEL_TROUBLE.c.channel, CHANNEL_TROUBLE.c.trouble)
    query = select(*columns).where(CHANNEL_TROUBLE.c.issuer == issuer)
    with adapters.database.snapshot() as connection:
        return dict(connection.execute(query).tuples().all())


def require_channels(context: IssuerContext, channels: Sequence[Channel]) -> None:
    """Raise NoChannelError for a channel that `[channels]` names and nobody has an address of."""
    settings = channels_of(context.issuer)
    known = [channel.name for channel in channels]
    for name in (*(settings.alerts or ()), *settings.nights, *settings.mornings):
        if name not in known:
            raise NoChannelError(channel=name, known=", ".join(known) or "it has none")


class Sending:
    """The sending of one look: what does not work is not tried again in it."""

    def __init__(self, context: IssuerContext, channels: Sequence[Channel]) -> None:
        self._adapters = context.adapters
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
        is_done = all(sent)
        if is_done:
            key = {"number": notice.number}
            self._write(lambda connection: self._set(connection, NOTICE, key, done=self._now()))
        return is_done

    def note(self, channel: str, trouble: str) -> None:
        """Note whether a channel works (""), or what its trouble is."""
        if trouble:
            self._trouble[channel] = redact(trouble)
        else:
            self._worked.add(channel)

    def close(self) -> None:
        """Keep which channels fail, for the news of the next look."""
        before = failing_channels(self._adapters, self._issuer)
        failing = {name: before[name] for name in before if self._still_fails(name)}
        failing |= self._trouble
        if failing != before:
            self._write(lambda connection: _keep(connection, self._issuer, failing))

    def _still_fails(self, name: str) -> bool:
        """Return whether a channel that failed before has something to send, or does not work."""
        channel = self._channels.get(name)
        if channel is None or name in self._worked:
            return False
        if name not in self._waiting:
            with suppress(CardlinkError):
                channel.check()
                return False
        return True

    def _send_to(self, name: str, notice: Notice) -> bool:
        channel = self._channels.get(name)
        if channel is None:  # a check and news say so
            return True
        history = self._history(notice.number, name)
        if history.is_over(self._now()):
            return True
        if name in self._trouble or not self._begin(notice.number, name):
            self._waiting.add(name)
            return False
        try:
            channel.send(f"{self._issuer}/notices/{notice.number}", notice.title, notice.text)
        except CardlinkError as error:
            self.note(name, str(error.fields.get("trouble") or type(error).__name__))
            return False
        key = {"number": notice.number, "channel": name}
        self._write(lambda connection: self._set(connection, SENDING, key, sent=self._now()))
        self.note(name, "")
        return True

    def _begin(self, number: int, channel: str) -> bool:
        """Return whether a notice may be sent now, by this process alone."""
        now = self._now()
        key = {"number": number, "channel": channel}

        def begin(connection: Connection) -> bool:
            history = _read_history(connection, self._issuer, number, channel)
            if not history.may_begin(now):
                return False
            values = {"attempts": history.attempts + 1, "last": now}
            if not self._set(connection, SENDING, key, **values):
                values |= {**key, "first": now}
                connection.execute(insert(SENDING).values(issuer=self._issuer, **values))
            return True

        return self._write(begin)

    def _history(self, number: int, channel: str) -> "_History":
        with self._adapters.database.snapshot() as connection:
            return _read_history(connection, self._issuer, number, channel)

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Do an act that is in no journal: what was sent can be forgotten with a database."""
        return self._adapters.database.act(self._issuer, work)

    def _set(
        self, connection: Connection, table: Table, key: Mapping[str, Any], **values: Any
    ) -> bool:
        """Set columns of the row of this key; return whether it is there."""
        row = [table.c[name] == value for name, value in key.items()]
        changed = update(table).where(table.c.issuer == self._issuer, *row).values(**values)
        return connection.execute(changed).rowcount > 0


def _keep(connection: Connection, issuer: str, failing: Mapping[str, str]) -> None:
    """Write which channels fail, in the place of those before."""
    connection.execute(delete(CHANNEL_TROUBLE).where(CHANNEL_TROUBLE.c.issuer == issuer))
    for name, trouble in failing.items():
        row = {"issuer": issuer, "channel": name, "trouble": trouble}
        connection.execute(insert(CHANNEL_TROUBLE).values(**row))


class _History(NamedTuple):
    """What was sent of a notice on a channel."""

    attempts: int = 0
    first: datetime | None = None
    last: datetime | None = None
    sent: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Return whether the channel has it, or has refused it for a day."""
        return self.sent is not None or (self.first is not None and now - self.first > EXPIRED)

    def may_begin(self, now: datetime) -> bool:
        """Return whether it is time to try, again where it was tried."""
        pause = min(PAUSE * 2 ** max(0, self.attempts - 1), LONGEST_PAUSE)
        return self.last is None or now - self.last >= pause


def _read_history(connection: Connection, issuer: str, number: int, channel: str) -> _History:
    columns = (SENDING.c[name] for name in _History._fields)
    row = (SENDING.c.issuer == issuer, SENDING.c.number == number, SENDING.c.channel == channel)
    known = connection.execute(select(*columns).where(*row)).first()
    return _History(*known) if known else _History()
