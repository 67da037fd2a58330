"""The outbox: states of chunks told from events alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from flows.runs.chunks import MOVES, ChunkEvent, Move, OutboxChunk, outbox_chunks
from schemas.manifest import ManifestChunk

RUN = "bank-20261120-00000000"
START = datetime(2026, 11, 20, 2, tzinfo=UTC)
CHUNKS = [
    ManifestChunk(number=n, name=f"{RUN}-0000{n}.csv.pgp", rows=10, bytes=99, sha256="0" * 64)
    for n in (1, 2, 3)
]


def after(*moves: ChunkEvent, answered: tuple[int, ...] = ()) -> list[OutboxChunk]:
    return outbox_chunks(RUN, CHUNKS, START, moves, answered)


def moved(what: Move, hours: int, *chunks: int) -> ChunkEvent:
    return ChunkEvent(what, START + timedelta(hours=hours), chunks=frozenset(chunks))


def test_a_committed_chunk_waits_for_its_upload_since_the_commit() -> None:
    found = after()

    assert [(item.state, item.since, item.clock) for item in found] == [
        ("waiting", START, START)
    ] * 3


def test_the_clock_of_the_answer_starts_at_the_upload() -> None:
    found = after(moved("uploaded", 5, 2))

    assert [item.state for item in found] == ["waiting", "uploaded", "waiting"]
    assert found[1].clock == START + timedelta(hours=5)


def test_a_move_that_names_no_chunk_is_of_all_it_fits() -> None:
    found = after(moved("held", 1, 3), moved("uploaded", 2))

    assert [item.state for item in found] == ["uploaded", "uploaded", "held"]


def test_a_result_answers_a_chunk_whatever_was_marked() -> None:
    found = after(moved("held", 1, 1), moved("cancelled", 2, 2), answered=(1, 2, 3))

    assert {item.state for item in found} == {"answered"}


def test_a_chunk_marked_by_mistake_waits_again_and_its_clock_starts_anew() -> None:
    found = after(moved("uploaded", 1, 1), moved("released", 30, 1))

    assert (found[0].state, found[0].clock) == ("waiting", START + timedelta(hours=30))


def test_held_and_cancelled_chunks_are_never_overdue() -> None:
    found = after(moved("held", 1, 1), moved("cancelled", 1, 2))

    overdue = [item.overdue(START + timedelta(days=9), timedelta(hours=48)) for item in found]

    assert overdue == [False, False, True]


@given(st.lists(st.tuples(st.sampled_from(list(MOVES)), st.integers(1, 3)), max_size=8))
def test_a_cancelled_chunk_stays_cancelled_and_order_is_by_time_alone(
    steps: list[tuple[Move, int]],
) -> None:
    moves = [moved(what, hours, chunk) for hours, (what, chunk) in enumerate(steps)]
    later = [moved(what, 99) for what in MOVES]

    found = after(*moves)

    assert after(*reversed(moves)) == found
    cancelled = [item.chunk.number for item in found if item.state == "cancelled"]
    assert all(
        item.state == "cancelled"
        for item in after(*moves, *later)
        if item.chunk.number in cancelled
    )
