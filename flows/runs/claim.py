"""The claim on a run: of two processes one works and the other is refused.

It is a lease in the database, renewed during the work and given back however the work ends. What
killed processes left is cleaned up here. A claim whose process is provably gone is free at once;
one of another machine or container when it runs out.

The claim saves work. What keeps a run right is its **epoch**, which each new holder raises: who
holds an earlier one commits nothing any more.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, insert, select, update

from flows.database.connection import Transactions
from flows.errors import CardlinkError, TryAgainError
from flows.runs.adapters import Adapters
from flows.runs.keys import keys_of
from flows.runs.process import is_gone, process_name
from flows.runs.store import Cleaner
from flows.steps import RUN, WHY, Sentence, Step
from flows.stopping import uninterrupted
from schemas.database import LEASE

CLAIM = timedelta(minutes=3)  # how long a dead run keeps its rerun waiting
BEAT = 60.0  # seconds; two beats may fail before the claim runs out
OLD = timedelta(minutes=15)  # no write takes as long: the writer of an older leftover is dead


class ClaimedError(TryAgainError):
    """Another process is working on it."""

    message = "{holder} has claimed {subject} until {until}."
    next_step = Sentence(
        "Let it finish. If it is dead: {same_command} later, or {take_over}.",
        take_over=Step("mend take-over", RUN, reason=WHY),
    )


class LeaseLostError(TryAgainError):
    """Another process took the claim over while we held it."""

    message = "The claim on {subject} was taken over while this command was working."
    next_step = (
        "Nothing was committed by this command. "
        "Run {same_command} again when the other has finished."
    )


class Subject(NamedTuple):
    """What can be claimed: a run, or the check of an issuer's links."""

    database: Transactions
    issuer: str
    name: str

    @property
    def is_it(self) -> ColumnElement[bool]:
        """The condition for its row in the table `lease`."""
        return (LEASE.c.issuer == self.issuer) & (LEASE.c.subject == self.name)

    def last(self) -> "_Claim | None":
        """Return its last claim, None where nobody ever claimed it."""
        with self.database.snapshot() as connection:
            return last_claim(connection, self)


def work_on(adapters: Adapters, run: str) -> Subject:
    """Return the work on a run, as it can be claimed."""
    return Subject(adapters.database, keys_of(run).run.issuer, run)


class _Claim(NamedTuple):
    """A row of the table `lease`."""

    epoch: int
    holder: str
    process: str
    since: datetime
    renewed: datetime
    until: datetime

    def holds(self, now: datetime) -> bool:
        """Return whether the claim counts at `now`.

        It does where it has not run out, and its process is not gone. One that was renewed further
        ahead of `now` than the claim was meant to last was written by a clock that has since been
        set back: such a claim would block for as long as the clock was off, so it does not count.
        """
        in_time = self.renewed - (self.until - self.renewed) < now < self.until
        return in_time and not is_gone(self.process)


def last_claim(connection: Connection, subject: Subject) -> _Claim | None:
    """Return the last claim on a subject, None where nobody ever claimed it."""
    columns = [LEASE.c[name] for name in _Claim._fields]
    row = connection.execute(select(*columns).where(subject.is_it)).first()
    return _Claim(*row) if row is not None else None


def refuse_claimed(connection: Connection, subject: Subject, now: datetime) -> _Claim | None:
    """Raise ClaimedError where a claim holds, also one of the same name; else return the last."""
    last = last_claim(connection, subject)
    if last is not None and last.holds(now):
        until = last.until.isoformat(timespec="seconds")
        raise ClaimedError(holder=last.holder, subject=subject.name, until=until)
    return last


