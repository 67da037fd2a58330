"""How attempts add up, and what is left of them when only those that decide are kept."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.attempts import ATTEMPT, in_order
from flows.book.fold import compacted, fold
from flows.book.people import balance, people
from flows.book.standing import STATES, standing

TODAY = date(2026, 11, 20)
ENDED = "2610"
LIVING = ("2712", "2912")
STANDING = [*ATTEMPT, "standing", "who", "until", "first", "current"]


class Tried(NamedTuple):
    """One attempt: for whom, in which run, and what came of it."""

    holder: str | None
    last_4: str | None
    expiration: str
    turn: int
    state: str
    ends: int  # days from today to the end of its link
    decided: bool
    trouble: str | None
    repeats: bool


def attempts(*expirations: str) -> st.SearchStrategy[Tried]:
    """Return attempts for cards with these expirations (YYMM)."""
    return st.builds(
        Tried,
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["1111", "2222", None]),
        st.sampled_from(expirations),
        st.integers(1, 5),
        st.sampled_from(
            ["linked", "error", "awaiting", "rejected", "cancelled", "changed", "reverted"]
        ),
        st.integers(-10, 10),
        st.booleans(),
        st.sampled_from([None, "RESULT_SHORT"]),
        st.booleans(),
    )


def book(tried: list[Tried]) -> pl.DataFrame:
    """Return attempts as a book has them."""
    rows = [
        {
            "turn": one.turn,
            "content": one.turn - one.repeats,
            "run": f"run-{one.turn}",
            "as_of": TODAY + timedelta(one.turn),
            "row": number,
            "origin": 1 if one.repeats else None,
            "renewal": False,
            "cuid": one.holder,
            "holder": one.holder,
            "last_4": one.last_4,
            "expiration": one.expiration,
            "twin": 0,
            "name_check": one.turn % 3,
            "address_check": one.turn % 2,
            "state": one.state,
            "reason": "card.pan.luhn" if one.state in ("error", "rejected") else None,
            "trouble": one.trouble if one.state == "awaiting" else None,
            "decided": one.decided and one.state == "error",
            "expires_on": TODAY + timedelta(one.ends) if one.state == "linked" else None,
            "tries": int(one.state not in ("changed", "reverted")),
            "sendings": int(one.state in ("linked", "error", "awaiting")),
        }
        for number, one in enumerate(tried, start=1)
    ]
    return in_order([pl.DataFrame(rows, ATTEMPT)])


def stands(kept: pl.DataFrame, day: date) -> list[tuple[object, ...]]:
    """Return what a book says of each card on a day."""
    cards = standing(fold(kept), day).select(STANDING)
    return sorted(cards.rows(), key=str)


@settings(deadline=None)
@given(
    st.lists(attempts(ENDED, *LIVING), max_size=20), st.sets(st.integers(1, 5)), st.integers(0, 15)
)
def test_a_book_that_keeps_only_what_decides_says_the_same_on_every_later_day(
    tried: list[Tried], settled: set[int], later: int
) -> None:
    all_attempts = book(tried)
    is_settled = pl.col("turn").is_in(sorted(settled))
    day = TODAY + timedelta(later)

    old = compacted(all_attempts.filter(is_settled), TODAY)
    kept = in_order([old, all_attempts.filter(~is_settled)])

    assert stands(all_attempts, day) == stands(kept, day)


@settings(deadline=None)
@given(st.lists(attempts(*LIVING), min_size=1, max_size=20), st.integers(0, 15))
def test_every_cardholder_is_in_one_state_and_the_states_add_up(
    tried: list[Tried], later: int
) -> None:
    cards = standing(fold(book(tried)), TODAY + timedelta(later))

    counted = balance(cards)

    assert {one.holder for one in tried} - {None} == set(
        people(cards.filter("current"))["holder"]
    ) - {None}
    assert counted.named == len({one.holder for one in tried} - {None})
    assert counted.named - sum(counted.waits.values()) == sum(
        number for state, number in counted.people.items() if _nobody_acts(state, cards)
    )


def _nobody_acts(state: str, cards: pl.DataFrame) -> bool:
    return next(known.who for known in STATES if known.name == state) == ""


def test_of_the_rows_of_one_run_one_that_can_be_sent_is_the_newest_of_its_card() -> None:
    tries = [
        Tried("a", "1111", "2912", 1, "linked", 5, False, None, False),
        Tried("a", "1111", "2912", 2, "reverted", 0, False, None, False),
        Tried("a", "1111", "2912", 2, "rejected", 0, False, None, False),
    ]

    newest = fold(book(tries)).attempt("row", "state")["state"].to_list()

    assert ["reverted"] == newest
