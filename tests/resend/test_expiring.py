"""Whose link is made anew, and why the others' are not."""

from __future__ import annotations

from datetime import date, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.attempts import ATTEMPT
from flows.book.book import Book
from flows.book.departures import NOBODY
from flows.book.given_up import NOBODY as UNDECIDED
from flows.book.kept_links import NONE_KEPT
from flows.book.stages import NO_STAGES
from flows.resend.ending_links import RECORD, ending_links, in_extract, judged
from schemas.actions import NOT_ELIGIBLE, NOTHING
from schemas.ledger import dtypes
from schemas.reasons import (
    ABSENT,
    AWAITED,
    DYING,
    INELIGIBLE,
    NOT_WANTED,
    REFUSED,
    TYPED_IN,
    UNFIT,
    reason,
)
from tests.builders import share_of

TODAY = date(2026, 11, 20)
WINDOW = (TODAY, TODAY + timedelta(days=14))
SOON, LATER, PAST = WINDOW[1], WINDOW[1] + timedelta(days=1), TODAY - timedelta(days=1)
Try = tuple[str, str, date | None]
Row = tuple[str | None, str, str, str]
ROWS = {name: dtypes()[name] for name in RECORD}


def ending(tries: list[Try], departed: pl.DataFrame = NOBODY, **more: str) -> pl.DataFrame:
    """Return the links that end, of tries (cuid, state, end), each in a run of its own."""
    attempts = [
        {
            "turn": turn,
            "run": f"r{turn}",
            "row": turn,
            "holder": cuid,
            "cuid": cuid,
            "last_4": "4242",
            "twin": 0,
            "expiration": "2911",
            "state": state,
            "decided": False,
            "expires_on": ends if state == "linked" else None,
            "wait": "uploaded" if state == "awaiting" else None,
            "reason": "card.pan.other" if state == "error" else None,
            "tries": 1,
            "sendings": 1,
            **more,
        }
        for turn, (cuid, state, ends) in enumerate(tries, 1)
    ]
    tried = pl.DataFrame(attempts, ATTEMPT)
    book = Book("bank", 0, TODAY, tried, departed, lambda: NO_STAGES, UNDECIDED, NONE_KEPT)
    return ending_links(book, book.cards(TODAY), *WINDOW)


def records(*rows: Row) -> pl.DataFrame:
    """Return ledger records of rows (cuid, last_4, expiration, fate)."""
    named = [
        {"row": at, "cuid": cuid, "last_4": last_4, "expiration": expiration, "fate": fate}
        for at, (cuid, last_4, expiration, fate) in enumerate(rows, 1)
    ]
    return pl.DataFrame(named, ROWS)


def in_portfolio(tries: list[Try], *rows: Row) -> dict[str, str | None]:
    """Return why each card concerned is left out, None where it is due, by the latest extract."""
    links = in_extract(ending(tries), records(*rows), "latest")
    return dict(judged(links, TODAY, ABSENT).select("cuid", "why").rows())


def in_deltas(tries: list[Try], **more: str) -> dict[str, str | None]:
    return dict(judged(ending(tries, NOBODY, **more), TODAY, TYPED_IN).select("cuid", "why").rows())


def linked(ends: date | None, cuid: str = "a") -> Try:
    return (cuid, "linked", ends)


def sound(cuid: str = "a", expiration: str = "2911", fate: str = "suppressed") -> Row:
    return (cuid, "4242", expiration, fate)


@pytest.mark.parametrize(
    ("ends", "expected"), [(SOON, {"a": None}), (PAST, {"a": None}), (LATER, {})]
)
def test_a_link_is_due_from_the_first_day_of_the_window_on(
    ends: date, expected: dict[str, str | None]
) -> None:
    assert expected == in_portfolio([linked(ends)], sound())
    assert expected == in_deltas([linked(ends)])


@pytest.mark.parametrize("ends", [SOON, PAST])
@pytest.mark.parametrize(
    ("after", "why"),
    [(("a", "awaiting", None), {"a": AWAITED}), (("a", "error", None), {"a": REFUSED}),
     (("a", "linked", LATER), {})],
)  # fmt: skip
def test_what_came_after_the_link_keeps_it_from_being_made_anew(
    ends: date, after: Try, why: dict[str, str | None]
) -> None:
    assert why == in_deltas([linked(ends), after])


def test_the_newest_row_that_a_run_has_of_a_card_is_the_one_that_is_renewed() -> None:
    links = ending([linked(PAST), ("a", "rejected", None), linked(SOON)])

    assert [("r3", 3, True)] == links.select("run", "row", "fit").rows()


def test_a_card_whose_newest_row_we_refused_waits_for_the_issuer() -> None:
    assert {"a": UNFIT} == in_deltas([linked(SOON), ("a", "rejected", None)])


def test_a_card_whose_newest_row_is_not_eligible_is_not_renewed_and_nobody_has_to_correct_it() -> (
    None
):
    tries = [linked(SOON), ("a", "rejected", None)]

    assert {"a": INELIGIBLE} == in_deltas(tries, reason=NOT_WANTED)
    assert NOT_ELIGIBLE == reason(INELIGIBLE).action


