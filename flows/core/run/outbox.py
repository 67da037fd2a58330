"""The outbox: where every sealed chunk of a run stands between commit and answer, told from the run's events.

waiting ──uploaded──► uploaded ──(its result)──► answered
   │ ▲                    │
 held  released ◄─────────┘ (marked by mistake)
   ▼ │
 held ──cancelled──► cancelled

A result answers a chunk whatever was marked before it: ingest works whether or not anyone marked anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from schemas.manifest import ManifestChunk

State = Literal["waiting", "held", "uploaded", "answered", "cancelled"]
Move = Literal["uploaded", "held", "released", "cancelled"]
MOVES: dict[Move, tuple[frozenset[State], State]] = {
    "uploaded": (frozenset({"waiting"}), "uploaded"),
    "held": (frozenset({"waiting"}), "held"),
    "released": (frozenset({"held", "uploaded"}), "waiting"),
    "cancelled": (frozenset({"waiting", "held"}), "cancelled"),
}
OPEN: frozenset[State] = frozenset({"waiting", "held", "uploaded"})


class Moved(NamedTuple):
    """One event of a run: what was done to which chunks (none named: all of them), when, and why."""

    move: Move
    at: datetime
    by: str = ""
    chunks: frozenset[int] = frozenset()
    reason: str = ""


class Item(NamedTuple):
    """One chunk in the outbox: its state, since when, and when the clock of its expected answer began."""

    run: str
    chunk: ManifestChunk
    state: State
    since: datetime
    clock: datetime
    reason: str = ""

    def overdue(self, now: datetime, within: timedelta) -> bool:
        """True where an answer should have come: a chunk that was held back or cancelled has none to expect."""
        return self.state in ("waiting", "uploaded") and now - self.clock > within


def items(
    run: str,
    chunks: Sequence[ManifestChunk],
    committed: datetime,
    moves: Iterable[Moved],
    answered: Collection[int] = (),
) -> list[Item]:
    """Tell every chunk's state from the moves, oldest first; a move that does not fit the state changes nothing."""
    found = {chunk.number: Item(run, chunk, "waiting", committed, committed) for chunk in chunks}
    for move in sorted(moves, key=lambda one: one.at):
        for number in move.chunks or found.keys():
            if number in found:
                found[number] = after(found[number], move)
    return [
        item._replace(state="answered") if item.chunk.number in answered else item for _, item in sorted(found.items())
    ]


def after(item: Item, move: Moved) -> Item:
    """Return how a chunk stands after a move; one that does not fit its state changes nothing."""
    fits, state = MOVES[move.move]
    if item.state not in fits:
        return item
    clock = move.at if move.move in ("uploaded", "released") else item.clock
    return item._replace(state=state, since=move.at, clock=clock, reason=move.reason)
