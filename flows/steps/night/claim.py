"""Hold a run's claim while it works: renewed beside the work, given back whatever ends it, a signal included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event, Thread

from flows.core.errors import CardlinkError
from flows.core.run.lease import ClaimedError, Lease, LeaseLostError, give_back
from flows.steps.edges import Edges

CLAIM = timedelta(minutes=3)  # so long a dead run keeps its rerun waiting
BEAT = 60.0  # seconds; two beats may fail before the claim runs out


class Claim:
    """A claim that is renewed by a thread of its own, since one block may take longer than a claim lasts."""

    def __init__(self, lease: Lease, edges: Edges, beat: float) -> None:
        self._lease = lease
        self._edges = edges
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
                self._lease.renew(self._edges.now())
            except LeaseLostError:
                self._lost.set()
                return
            except CardlinkError:  # the store is unwell: the next beat tries again
                continue


@contextmanager
def claimed(edges: Edges, prefix: str, *, ttl: timedelta = CLAIM, beat: float = BEAT) -> Iterator[Claim]:
    """Claim `prefix` for the length of a `with` block; ClaimedError names who has it."""
    mine, claim = True, None
    try:
        try:
            claim = Claim(Lease.take(edges.store, prefix, edges.actor, edges.now(), ttl), edges, beat)
        except ClaimedError:
            mine = False
            raise
        yield claim
    finally:
        if claim is not None:
            claim.end()
        if mine:  # also where a signal came between taking it and knowing so
            with suppress(CardlinkError):  # what ended the work is what to tell; the claim runs out by itself
                give_back(edges.store, prefix, edges.actor, edges.now())