@dataclass
class Lease:
    """A claim held: `holder` until `until`, as the `epoch` of its subject."""

    subject: Subject
    holder: str
    ttl: timedelta
    epoch: int
    until: datetime
    lost: bool = False

    @classmethod
    def take(cls, subject: Subject, holder: str, now: datetime, ttl: timedelta) -> Self:
        """Claim a subject for `ttl`; ClaimedError where a claim holds."""
        values = {
            "holder": holder,
            "process": process_name(os.getpid()),
            "since": now,
            "renewed": now,
            "until": now + ttl,
        }

        def take(connection: Connection) -> int:
            last = refuse_claimed(connection, subject, now)
            if last is None:
                first = {**values, "issuer": subject.issuer, "subject": subject.name, "epoch": 1}
                connection.execute(insert(LEASE).values(first))
                return 1
            epoch = last.epoch + 1
            connection.execute(update(LEASE).where(subject.is_it).values(**values, epoch=epoch))
            return epoch

        epoch = subject.database.act(subject.issuer, take)
        return cls(subject, holder, ttl, epoch, now + ttl)

    def renew(self, now: datetime) -> None:
        """Extend the claim to `now` + `ttl`; LeaseLostError where another took it over."""
        self._set(now, now + self.ttl)
        self.check()
        self.until = now + self.ttl

    def give_back(self, now: datetime) -> None:
        """End the claim, if it is still ours."""
        self._set(now, now)

    def _set(self, now: datetime, until: datetime) -> None:
        is_ours = self.subject.is_it & (LEASE.c.epoch == self.epoch)
        extended = update(LEASE).where(is_ours).values(renewed=now, until=until)

        def extend(connection: Connection) -> bool:
            return connection.execute(extended).rowcount > 0

        self.lost = not self.subject.database.act(self.subject.issuer, extend)

    def check(self) -> None:
        """Raise LeaseLostError where another has taken the claim over.

        Working on would only cost time.
        """
        if self.lost:
            raise LeaseLostError(subject=self.subject.name)

    def check_epoch(self, connection: Connection) -> None:
        """Raise LeaseLostError where another has taken it over, as a transaction sees it."""
        last = last_claim(connection, self.subject)
        self.lost = last is None or last.epoch != self.epoch
        self.check()

    def keep(self, now: Callable[[], datetime], beat: float, done: Event) -> None:
        """Renew the claim every `beat` seconds until `done`.

        One block may take longer than a claim lasts.
        """
        while not self.lost and not done.wait(beat):
            # where the database is not available the next beat tries again
            with suppress(CardlinkError):
                self.renew(now())


class ClaimHolder(NamedTuple):
    """Who holds a claim, since when, and until when if nobody renews it."""

    holder: str
    since: datetime
    until: datetime


def holder_of(subject: Subject, now: datetime) -> ClaimHolder | None:
    """Return who holds the claim on a subject, None where nobody does."""
    last = subject.last()
    if last is None or not last.holds(now):
        return None
    return ClaimHolder(last.holder, last.since, last.until)


def end(subject: Subject, by: str, now: datetime) -> None:
    """End a claim in the name of another, alive or not: its holder has lost it."""
    ended = {"holder": by, "process": "", "renewed": now, "until": now}
    changed = update(LEASE).where(subject.is_it).values(**ended, epoch=LEASE.c.epoch + 1)
    subject.database.act(subject.issuer, lambda connection: connection.execute(changed).close())


@contextmanager
def claimed(
    adapters: Adapters, subject: Subject, *, ttl: timedelta = CLAIM, beat: float = BEAT
) -> Iterator[Lease]:
    """Hold the claim on a subject for a `with` block, renewed by a thread.

    Raises ClaimedError, which names who has it.
    """
    lease: Lease | None = None
    done = Event()
    thread: Thread | None = None
    try:
        # a stop in between would leave a claim that nobody gives back
        with uninterrupted():
            lease = Lease.take(subject, adapters.actor, adapters.now(), ttl)
            thread = Thread(
                target=lease.keep, args=(adapters.now, beat, done), name="claim", daemon=True
            )
            thread.start()
        yield lease
    finally:
        with uninterrupted():
            done.set()
            if thread and thread.is_alive():
                thread.join()
            if lease is not None:
                # the error that ended the work counts; the claim runs out by itself
                with suppress(CardlinkError):
                    lease.give_back(adapters.now())


def clean_up(adapters: Adapters, *prefixes: str) -> int:
    """Remove what killed writers left under prefixes that are about to be worked on.

    Returns how many leftovers were removed. Where the store may not list or abort uploads they
    stay: they are not objects, and its own rules remove them.
    """
    if not isinstance(adapters.store, Cleaner):
        return 0
    removed = 0
    for prefix in prefixes:
        with suppress(CardlinkError):
            for leftover in adapters.store.leftovers(prefix, adapters.now() - OLD):
                adapters.store.discard(leftover)
                removed += 1
    return removed
