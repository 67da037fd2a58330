"""The claim on a run: a chain of immutable leases, so that of two processes one works and the other is refused.

It is renewed beside the work and given back however the work ends. What killed processes left is cleaned up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import NamedTuple, Protocol, Self, runtime_checkable

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.runs.context import Adapters
from flows.runs.store import ObjectMissingError, Store

_NUMBER = re.compile(r"(\d{6})\.json")
_CONTESTS = 16  # lost races before giving up: each lost one means that another got the claim

CLAIM = timedelta(minutes=3)  # so long a dead run keeps its rerun waiting
BEAT = 60.0  # seconds; two beats may fail before the claim runs out

OLD = timedelta(minutes=15)  # no write takes as long: what is older belongs to nobody alive


class ClaimedError(TryAgainError):
    """Another holder works on it."""

    message = "{holder} has claimed {prefix} until {until}."
    next_step = (
        "Let it finish. If it is dead, the same command takes over after that time (at once: cardlink mend take-over)."
    )


class LeaseLostError(TryAgainError):
    """Another took the claim over while we held it."""

    message = "The claim {prefix} was taken over while this command was working."
    next_step = "Nothing is lost: both publish the same. Run the same command again when the other is done."


class ClaimUnreadableError(OperatorError):
    """A claim that cardlink did not write."""

    message = "The claim {key} cannot be read."
    next_step = "cardlink did not write it: find out what did, remove it, and run the same command again."


class _Claim(BaseModel):
    """One link of the chain; `until` equals `since` where the claim was given back."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    holder: str
    since: AwareDatetime
    until: AwareDatetime

    @property
    def ends(self) -> bool:
        """True where this link gave the claim back."""
        return self.until <= self.since

    def holds(self, now: datetime) -> bool:
        """Tell whether the claim counts at `now`.

        A `since` further ahead of `now` than the claim was meant to last was written by a clock that has since
        been set back: such a claim would block for as long as the clock was off, so it does not count.
        """
        return self.since - (self.until - self.since) < now < self.until


@dataclass
class Lease:
    """A claim held: `holder` until `until`, the link `number` of the chain under `prefix`."""

    store: Store
    prefix: str
    holder: str
    ttl: timedelta
    number: int
    until: datetime

    @classmethod
    def take(cls, store: Store, prefix: str, holder: str, now: datetime, ttl: timedelta) -> Self:
        """Claim `prefix` (ends in '/') for `ttl`; ClaimedError where a claim holds, also one of the same name."""
        for _ in range(_CONTESTS):
            number, last = _latest(store, prefix)
            if last and last.holds(now):
                break
            mine = _Claim(holder=holder, since=now, until=now + ttl)
            if store.create(_key(prefix, number + 1), _bytes(mine)):
                return cls(store, prefix, holder, ttl, number + 1, mine.until)
        who, until = (last.holder, last.until.isoformat(timespec="seconds")) if last else ("Another", "now")
        raise ClaimedError(holder=who, prefix=prefix, until=until)

    def renew(self, now: datetime) -> None:
        """Extend the claim to `now` + `ttl`; LeaseLostError where another took it over."""
        if not self._next(now, now + self.ttl):
            raise LeaseLostError(prefix=self.prefix)

    def release(self, now: datetime) -> None:
        """Give the claim back; nothing happens where another has taken it over already."""
        give_back(self.store, self.prefix, self.holder, now)

    def _next(self, since: datetime, until: datetime) -> bool:
        claim = _Claim(holder=self.holder, since=since, until=until)
        if not self.store.create(_key(self.prefix, self.number + 1), _bytes(claim)):
            return False
        self.number, self.until = self.number + 1, until
        return True


def give_back(store: Store, prefix: str, holder: str, now: datetime) -> None:
    """End whatever claim `holder` has on `prefix`, also one it was stopped from hearing of; else nothing happens."""
    number, last = _latest(store, prefix)
    if last is not None and last.holder == holder and last.holds(now):
        store.create(_key(prefix, number + 1), _bytes(_Claim(holder=holder, since=now, until=now)))


class ClaimHolder(NamedTuple):
    """Who holds a claim, since when without a break, and until when where nobody renews it."""

    holder: str
    since: datetime
    until: datetime


