"""Since when a run's chunks wait for their answer, and which of them nobody waits for."""

from __future__ import annotations

from datetime import datetime

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.report.summary import Moment
from flows.steps.operate.outbox import standing_of
from schemas.manifest import Manifest

RESTING = ("held", "cancelled")


def moment_of(store: Store, keys: RunKeys, manifest: Manifest, now: datetime) -> Moment:
    """Return since when each chunk waits: uploaded, else committed; held and cancelled ones have no answer due."""
    found = standing_of(store, keys, manifest)
    clocks = {item.chunk.number: item.clock for item in found}
    resting = frozenset(item.chunk.number for item in found if item.state in RESTING)
    return Moment(now, min(clocks.values(), default=now), clocks, resting)
