"""Attempts make one history: each row and each card once, by the state that counts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.results.row_states import RUN_ROW, STATES, Cardholders, after_all

SENT = ["linked", "awaiting", "error", "rejected"]
CARD = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["1111", "2222", None]),
    st.sampled_from([*SENT, "cancelled"]),
)


def run(cards: Sequence[tuple[str | None, str | None, str]]) -> pl.DataFrame:
    """Return the rows of a run: cuid, last_4, state of each."""
    return pl.DataFrame(
        [(at, None, *card, []) for at, card in enumerate(cards, 1)], RUN_ROW, orient="row"
    )


def counted(*runs: Sequence[tuple[str | None, str | None, str]]) -> dict[str, int]:
    """Return how many cardholders are in each state that has any."""
    held = Cardholders()
    for cards in runs:
        held.add([run(cards)])
    return {state: number for state, number in held.count().items() if number}


def test_the_last_attempt_counts() -> None:
    assert {"linked": 1} == counted(
        [("a", "1", "error")], [("a", "1", "awaiting")], [("a", "1", "linked")]
    )


def test_a_refusal_takes_no_link_away() -> None:
    assert {"linked": 1} == counted(
        [("a", "1", "linked")], [("a", "1", "error")], [("a", "1", "rejected")]
    )


def test_what_was_never_sent_changes_nothing_where_something_was() -> None:
    assert {"error": 1} == counted(
        [("a", "1", "error")], [("a", "1", "cancelled")], [("a", "1", "suppressed")]
    )


def test_a_card_that_was_only_in_cancelled_chunks_counts_as_refused() -> None:
    assert {"refused": 1} == counted([("a", "1", "cancelled")])


def test_a_row_without_a_readable_card_is_its_cardholders_where_that_one_has_no_link() -> None:
    refused = [("a", None, "rejected"), ("b", None, "rejected"), (None, None, "rejected")]

    assert {"linked": 1, "refused": 1} == counted(refused, [("a", "1", "linked")])


@settings(deadline=None)
@given(st.lists(st.lists(CARD, max_size=6), max_size=5))
def test_no_card_counts_twice_and_none_is_lost(
    runs: list[list[tuple[str, str | None, str]]],
) -> None:
    settled = {cuid for one in runs for cuid, _, state in one if state in ("linked", "awaiting")}
    cards = {(cuid, last) for one in runs for cuid, last, _ in one}

    found = counted(*runs)

    assert len({(cuid, last) for cuid, last in cards if last or cuid not in settled}) == sum(
        found.values()
    )


def test_rows_after_all_attempts_are_those_of_the_run_moved_on() -> None:
    own = {"linked": 5, "awaiting": 3, "error": 3, "refused": 2}
    rows = pl.DataFrame(
        {"row": range(1, 7), "state": ["error", "error", "rejected", *["cancelled"] * 3]}
    )
    first = pl.DataFrame(
        {
            "origin": range(1, 7),
            "state": ["linked", "error", "rejected", "linked", "error", "cancelled"],
        }
    )
    second = pl.DataFrame({"origin": [2, 3], "state": ["cancelled", "awaiting"]})

    found = after_all(own, rows, [first, second])

    assert {"linked": 7, "awaiting": 2, "error": 3, "refused": 1} == found
    assert tuple(found) == STATES
