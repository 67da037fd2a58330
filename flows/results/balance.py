"""The balance: six equations and no open break, or the run says where it does not add up.

A difference that an operator has closed with a reason stays to be seen; it is not a matter of balance any more.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from flows.results.reconcile import Reconciled
from schemas.manifest import Manifest


class Line(NamedTuple):
    """One equation with both of its sides."""

    name: str
    left: int
    right: int
    closed: int = 0  # breaks closed by hand that stand behind it

    @property
    def holds(self) -> bool:
        """True where both sides are the same number."""
        return self.left == self.right

    @property
    def verdict(self) -> str:
        """`ok`, or by how much the left side is too large, and whether that was closed by hand."""
        reported = "ok" if self.holds else f"{self.left - self.right:+,}"
        return f"{reported}, {self.closed:,} closed" if self.closed else reported


class Balance(NamedTuple):
    """The equations of a run (DESIGN.md, "The balance")."""

    lines: tuple[Line, ...]

    @property
    def holds(self) -> bool:
        """True where every equation holds, but for differences that were closed by hand."""
        return all(line.holds or line.closed for line in self.lines)

    def text(self) -> str:
        """Return the balance as a table for a terminal."""
        width = max(len(line.name) for line in self.lines)
        return "\n".join(
            f"{line.name:<{width}}  {line.left:>12,} {'=' if line.holds else '≠'} {line.right:<12,} {line.verdict}"
            for line in self.lines
        )

    def markdown(self) -> str:
        """Return the balance as a Markdown table."""
        rows = [f"| {line.name} | {line.left:,} | {line.right:,} | {line.verdict} |" for line in self.lines]
        return "\n".join(["| equation | left | right | holds |", "|---|---:|---:|---|", *rows])


def balance(manifest: Manifest, reconciled: Reconciled | None = None, closed: int = 0) -> Balance:
    """Balance a committed run, with its results where they are reconciled (all of this run alone).

    `reconciled.breaks` are those that are open; `closed` counts those closed by hand.
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
    """Return the equations of what came back; each difference has a break, so where none is open all are closed."""
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