def held(store: Store, prefix: str, now: datetime) -> ClaimHolder | None:
    """Return who holds the claim on `prefix`, None where nobody does."""
    number, last = _latest(store, prefix)
    if last is None or not last.holds(now):
        return None
    first = last
    while (before := _read(store, _key(prefix, number - 1))) and (before.holder, before.ends) == (last.holder, False):
        number, first = number - 1, before
    return ClaimHolder(last.holder, first.since, last.until)


def end(store: Store, prefix: str, by: str, now: datetime) -> None:
    """End whatever claim there is on `prefix`, whoever holds it.

    A holder that still lives hears of it at its next renewal: LeaseLostError. Raises ClaimedError where it is renewed
    faster than it can be ended.
    """
    for _ in range(_CONTESTS):
        number, last = _latest(store, prefix)
        if last is None or not last.holds(now):
            return
        if store.create(_key(prefix, number + 1), _bytes(_Claim(holder=by, since=now, until=now))):
            return
    raise ClaimedError(holder="Another", prefix=prefix, until="now")


def _key(prefix: str, number: int) -> str:
    return f"{prefix}{number:06d}.json"


def _bytes(claim: _Claim) -> bytes:
    return claim.model_dump_json().encode()


def _latest(store: Store, prefix: str) -> tuple[int, _Claim | None]:
    """Return the last link; a listing may be late, so walk on from what it shows."""
    found = (_NUMBER.fullmatch(entry.key.removeprefix(prefix)) for entry in store.keys(prefix, shallow=True))
    number = max((int(match[1]) for match in found if match), default=0)
    last = _read(store, _key(prefix, number)) if number else None
    while (following := _read(store, _key(prefix, number + 1))) is not None:
        number, last = number + 1, following
    return number, last


def _read(store: Store, key: str) -> _Claim | None:
    try:
        with store.open(key) as source:
            return _Claim.model_validate_json(source.read())
    except ObjectMissingError:
        return None
    except ValidationError:
        pass
    raise ClaimUnreadableError(key=key)


class Claim:
    """A claim that is renewed by a thread of its own, since one block may take longer than a claim lasts."""

    def __init__(self, lease: Lease, adapters: Adapters, beat: float) -> None:
        self._lease = lease
        self._context = adapters
        self._beat = beat
        self._done = Event()
        self._lost = Event()
        self._thread = Thread(target=self._renew, name="claim", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise LeaseLostError where another has taken the claim over: two that work only cost time."""
        if self._lost.is_set():
            raise LeaseLostError(prefix=self._lease.prefix)

    def end(self) -> None:
        """End the thread."""
        self._done.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._done.wait(self._beat):
            try:
                self._lease.renew(self._context.now())
            except LeaseLostError:
                self._lost.set()
                return
            except CardlinkError:  # the store is unwell: the next beat tries again
                continue


@contextmanager
def claimed(adapters: Adapters, prefix: str, *, ttl: timedelta = CLAIM, beat: float = BEAT) -> Iterator[Claim]:
    """Claim `prefix` for the length of a `with` block; ClaimedError names who has it."""
    mine, claim = True, None
    try:
        try:
            claim = Claim(Lease.take(adapters.store, prefix, adapters.actor, adapters.now(), ttl), adapters, beat)
        except ClaimedError:
            mine = False
            raise
        yield claim
    finally:
        if claim is not None:
            claim.end()
        if mine:  # also where a signal came between taking it and knowing so
            with suppress(CardlinkError):  # what ended the work is what to tell; the claim runs out by itself
                give_back(adapters.store, prefix, adapters.actor, adapters.now())


@runtime_checkable
class _Cleaning(Protocol):
    def clean_up(self, prefix: str, before: datetime) -> int: ...


def clean_up(adapters: Adapters, *prefixes: str) -> int:
    """Remove the leftovers of killed writers under prefixes that are about to be worked on; return how many.

    A store that may not list or abort uploads keeps them: they are no objects, and its own rules end them.
    """
    gone = 0
    if isinstance(adapters.store, _Cleaning):
        for prefix in prefixes:
            with suppress(CardlinkError):
                gone += adapters.store.clean_up(prefix, adapters.now() - OLD)
    return gone
