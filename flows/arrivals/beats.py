"""The beats of a process, one for each issuer, in the issuer's own store."""

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from flows.arrivals.dispatch import Dispatcher
from flows.arrivals.targets import FLOWS, Target
from flows.errors import CardlinkError, guarded
from flows.operations.arrivals_beat import EVERY, Beat, Processes, read_beats, write_beats
from flows.redaction import redact
from flows.runs.store import ConflictError, Store
from flows.wiring import now

LOG = logging.getLogger("cardlink")


class Condition(NamedTuple):
    """Seconds since the process last worked, and what keeps it from hearing of files."""

    idle: float
    problem: str


class Beats:
    """Writes the beats of this process beside those of others, and takes the place of one that
    died on this machine.
    """

    every = EVERY

    def __init__(self, stores: Mapping[str, Store], dispatcher: Dispatcher) -> None:
        self._stores = stores
        self._dispatcher = dispatcher
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._last: dict[str, Beat] = {}
        before = {issuer: _read_before(store, issuer) for issuer, store in stores.items()}
        self._last_at = min(map(_newest, before.values()), default=0.0)
        self._died = {
            issuer: {name for name in known.living if name == self._name or not _is_running(name)}
            for issuer, known in before.items()
        }

    def last_at(self) -> float:
        """Return since when nobody may have listened, as an epoch: the oldest of the last beats."""
        return self._last_at

    def beat(self, issuer: str, condition: Condition) -> None:
        """Write an issuer's beat; a store that does not take it is logged, and tried again."""
        moment = now()
        problem = redact(self._problem(issuer, condition))
        last = self._last.get(issuer)
        since = last.since if last and last.problem and last.since else moment
        beat = Beat(
            moment - timedelta(seconds=condition.idle),
            problem,
            since if problem else None,
            self._counts(self._dispatcher.files, issuer),
            self._counts(self._dispatcher.runs, issuer),
        )
        self._last[issuer] = beat
        if problem and (last is None or last.problem != problem):
            LOG.warning("%s: %s", issuer, problem)
        try:
            guarded(self._write)(issuer, beat)
        except CardlinkError as error:
            LOG.warning("%s: its beat is not written: %s", issuer, error.what_happened)

    def end(self) -> None:
        """Leave the processes of each issuer, whose silence nobody has to notice from now on."""
        for issuer, store in self._stores.items():
            with suppress(CardlinkError):
                known = _read(store, issuer)
                if self._name in known.living:
                    guarded(write_beats)(store, issuer, known.without({self._name}))

    def _write(self, issuer: str, beat: Beat) -> None:
        store = self._stores[issuer]
        known = _read(store, issuer).without(self._died[issuer])
        write_beats(store, issuer, known.after(self._name, beat))
        self._died[issuer].discard(self._name)

    def _problem(self, issuer: str, condition: Condition) -> str:
        problems = self._dispatcher.problems
        own = [problems.get(Target(issuer, flow), "") for flow in FLOWS.values()]
        return next(filter(None, [condition.problem, problems.get(None, ""), *own]), "")

    def _counts(self, counted: Mapping[Target, int], issuer: str) -> dict[str, int]:
        return {flow: counted[Target(issuer, flow)] for flow in FLOWS.values()}


def _read(store: Store, issuer: str) -> Processes:
    """Return the beats that are stored; none where they cannot be understood."""
    try:
        return guarded(read_beats)(store, issuer)
    except ConflictError:
        return Processes()


def _read_before(store: Store, issuer: str) -> Processes:
    """Return the beats of the processes before this one, none also where the store is away."""
    try:
        return _read(store, issuer)
    except CardlinkError as error:
        LOG.warning("%s: its last beat is not read: %s", issuer, error.what_happened)
        return Processes()


def _newest(known: Processes) -> float:
    beats = [*known.living.values(), *([known.ended] if known.ended else [])]
    return max((beat.at.timestamp() for beat in beats), default=0.0)


def _is_running(name: str) -> bool:
    """Return whether a process runs as far as this machine can say; those of others do."""
    host, _, number = name.rpartition("-")
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
