"""The balance of a run: six equations and no open break, or the places where it does not add up.

A difference that an operator closed with a reason is still shown, but no longer out of balance.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from flows.results.reconcile import Reconciled
from schemas.manifest import Manifest


class Line(NamedTuple):
    """One equation with both sides."""

    name: str
    left: int
    right: int
    closed: int = 0  # breaks closed by operators that explain a difference

    @property
    def holds(self) -> bool:
        """True where both sides are equal."""
        return self.left == self.right


class Balance(NamedTuple):
    """The equations of a run (README.md, "The balance")."""

    lines: tuple[Line, ...]

    @property
    def holds(self) -> bool:
        """True where every equation holds or its difference was closed."""
        return all(line.holds or line.closed for line in self.lines)


def balance(manifest: Manifest, reconciled: Reconciled | None = None, closed: int = 0) -> Balance:
    """Balance a committed run, with its reconciled results, if any (of this run alone).

    `reconciled.breaks`: the open ones; `closed`: how many operators closed.
    """
    counts = manifest.counts
    lines = [
        Line(
            "rows read = submitted + rejected + duplicate + suppressed",
            counts.read,
            counts.submitted + counts.rejected + counts.duplicate + counts.suppressed,
        ),
        Line("rows in chunks = submitted", sum(chunk.rows for chunk in manifest.chunks), counts.submitted),
    ]
    if counts.trailer is not None:
        lines.insert(0, Line("trailer count = rows read", counts.trailer, counts.read))
    return Balance(tuple(lines + (_results(counts.submitted, reconciled, closed) if reconciled else [])))


def _results(submitted: int, reconciled: Reconciled, closed: int) -> list[Line]:
    """Return the equations of the results. Each difference has a break, so where none is open all are closed."""
    still = sum(not one.notice for one in reconciled.breaks)
    behind = 0 if still else closed
    chunks = reconciled.chunks
    answered = chunks.filter(pl.col("answers") > 0)
    linked, error, awaiting = (int(chunks[name].sum()) for name in ("linked", "error", "awaiting"))
    lines = [
        Line("submitted = linked + error + awaiting", submitted, linked + error + awaiting),
        Line(
            "result rows = rows sent, of answered chunks", int(answered["answers"].sum()), int(answered["sent"].sum())
        ),
        Line("links received = rows linked", int(chunks["links"].sum()), linked),
    ]
    reported = [line if line.holds else line._replace(closed=behind) for line in lines[1:]]
    return [lines[0], *reported, Line("open breaks = 0", still, 0, behind)]
