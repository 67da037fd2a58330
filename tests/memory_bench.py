"""A bench whose store and seal are in memory: a whole night takes a few hundredths of a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from flows.extensions.simulator.answer import Answered, Habits, answer_store
from flows.extensions.simulator.portal import Portal
from flows.runs.sealing import Opener, Sealer
from tests.memory import MemoryOpener, MemorySealer, MemoryStore
from tests.night import NOON, Bench, copied, issuer


@dataclass
class MemoryBench(Bench):
    """A bench without gpg."""

    store: MemoryStore = field(default_factory=MemoryStore)

    def copy(self) -> MemoryBench:
        """Return a bench of its own with the same objects and the same rows."""
        return replace(self, store=self.store.copy(), database=copied(self.database))

    def answer(self, habits: Habits | None = None, **portal: Any) -> Answered:
        """Let the simulated portal answer what is committed."""
        simulated = Portal(MemoryOpener(), today=self.now().date(), **portal)
        return answer_store(self.adapters, self.issuer.issuer, simulated, habits)

    @contextmanager
    def _sealer(self) -> Iterator[Sealer]:
        yield MemorySealer()

    @contextmanager
    def _opener(self) -> Iterator[Opener | None]:
        yield None


def memory_bench(now: Callable[[], datetime] = lambda: NOON, **changes: Any) -> MemoryBench:
    """Return an empty bench in memory; `changes` are of the issuer's settings."""
    portal = {"fingerprints": ["A" * 40], **changes.pop("portal", {})}
    return MemoryBench(MemoryStore(), issuer(**changes, portal=portal), now)
