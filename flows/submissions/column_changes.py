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
    changes = {
        "new columns": [name for name in layout.header if name not in before],
        "columns that are gone": [name for name in before if name not in layout.header],
    }
    return [f"{change}: {_listed(names)}" for change, names in changes.items() if names]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
