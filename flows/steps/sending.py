"""Since when a run's chunks wait for their answer: from the events of its history."""

from __future__ import annotations

import json
from datetime import datetime

from flows.core.names import RunId, RunKeys
from flows.core.ports import Store
from flows.core.summary import Moment
from flows.steps.edges import read

COMMITTED, UPLOADED = "committed", "uploaded"


def moment_of(store: Store, keys: RunKeys, now: datetime) -> Moment:
    """Return since when the run and its chunks wait: uploaded, else committed, else when the manifest was written.

    An `uploaded` event that names `chunks` speaks of those alone; the first one of each counts.
    """
    events = [
        json.loads(read(store, entry.key))
        for entry in list(store.keys(keys.events))
        if f"-{UPLOADED}-" in entry.key or f"-{COMMITTED}-" in entry.key
    ]
    told = sorted(((datetime.fromisoformat(one["at"]), one) for one in events), key=lambda pair: pair[0])
    uploads = [(at, one.get("chunks", [])) for at, one in told if one["what"] == UPLOADED]
    whole = [at for at, chunks in uploads if not chunks] or [at for at, one in told if one["what"] == COMMITTED]
    numbers = {
        number: at
        for at, chunks in reversed(uploads)
        for name in chunks
        if (number := _number(name, keys.run)) is not None
    }
    return Moment(now, whole[0] if whole else _written(store, keys, now), numbers)


def _number(name: str, run: RunId) -> int | None:
    digits = name.removeprefix(f"{run}-").partition(".")[0]
    return int(digits) if digits.isdigit() else None


def _written(store: Store, keys: RunKeys, now: datetime) -> datetime:
    return next((entry.modified for entry in store.keys(keys.manifest) if entry.key == keys.manifest), now)
