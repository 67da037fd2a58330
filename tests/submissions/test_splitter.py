import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.submissions.splitter import Splitter
from schemas.portal import CUID, MAX_ROWS
from tests.builders import share_of


def cut(
    cuids: list[str], limit: int, blocks: list[int], patience: int = 50
) -> list[list[tuple[int, str]]]:
    rows = pl.DataFrame(
        {"row": range(len(cuids)), CUID: cuids}, schema={"row": pl.UInt32, CUID: pl.String}
    )
    splitter = Splitter(limit, patience)
    chunks: list[pl.DataFrame] = []
    start = 0
    for size in [*blocks, len(cuids)]:
        chunks += splitter.add(rows.slice(start, size))
        start += size
    chunks += splitter.finish()
    return [chunk.rows() for chunk in chunks]


CUIDS = st.lists(st.sampled_from("abcdefghijkl"), max_size=120)
BLOCKS = st.lists(st.integers(0, 40), max_size=5)


@given(CUIDS, st.integers(1, 10), BLOCKS)
@settings(max_examples=share_of(2))
def test_every_row_stands_in_exactly_one_chunk_of_at_most_the_limit_with_each_cuid_once(
    cuids: list[str], limit: int, blocks: list[int]
) -> None:
    chunks = cut(cuids, limit, blocks)

    rows = sorted(row for chunk in chunks for row, _ in chunk)
    assert rows == list(range(len(cuids)))
    assert all(0 < len(chunk) <= limit for chunk in chunks)
    assert all(len({cuid for _, cuid in chunk}) == len(chunk) for chunk in chunks)


@given(CUIDS, st.integers(1, 10), BLOCKS, BLOCKS)
@settings(max_examples=share_of(2))
def test_the_chunks_do_not_depend_on_how_the_rows_were_blocked(
    cuids: list[str], limit: int, blocks: list[int], others: list[int]
) -> None:
    once = cut(cuids, limit, blocks)
    again = cut(cuids, limit, others)

    assert once == again


def test_rows_without_repeats_are_cut_straight_through() -> None:
    chunks = cut([f"c{at}" for at in range(2500)], MAX_ROWS, [700, 700])

    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert [row for chunk in chunks for row, _ in chunk] == list(range(2500))


def test_a_repeated_cuid_waits_for_the_next_chunk_and_goes_first_there() -> None:
    chunks = cut(["a", "a", "b", "c"], 3, [])

    assert chunks == [[(0, "a"), (2, "b"), (3, "c")], [(1, "a")]]
