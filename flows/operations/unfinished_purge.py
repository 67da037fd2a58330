"""The purge that ended before it had deleted everything it recorded, if there is one.

A record is written before the objects of its part are deleted, and what was begun is finished
first; so only the part of the newest record can still have objects.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from flows.operations.retention import objects_by_part
from flows.runs.context import IssuerContext
from flows.runs.keys import RunId, RunKeys, purged

TICK = timedelta(seconds=1)  # by which a store tells moments apart


class UnfinishedPurge(NamedTuple):
    """A run of which a purge left objects that it had recorded as deleted, and since when."""

    run: str
    since: datetime


def unfinished_purge(context: IssuerContext) -> UnfinishedPurge | None:
    """Return the purge that is under way or was stopped, None where nothing of one is left.

    Links of no run are not looked for: what is left of them is due again, under a new record.
    """
    prefix = purged(context.issuer.issuer)
    records = list(context.adapters.store.keys(prefix))
    if not records:
        return None
    newest = max(record.modified for record in records)
    for record in records:
        if record.modified >= newest - TICK:
            run, _, name = record.key.removeprefix(prefix).partition("/")
            if _has_objects(context, run, name.removesuffix(".json")):
                return UnfinishedPurge(run, record.modified)
    return None


def _has_objects(context: IssuerContext, run: str, part: str) -> bool:
    """Return whether a part of a run has objects; nothing else has any."""
    run_id = RunId.parse(run)
    if run_id is None:
        return False
    keys = RunKeys(run_id)
    return bool(objects_by_part(keys, list(context.adapters.store.keys(keys.base)))[part])
