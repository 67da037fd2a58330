"""The outbox: states of chunks as they are moved."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from flows.runs.chunks import MOVES, Move, OutboxChunk
from flows.runs.outbox import ChunkStateError, move
from tests.memory_bench import MemoryBench, memory_bench

START = datetime(2026, 11, 20, 2, tzinfo=UTC)


class Night:
    """Three committed chunks, and what is done to them so many hours later."""

    def __init__(self) -> None:
        self.bench: MemoryBench = memory_bench(lambda: START, portal={"rows_per_chunk": 10})
        self.run = self.bench.submit(self.bench.drop(30)).manifest.run

    def move(self, what: Move, hours: int, *chunks: int) -> None:
        later = replace(self.bench, now=lambda: START + timedelta(hours=hours))
        move(later.adapters, self.run, what, chunks, "ask the issuer")

    @property
    def chunks(self) -> list[OutboxChunk]:
        return self.bench.stored(self.run).outbox


def test_a_committed_chunk_waits_for_its_upload_since_the_commit() -> None:
    night = Night()

    states = [(item.state, item.since, item.clock) for item in night.chunks]

    assert [("waiting", START, START)] * 3 == states


def test_the_clock_of_the_answer_starts_at_the_upload() -> None:
    night = Night()

    night.move("uploaded", 5, 2)

    assert ["waiting", "uploaded", "waiting"] == [item.state for item in night.chunks]
    assert START + timedelta(hours=5) == night.chunks[1].clock


def test_a_move_that_names_no_chunk_is_of_all_it_fits() -> None:
    night = Night()

    night.move("held", 1, 3)
    night.move("uploaded", 2)

    assert ["uploaded", "uploaded", "held"] == [item.state for item in night.chunks]


def test_a_result_answers_a_chunk_whatever_was_marked() -> None:
    night = Night()
    night.move("held", 1, 1)
    night.move("cancelled", 2, 2)

    night.bench.answer()
    night.bench.ingest()

    assert {"answered"} == {item.state for item in night.chunks if item.chunk.number != 2}


def test_a_chunk_marked_by_mistake_waits_again_and_its_clock_starts_anew() -> None:
    night = Night()

    night.move("uploaded", 1, 1)
    night.move("released", 30, 1)

    first = night.chunks[0]
    assert ("waiting", START + timedelta(hours=30)) == (first.state, first.clock)


def test_a_chunk_that_is_held_keeps_the_clock_of_its_answer_and_says_since_when_and_why() -> None:
    night = Night()

    night.move("held", 7, 1)

    first = night.chunks[0]
    expected = ("held", START + timedelta(hours=7), START, "ask the issuer")
    assert expected == (first.state, first.since, first.clock, first.reason)


def test_held_and_cancelled_chunks_are_never_overdue() -> None:
    night = Night()
    night.move("held", 1, 1)
    night.move("cancelled", 1, 2)

    moment = START + timedelta(days=9)
    overdue = [item.overdue(moment, timedelta(hours=48)) for item in night.chunks]

    assert [False, False, True] == overdue


@pytest.mark.parametrize("what", [what for what in MOVES if what != "cancelled"])
def test_a_cancelled_chunk_stays_cancelled(what: Move) -> None:
    night = Night()
    night.move("cancelled", 1, 1)

    with pytest.raises(ChunkStateError):
        night.move(what, 2, 1)

    assert "cancelled" == night.chunks[0].state
