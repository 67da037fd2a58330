"""The balance of a run: the equations that account for every row, and the verdict they give.

Closing a break does not hide the difference: the line shows it and that it was closed, and one more
row reopens it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from flows.reports.verdicts import ABOVE_LIMIT, BALANCED, OUT_OF_BALANCE, WAITING
from schemas.issuer import Limits
from schemas.ledger import FATES
from schemas.manifest import ASIDE, Counts, Manifest


class Line(NamedTuple):
    """An equation with both sides, and how many closed breaks explain a difference."""

    name: str
    left: int
    right: int
    closed: int = 0

    @property
    def holds(self) -> bool:
        """True where both sides are equal."""
        return self.left == self.right


def balance(
    manifest: Manifest,
    chunks: pl.DataFrame,
    still: int,
    closed: int = 0,
    counted_in: str = "trailer",
    others: Iterable[Line] = (),
) -> list[Line]:
    """Return the equations of a run (README.md, "The balance").

    `still` breaks are open, operators `closed` others. Each difference in the results has a break,
    so where none is open all are closed: shown, but in balance. `counted_in`: the record that
    states the number of rows.
    `others`: the equations of extensions.
    """
    closed_breaks = 0 if still else closed
    return [
        *_sent_lines(manifest, counted_in),
        *_answer_lines(manifest.counts.submitted, chunks, closed_breaks),
        *others,
        Line("open breaks = 0", still, 0, closed_breaks),
    ]


def _sent_lines(manifest: Manifest, counted_in: str) -> list[Line]:
    """Return the equations of what was read and sent."""
    counts = manifest.counts
    fates = sum(getattr(counts, fate) for fate in FATES)
    in_chunks = sum(chunk.rows for chunk in manifest.chunks)
    lines = [
        *_read_lines(counts),
        Line(f"rows read = {' + '.join(FATES)}", counts.read, fates),
        Line("rows in chunks = submitted", in_chunks, counts.submitted),
    ]
    if manifest.joined is not None:
        joined = manifest.joined
        parts = joined.used + joined.unused + joined.refused
        others = "rows of the second file" if manifest.source.files else "records of other types"
        lines.append(Line(f"{others} = used + unused + refused", joined.read, parts))
    if counts.trailer is None:
        return lines
    return [Line(f"{counted_in} count = rows read", counts.trailer, counts.read), *lines]


def _read_lines(counts: Counts) -> list[Line]:
    """Return the equation of the lines, or records, of a whole extract."""
    if counts.set_aside is None:
        return []
    kinds = [kind for kind in ASIDE if kind in counts.set_aside]
    lines = counts.read + sum(counts.set_aside.values())
    return [Line(f"lines = {' + '.join(['rows', *kinds])}", counts.lines, lines)]


def _answer_lines(submitted: int, chunks: pl.DataFrame, closed: int) -> list[Line]:
    """Return the equations of the answers; `closed` breaks explain the differences, if any."""
    totals = chunks.select(pl.col("linked", "error", "awaiting", "links").sum()).row(0, named=True)
    answered = chunks.filter(pl.col("answers") > 0)
    answers, sent = answered.select(pl.col("answers", "sent").sum()).row(0)
    states = totals["linked"] + totals["error"] + totals["awaiting"]
    closed_rows = closed if answers != sent else 0
    closed_links = closed if totals["links"] != totals["linked"] else 0
    return [
        Line("submitted = linked + error + awaiting", submitted, states),
        Line("result rows = rows sent, of answered chunks", answers, sent, closed_rows),
        Line("links received = rows linked", totals["links"], totals["linked"], closed_links),
    ]


def verdict(
    manifest: Manifest,
    states: Mapping[str, int],
    lines: Sequence[Line],
    limits: Limits,
    decided: int = 0,
    cancelled: int = 0,
) -> str:
    """Return a run's verdict.

    Out of balance comes first, then above the limits, then whether answers are awaited.
    `decided`: errors by an operator's decision; they count against no limit. `cancelled`: of the
    rows without an answer those that were never sent, since their chunk was cancelled.
    """
    if not all(line.holds or line.closed for line in lines):
        return OUT_OF_BALANCE
    if _above_limits(manifest, states, limits, decided):
        return ABOVE_LIMIT
    if states["awaiting"] > cancelled:
        return WAITING
    return BALANCED


def _above_limits(
    manifest: Manifest, states: Mapping[str, int], limits: Limits, decided: int
) -> bool:
    counts = manifest.counts
    errors = states["error"] - decided
    answered = states["linked"] + errors
    too_many_rejects = counts.rejected > limits.max_reject_rate * counts.read
    too_many_errors = errors > limits.max_error_rate * answered
    return too_many_rejects or too_many_errors
