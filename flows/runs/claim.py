"""The claim on a run: of two processes one works and the other is refused.

It is a chain of immutable leases. It is renewed during the work and given back however the work
ends. What killed processes left is cleaned up here. A claim whose process is provably gone is free
at once; one of another machine or container when it runs out.

The claim saves work; the create-only commit is what keeps a run right. Taking, renewing, returning
and taking over are the same act, creating the next number, so no object is deleted or overwritten.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import NamedTuple, Self

from pydantic import AwareDatetime

from flows.errors import CardlinkError, TryAgainError
from flows.runs.adapters import Adapters
from flows.runs.chains import CONTESTS, add_next, last_record
from flows.runs.documents import read_document
from flows.runs.keys import link
from flows.runs.process import is_gone, process_name
from flows.runs.store import Cleaner, Store
from flows.steps import RUN, WHY, Sentence, Step
from flows.stopping import uninterrupted
from schemas.manifest import Document

CLAIM = timedelta(minutes=3)  # how long a dead run keeps its rerun waiting
BEAT = 60.0  # seconds; two beats may fail before the claim runs out
OLD = timedelta(minutes=15)  # no write takes as long: the writer of an older leftover is dead


class ClaimedError(TryAgainError):
    """Another process is working on it."""

    message = "{holder} has claimed {prefix} until {until}."
    next_step = Sentence(
        "Let it finish. If it is dead: {same_command} later, or {take_over}.",
        take_over=Step("mend take-over", RUN, reason=WHY),
    )


class LeaseLostError(TryAgainError):
    """Another process took the claim over while we held it."""

    message = "The claim {prefix} was taken over while this command was working."
    next_step = (
        "Nothing is lost: both publish the same. "
        "Run {same_command} again when the other has finished."
    )


class _Claim(Document):
    """One link of the chain; `until` equals `since` where the claim was given back."""

    holder: str
    process: str  # "" where that is not known
    since: AwareDatetime
    until: AwareDatetime

    @classmethod
    def of(cls, name: str, now: datetime, ttl: timedelta) -> Self:
        """Return the link by which this process claims from `now` on, under `name`."""
        process = process_name(os.getpid())
        return cls(holder=name, process=process, since=now, until=now + ttl)

    @property
    def is_given_back(self) -> bool:
        """Whether the link ends the claim."""
        return self.until <= self.since

    def holds(self, now: datetime) -> bool:
        """Return whether the claim counts at `now`.

        It does where it has not run out, and its process is not gone. A `since` further ahead of
        `now` than the claim was meant to last was written by a clock that has since been set back:
        such a claim would block for as long as the clock was off, so it does not count.
        """
        in_time = self.since - (self.until - self.since) < now < self.until
        return in_time and not is_gone(self.process)


@dataclass
class Lease:
    """A claim held: `holder` until `until`, the link `number` of the chain under `prefix`."""

    store: Store
    prefix: str
    holder: str
    ttl: timedelta
    number: int
    until: datetime
    lost: bool = False

    @classmethod
    def take(cls, store: Store, prefix: str, holder: str, now: datetime, ttl: timedelta) -> Self:
        """Claim `prefix` (ends in '/') for `ttl`.

        Raises ClaimedError where a claim holds, also one of the same name.
        """
        for _ in range(CONTESTS):
            number, last = last_record(store, prefix, _Claim)
            if last and last.holds(now):
                break
            if add_next(store, prefix, number + 1, _Claim.of(holder, now, ttl)):
                return cls(store, prefix, holder, ttl, number + 1, now + ttl)
        if last is None:
            raise ClaimedError(holder="Another", prefix=prefix, until="now")
        until = last.until.isoformat(timespec="seconds")
        raise ClaimedError(holder=last.holder, prefix=prefix, until=until)

    def renew(self, now: datetime) -> None:
        """Extend the claim to `now` + `ttl`; LeaseLostError where another took it over."""
        renewed = _Claim.of(self.holder, now, self.ttl)
        self.lost = not add_next(self.store, self.prefix, self.number + 1, renewed)
        self.check()
        self.number += 1
        self.until = renewed.until

    def check(self) -> None:
        """Raise LeaseLostError where another has taken the claim over.

        Working on would only cost time.
        """
        if self.lost:
            raise LeaseLostError(prefix=self.prefix)

    def keep(self, now: Callable[[], datetime], beat: float, done: Event) -> None:
        """Renew the claim every `beat` seconds until `done`.

        One block may take longer than a claim lasts.
        """
        while not self.lost and not done.wait(beat):
            # where the store is not available the next beat tries again
            with suppress(CardlinkError):
                self.renew(now())


class ClaimHolder(NamedTuple):
    """Who holds a claim, since when without a break, and until when if nobody renews it."""

    holder: str
    since: datetime
    until: datetime


def holder_of(store: Store, prefix: str, now: datetime) -> ClaimHolder | None:
    """Return who holds the claim on `prefix`, None where nobody does."""
    number, last = last_record(store, prefix, _Claim)
    if last is None or not last.holds(now):
        return None
    return ClaimHolder(last.holder, _held_since(store, prefix, number, last), last.until)


def was_claimed(store: Store, prefix: str) -> bool:
    """Return whether anybody ever claimed `prefix`."""
    return last_record(store, prefix, _Claim)[1] is not None


def _held_since(store: Store, prefix: str, number: int, last: _Claim) -> datetime:
    """Return since when the holder of the last link has held the claim without a break."""
    since = last.since
    for earlier in range(number - 1, 0, -1):
        before = read_document(store, link(prefix, earlier), _Claim)
        if before is None or before.holder != last.holder or before.is_given_back:
            break
        since = before.since
    return since


def end(store: Store, prefix: str, by: str, now: datetime, *, only: str = "") -> None:
    """End a claim on `prefix` (`only`: of that holder), alive or not.

    Raises ClaimedError where it is renewed faster.
    """
    for _ in range(CONTESTS):
        number, last = last_record(store, prefix, _Claim)
        if last is None or not last.holds(now) or only not in ("", last.holder):
            return
        if add_next(store, prefix, number + 1, _Claim(holder=by, process="", since=now, until=now)):
            return
    raise ClaimedError(holder="Another", prefix=prefix, until="now")


@contextmanager
def claimed(
    adapters: Adapters, prefix: str, *, ttl: timedelta = CLAIM, beat: float = BEAT
) -> Iterator[Lease]:
    """Hold the claim on `prefix` for a `with` block, renewed by a thread.

    Raises ClaimedError, which names who has it.
    """
    is_refused = False
    done = Event()
    thread: Thread | None = None
    try:
        try:
            # an interrupted request could be carried out after we have looked
            with uninterrupted():
                lease = Lease.take(adapters.store, prefix, adapters.actor, adapters.now(), ttl)
                thread = Thread(
                    target=lease.keep, args=(adapters.now, beat, done), name="claim", daemon=True
                )
                thread.start()
        except ClaimedError:
            is_refused = True
            raise
        yield lease
    finally:
        with uninterrupted():
            done.set()
            if thread and thread.is_alive():
                thread.join()
            if not is_refused:  # also where a signal came just after the claim was written
                # the error that ended the work counts; the claim runs out by itself
                with suppress(CardlinkError):
                    end(adapters.store, prefix, adapters.actor, adapters.now(), only=adapters.actor)


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