def test_a_card_whose_fields_were_typed_in_has_no_row_to_renew() -> None:
    assert {"a": TYPED_IN} == in_deltas([linked(SOON)], run="")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((), ABSENT),
        ((("b", "4242", "2911", "suppressed"),), ABSENT),
        ((("a", "1111", "2911", "suppressed"),), ABSENT),
        ((sound(fate="rejected"),), UNFIT),
        ((sound(fate="ineligible"),), INELIGIBLE),
        ((sound(fate="ineligible"), sound()), None),
        ((sound(fate="rejected"), sound(fate="submitted")), None),
        ((sound(fate="duplicate"), sound()), None),
    ],
)
def test_the_latest_extract_of_a_portfolio_says_who_is_still_there(
    rows: tuple[Row, ...], why: str | None
) -> None:
    assert {"a": why} == in_portfolio([linked(SOON)], *rows)


@pytest.mark.parametrize(
    ("ends", "expiration", "why"),
    [
        (date(2026, 11, 30), "2611", DYING),  # both end on the same day
        (date(2026, 11, 29), "2611", None),
        (date(2026, 12, 1), "2611", DYING),
        (PAST, "2610", DYING),  # expired
        (SOON, "9912", None),
    ],
)
def test_a_card_that_ends_first_gets_no_other_link(
    ends: date, expiration: str, why: str | None
) -> None:
    refused = [linked(ends), ("a", "rejected", None)]

    assert {"a": why} == in_portfolio([linked(ends)], sound(expiration=expiration))
    assert {"a": why} == in_deltas([linked(ends)], expiration=expiration)
    assert {"a": why or UNFIT} == in_deltas(refused, expiration=expiration)


@pytest.mark.parametrize(
    ("today", "why"),
    [(date(2026, 11, 29), None), (date(2026, 11, 30), None), (date(2026, 12, 1), DYING)],
)
def test_a_card_whose_link_has_ended_gets_another_until_its_own_last_day(
    today: date, why: str | None
) -> None:
    links = ending([linked(PAST)], expiration="2611")

    assert [why] == judged(links, today, ABSENT)["why"].to_list()


@pytest.mark.parametrize(
    ("ends", "why"),
    [(PAST, {}), (TODAY, {"a": ABSENT}), (SOON, {"a": ABSENT}), (LATER, {})],
)
def test_a_card_that_has_left_is_named_until_the_last_day_of_its_link(
    ends: date, why: dict[str, str]
) -> None:
    card = {"holder": "a", "last_4": "4242", "since": PAST, "closed": False, "excluded": None}
    departed = pl.DataFrame([card], NOBODY.schema)

    links = ending([linked(ends)], departed)

    assert why == dict(links.select("cuid", "why").rows())


def test_a_row_that_was_sound_is_picked_before_one_that_was_not_and_each_card_once() -> None:
    ledger = records(
        sound(fate="duplicate"), sound(), sound("b"), ("b", "4242", "3011", "submitted")
    )

    links = in_extract(ending([linked(SOON), linked(SOON, "b")]), ledger, "latest")

    assert [("a", 2, True), ("b", 3, True)] == links.sort("cuid").select(
        "cuid", "row", "fit"
    ).rows()


def test_of_rows_that_cannot_be_sent_the_first_is_named() -> None:
    ledger = records(sound("b"), sound(fate="rejected"), sound(fate="rejected"))

    links = in_extract(ending([linked(SOON)]), ledger, "latest")

    assert [("a", 2, False)] == links.select("cuid", "row", "fit").rows()


def test_nobody_has_to_do_anything_about_most_who_are_left_out() -> None:
    reasons = [reason(code) for code in (AWAITED, ABSENT, DYING)]

    assert {NOTHING} == {entry.action for entry in reasons}
    assert all(entry.hint for entry in reasons)


tries = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from(["linked", "error", "awaiting"]),
    st.integers(-3, 20).map(lambda days: TODAY + timedelta(days)),
)
rows = st.tuples(
    st.sampled_from([*"ab", None]), st.just("4242"), st.sampled_from(["2610", "2611", "2911"]),
    st.sampled_from(["submitted", "rejected", "duplicate", "suppressed"]),
)  # fmt: skip


@settings(max_examples=share_of(1), deadline=None)
@given(st.lists(tries, max_size=6), st.lists(rows, max_size=5))
def test_whoever_is_due_had_a_link_has_no_other_waits_for_nothing_and_is_there(
    attempts: list[Try], portfolio: list[Row]
) -> None:
    verdicts = in_portfolio(attempts, *portfolio)

    for due in (cuid for cuid, why in verdicts.items() if why is None):
        states = [state for cuid, state, _ in attempts if cuid == due]
        ends = [end for cuid, state, end in attempts if (cuid, state) == (due, "linked") and end]
        assert states[-1] == "linked"
        assert max(ends) <= WINDOW[1]
        assert {"submitted", "suppressed"} & {row[3] for row in portfolio if row[0] == due}
