"""Columns that come or go: the header of an extract beside that of the last one accepted.

A change is reported once, since the next extract is compared with this one.
"""

from collections.abc import Sequence

from flows.runs.stored_runs import Night
from schemas.manifest import Layout

SHOWN = 10  # names


def column_changes(layout: Layout | None, nights: Sequence[Night]) -> list[str]:
    """Return which columns are new, and which are gone, since the last of these nights."""
    headers = [night.header for night in nights if night.header]
    if layout is None or not layout.header or not headers:
        return []
    before = headers[-1]
    new = [name for name in layout.header if name not in before]
    gone = [name for name in before if name not in layout.header]
    changes = []
    if new:
        changes.append(f"new columns: {_listed(new)}")
    if gone:
        changes.append(f"columns that are gone: {_listed(gone)}")
    return changes


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
