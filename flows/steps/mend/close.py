"""Which breaks of a run are closed by hand: its chain `closed/`, of which the last word on each place counts."""

from __future__ import annotations

from collections.abc import Iterable

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.results.closed import Closed, home, sort_out
from flows.steps.records import records
from schemas.breaks import Break
from schemas.mended import Closing


def closed_breaks(store: Store, keys: RunKeys) -> frozenset[Closed]:
    """Return what is closed in a run; a break is covered by it as `Closed.covers` says."""
    last = {(one.name, home(one.place)): one for one in records(store, keys.closed, Closing)}
    return frozenset(
        Closed(one.name, one.place, one.rows, one.at, one.by, one.reason)
        for one in last.values()
        if one.what == "closed"
    )


def open_breaks(store: Store, keys: RunKeys, found: Iterable[Break]) -> tuple[Break, ...]:
    """Return those of a run's breaks that are out of balance and that nobody has closed."""
    return tuple(one for one in sort_out(found, closed_breaks(store, keys)).open if not one.notice)
