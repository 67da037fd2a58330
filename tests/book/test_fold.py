"""How attempts add up, and what is left of them when only those that decide are kept."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.attempts import ATTEMPT, in_order
from flows.book.book import Book
from flows.book.departures import NOBODY as DEPARTED
from flows.book.fold import fold, is_changed, is_not_replaced, is_not_updated
from flows.book.given_up import NOBODY as UNDECIDED
from flows.book.kept_links import KEPT, NONE_KEPT
from flows.book.people import balance, people
from flows.book.stages import NO_STAGES
from flows.book.standing import STATES, standing
from flows.reports.survey import NOTHING_BESIDE, SurveyedCards, surveyed_cards
from flows.resend.ending_links import ending_links

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


@settings(deadline=None)
@given(st.lists(attempts(ENDED, *LIVING), max_size=20), st.integers(0, 15))
def test_what_is_surveyed_by_parts_of_the_book_is_what_the_whole_says(
    tried: list[Tried], later: int
) -> None:
    day = TODAY + timedelta(later)
    beside = NOTHING_BESIDE._replace(ending=ending_links)
    whole = Book("bank", 0, TODAY, book(tried), DEPARTED, lambda: NO_STAGES, UNDECIDED, NONE_KEPT)

    at_once = surveyed_cards(whole, beside, day)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.book.book.PART", 2)
        by_parts = surveyed_cards(whole, beside, day)

    assert sorted_rows(at_once) == sorted_rows(by_parts)


def sorted_rows(known: SurveyedCards) -> list[object]:
    """Return what was surveyed, without the order of rows."""
    return [sorted(one.rows(), key=str) if isinstance(one, pl.DataFrame) else one for one in known]


def _nobody_acts(state: str, cards: pl.DataFrame) -> bool:
    return next(known.who for known in STATES if known.name == state) == ""


def test_issues_that_were_tried_again_are_in_the_order_of_their_first_attempts() -> None:
    holders = [f"c{at * 37 % 100}" for at in range(100)]
    tried = [once("error", turn)._replace(holder=one) for turn in (1, 2) for one in holders]

    folded = fold(book(tried))

    assert holders == folded.attempt("last", "holder").to_series().to_list()


def test_of_the_rows_of_one_run_one_that_can_be_sent_is_the_newest_of_its_card() -> None:
    tries = [
        Tried("a", "1111", "2912", 1, "linked", 5, False, None, False),
        Tried("a", "1111", "2912", 2, "reverted", 0, False, None, False),
        Tried("a", "1111", "2912", 2, "rejected", 0, False, None, False),
    ]

    newest = fold(book(tries)).attempt("row", "state")["state"].to_list()

    assert ["reverted"] == newest


def test_of_several_rows_of_one_run_that_can_be_sent_the_last_is_the_newest() -> None:
    tries = [once("linked", 1), once("changed", 2), once("reverted", 2), once("rejected", 2)]

    assert ["reverted"] == fold(book(tries)).attempt("row", "state")["state"].to_list()


def once(state: str, turn: int, ends: int = 9, **facts: bool) -> Tried:
    """Return an attempt for one card in a run."""
    told = {"decided": False, "repeats": False, **facts}
    return Tried("a", "1111", "2912", turn, state, ends, trouble=None, **told)


def ended(state: str, turn: int, **facts: bool) -> Tried:
    """Return an attempt for a card that has ended since."""
    return once(state, turn, **facts)._replace(expiration=ENDED)


def this_month(state: str, turn: int, **facts: bool) -> Tried:
    """Return an attempt for a card whose last day is that of run 10."""
    return once(state, turn, **facts)._replace(expiration=f"{TODAY:%y%m}")


@pytest.mark.parametrize(
    ("tried", "places"),
    [
        # the link that lasts longest, of those that end together the last
        ([once("linked", 1, 9), once("linked", 2, 5)], {"link": 0, "last": 1, "sent": 1}),
        ([once("linked", 1, 5), once("linked", 2, 9)], {"link": 1, "last": 1, "sent": 1}),
        ([once("linked", 1, 9), once("linked", 2, 9)], {"link": 1, "first": 0, "row": 1}),
        # the newest content of the issuer, of a row and its repetition the repetition
        ([once("linked", 1), once("linked", 2, repeats=True)], {"content": 1, "extract": 0}),
        ([once("linked", 2), once("awaiting", 3, repeats=True)], {"content": 1, "waiting": 1}),
        ([once("awaiting", 1), once("linked", 2)], {"content": 1, "waiting": 0, "extract": 1}),
        # of one run what was sent comes before what was refused; of a later run the refusal counts
        ([once("error", 1), once("rejected", 1)], {"last": 0, "row": 0, "sent": 0}),
        ([once("error", 1), once("rejected", 2)], {"last": 1, "row": 1, "sent": 0}),
        # a refusal by us is over once the card was held back as changed, in the same run too
        ([once("error", 1), once("rejected", 2), once("changed", 2)], {"last": 0, "change": 2}),
        ([once("error", 1), once("changed", 2), once("rejected", 3)], {"last": 2, "held": 1}),
        (
            [once("error", 1), once("changed", 2), once("rejected", 3), once("reverted", 4)],
            {"last": 0},
        ),
        # of several of a kind the last
        ([once("error", 1), once("linked", 1)], {"last": 1}),
        ([once("awaiting", 1), once("awaiting", 2)], {"waiting": 1}),
        ([once("linked", 1), once("changed", 2), once("reverted", 3)], {"held": 2, "last": 0}),
        ([once("changed", 1), once("reverted", 2)], {"last": 1}),
        ([once("cancelled", 1), once("cancelled", 2)], {"last": 1}),
        # a cancelled chunk says least
        ([once("linked", 1), once("cancelled", 2)], {"last": 0, "change": 1, "held": None}),
        ([once("cancelled", 1), once("changed", 2)], {"last": 0, "sent": None, "change": 1}),
        # of a card that has ended, too, the last refusal counts where it was never sent
        ([ended("rejected", 1), ended("rejected", 2, repeats=True)], {"last": 1, "sent": None}),
        ([ended("error", 1), ended("rejected", 2, repeats=True)], {"last": 0, "row": 1}),
        # which it has on the day after its last one
        ([this_month("error", 1), this_month("rejected", 10, repeats=True)], {"last": 1}),
        ([this_month("error", 1), this_month("rejected", 11, repeats=True)], {"last": 0}),
        # a decision is the last word, but no answer of the partner
        ([once("error", 1), once("error", 2, decided=True)], {"last": 1, "sent": 0, "extract": 0}),
    ],
)
def test_which_attempt_of_an_issue_decides_what(
    tried: list[Tried], places: dict[str, int | None]
) -> None:
    found = fold(book(tried)).places.row(0, named=True)

    assert places == {name: found[name] for name in places}


def unreadable(turn: int) -> Tried:
    """Return a refused row of the same cardholder, whose card number cannot be read."""
    return once("rejected", turn)._replace(last_4=None)


@pytest.mark.parametrize(
    ("tried", "newest"),
    [
        ([once("linked", 1), unreadable(2), unreadable(3)], 2),
        ([once("linked", 1), unreadable(2), once("linked", 3)], 2),
        ([once("linked", 1), once("linked", 2), unreadable(2)], 2),
        ([once("linked", 1), once("linked", 2), unreadable(1)], 2),
    ],
)
def test_a_row_without_a_readable_card_number_is_the_newest_until_a_later_run_has_a_readable_one(
    tried: list[Tried], newest: int
) -> None:
    folded = fold(book(tried))
    is_card = folded.attempt("last", "last_4")["last_4"].is_not_null()

    assert [newest] == folded.places.filter(is_card)["row"].to_list()


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], False),
        ([once("changed", 2)], True),
        ([once("cancelled", 2)], True),
        ([once("reverted", 2)], False),
        ([once("changed", 2), once("reverted", 3)], False),
        ([once("changed", 3), once("linked", 3)], False),
        ([once("changed", 3), once("error", 3)], True),
        # a row of the same extract was corrected, and sent
        ([once("changed", 2), once("linked", 3, repeats=True)], False),
        # another name, but that of the link again
        ([once("changed", 7)], False),
    ],
)
def test_a_card_has_changed_where_its_newest_row_is_other_than_its_link_and_was_not_sent(
    later: list[Tried], expected: bool
) -> None:
    other = once("linked", 1)._replace(holder="b")

    changed = is_changed(fold(book([once("linked", 1), other, *later])))

    assert sorted([expected, False]) == sorted(changed)


CONTENT_OF_2 = {"name_check": 2, "address_check": 0}  # as `book` has it in run 2


@pytest.mark.parametrize("card", [{}, {"last_4": "2222"}, {"holder": "b"}, {"other": "run-9"}])
def test_a_link_stays_where_an_operator_decided_so_about_this_card_and_run(
    card: dict[str, str],
) -> None:
    replaced = fold(book([once("linked", 1), once("error", 2)]))
    updated = fold(book([once("linked", 1), once("rejected", 2)]))
    own = {"holder": "a", "last_4": "1111", **card}
    refusal = pl.DataFrame([{**own, "refused": card.get("other", "run-2")}], KEPT)
    change = pl.DataFrame([{**own, "link": card.get("other", "run-1")} | CONTENT_OF_2], KEPT)

    still = [
        is_not_replaced(replaced, refusal).to_list(),
        is_not_updated(updated, change).to_list(),
    ]

    assert [[bool(card)], [bool(card)]] == still
    assert [[True], [True]] == [
        is_not_replaced(replaced).to_list(),
        is_not_updated(updated).to_list(),
    ]
