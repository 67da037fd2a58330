"""How fast a pass goes and how long it will take, in words: for a terminal and for the Prefect UI."""

from __future__ import annotations

from datetime import timedelta


def pace(rows: int, share: float, elapsed: float) -> str:
    """Say rows read, rows a second and time left; `share` of the extract's bytes is read after `elapsed` seconds."""
    told = f"{rows:,} rows"
    if elapsed <= 0 or not rows:
        return told
    told += f", {rows / elapsed:,.0f} a second"
    if share <= 0:
        return told
    left = timedelta(seconds=round(elapsed * (1 - share) / share))
    return f"{told}, {left} left"
