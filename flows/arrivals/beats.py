"""The beats of a process, one for each issuer, in the issuer's own store."""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from flows.arrivals.dispatch import Dispatcher
from flows.arrivals.targets import FLOWS, Target
from flows.errors import CardlinkError, guarded
from flows.operations.arrivals_beat import EVERY, Beat, read_beat, write_beat
from flows.redaction import redact
from flows.runs.store import Store
from flows.wiring import now

LOG = logging.getLogger("cardlink")


class Condition(NamedTuple):
    """Seconds since the process last worked, and what keeps it from hearing of files."""

    idle: float
    problem: str


class Beats:
    """Writes the beats, and adds to the counts of the processes before this one."""

    every = EVERY

    def __init__(self, stores: Mapping[str, Store], dispatcher: Dispatcher) -> None:
        self._stores = stores
        self._dispatcher = dispatcher
        self._last = {issuer: _read(store, issuer) for issuer, store in stores.items()}
        self._before = dict(self._last)

    def last_at(self) -> float:
        """Return since when nobody may have listened, as an epoch: the oldest of the last beats."""
        moments = [beat.at.timestamp() if beat else 0.0 for beat in self._before.values()]
        return min(moments, default=0.0)

    def beat(self, issuer: str, condition: Condition) -> None:
        """Write an issuer's beat; a store that does not take it is logged, and tried again."""
        moment = now()
        problem = redact(self._problem(issuer, condition))
        last = self._last[issuer]
        since = last.since if last and last.problem and last.since else moment
        beat = Beat(
            moment - timedelta(seconds=condition.idle),
            problem,
            since if problem else None,
            self._sum(issuer, "files"),
            self._sum(issuer, "runs"),
        )
        self._last[issuer] = beat
        if problem and (last is None or last.problem != problem):
            LOG.warning("%s: %s", issuer, problem)
        try:
            guarded(write_beat)(self._stores[issuer], issuer, beat)
        except CardlinkError as error:
            LOG.warning("%s: its beat is not written: %s", issuer, error.what_happened)

    def _problem(self, issuer: str, condition: Condition) -> str:
        problems = self._dispatcher.problems
        own = [problems.get(Target(issuer, flow), "") for flow in FLOWS.values()]
        return next(filter(None, [condition.problem, problems.get(None, ""), *own]), "")

    def _sum(self, issuer: str, counted: str) -> dict[str, int]:
        before = self._before[issuer]
        earlier: Mapping[str, int] = getattr(before, counted) if before else {}
        now_counted = getattr(self._dispatcher, counted)
        return {
            flow: earlier.get(flow, 0) + now_counted[Target(issuer, flow)]
            for flow in FLOWS.values()
        }


def _read(store: Store, issuer: str) -> Beat | None:
    """Return the last beat, None also where the store is away."""
    try:
        return guarded(read_beat)(store, issuer)
    except CardlinkError as error:
        LOG.warning("%s: its last beat is not read: %s", issuer, error.what_happened)
        return None
