"""Clear away what killed runs left: files not yet whole, uploads in parts that were never completed."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from flows.core.errors import CardlinkError
from flows.steps.edges import Edges

OLD = timedelta(minutes=15)  # no write takes as long: what is older belongs to nobody alive


@runtime_checkable
class _Sweeping(Protocol):
    def sweep(self, prefix: str, before: datetime) -> int: ...


def sweep(edges: Edges, *prefixes: str) -> int:
    """Remove the leftovers of killed writers under prefixes that are about to be worked on; return how many.

    A store that may not list or abort uploads keeps them: they are no objects, and its own rules end them.
    """
    gone = 0
    if isinstance(edges.store, _Sweeping):
        for prefix in prefixes:
            with suppress(CardlinkError):
                gone += edges.store.sweep(prefix, edges.now() - OLD)
    return gone
