"""Whose link is made anew, and why the others' are not."""

from __future__ import annotations

from datetime import date, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.resend.renewal import ABSENT, DYING, HAD, RENEWED, UNFIT, expiring
from flows.runs.prior_state import ATTEMPT, AWAITED, REFUSED
from schemas.actions import NOTHING
from schemas.reasons import reason
from tests.builders import share_of

TODAY = date(2026, 11, 20)
WINDOW = (TODAY, TODAY + timedelta(days=14))
SOON, LATER, PAST = WINDOW[1], WINDOW[1] + timedelta(days=1), TODAY - timedelta(days=1)
Try = tuple[str, str, str, date | None]
TRIED = {name: ATTEMPT[name] for name in HAD}
ROWS = {
    "row": pl.UInt32,
    "cuid": pl.String,
    "last_4": pl.String,
    "expiration": pl.String,
    "fate": pl.String,
}


def verdicts(tries: list[Try], *rows: tuple[str | None, str, str, str]) -> dict[str, str | None]:
    """Return why each card concerned is left out, None where it is due; `rows`: cuid, last_4,
    expiration, fate.
    """
    numbered = pl.DataFrame([(at, *row) for at, row in enumerate(rows, 1)], ROWS, orient="row")
    found = expiring([pl.DataFrame([one], TRIED, orient="row") for one in tries], numbered, *WINDOW)
    return dict(found.select("cuid", "why").rows())


def linked(ends: date | None, cuid: str = "a") -> Try:
    return (cuid, "4242", "linked", ends)


def sound(
    cuid: str = "a", expiration: str = "2911", fate: str = "suppressed"
) -> tuple[str | None, str, str, str]:
    return (cuid, "4242", expiration, fate)


@pytest.mark.parametrize(
    ("ends", "expected"), [(SOON, {"a": None}), (PAST, {"a": None}), (LATER, {})]
)
def test_a_link_is_due_from_the_first_day_of_the_window_on(
    ends: date, expected: dict[str, str | None]
) -> None:
    assert expected == verdicts([linked(ends)], sound())


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (("a", "4242", "awaiting", None), AWAITED),
        (("a", "4242", "error", None), REFUSED),
        (("a", "4242", "linked", LATER), RENEWED),
    ],
)
def test_what_came_after_the_link_keeps_it_from_being_made_anew(after: Try, why: str) -> None:
    assert {"a": why} == verdicts([linked(SOON), after], sound())


def test_a_link_replaced_long_ago_is_not_even_told() -> None:
    assert {} == verdicts([linked(PAST), linked(LATER)], sound())


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((), ABSENT),
        ((("b", "4242", "2911", "suppressed"),), ABSENT),
        ((("a", "1111", "2911", "suppressed"),), ABSENT),
        ((sound(fate="rejected"),), UNFIT),
        ((sound(fate="rejected"), sound(fate="submitted")), None),
        ((sound(fate="duplicate"), sound()), None),
    ],
)
def test_the_latest_extract_says_who_is_still_there(
    rows: tuple[tuple[str | None, str, str, str], ...], why: str | None
) -> None:
    assert {"a": why} == verdicts([linked(SOON)], *rows)


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
    assert {"a": why} == verdicts([linked(ends)], sound(expiration=expiration))


def test_a_row_that_was_sound_is_picked_before_one_that_was_not_and_each_card_once() -> None:
    ledger = pl.DataFrame(
        [(1, *sound(fate="duplicate")), (2, *sound()), (3, *sound()), (4, *sound("b"))],
        ROWS,
        orient="row",
    )
    tries = pl.DataFrame([linked(SOON), linked(SOON, "b")], TRIED, orient="row")

    found = expiring([tries], ledger, *WINDOW)

    assert [("a", 2, None), ("b", 4, None)] == found.select("cuid", "row", "why").rows()


def test_nobody_has_to_do_anything_about_most_who_are_left_out() -> None:
    told = {code: reason(code) for code in (AWAITED, RENEWED, ABSENT, DYING)}

    assert {NOTHING} == {one.action for one in told.values()}
    assert all(one.hint for one in told.values())


tries = st.tuples(
    st.sampled_from("ab"),
    st.just("4242"),
    st.sampled_from(["linked", "error", "awaiting"]),
    st.integers(-3, 20).map(lambda days: TODAY + timedelta(days)),
)
rows = st.tuples(
    st.sampled_from([*"ab", None]), st.just("4242"), st.sampled_from(["2610", "2611", "2911"]),
    st.sampled_from(["submitted", "rejected", "duplicate", "suppressed"]),
)  # fmt: skip


@settings(max_examples=share_of(3), deadline=None)
@given(st.lists(tries, max_size=6), st.lists(rows, max_size=5))
def test_whoever_is_due_had_a_link_has_no_other_waits_for_nothing_and_is_there(
    made: list[Try], there: list[tuple[str | None, str, str, str]]
) -> None:
    found = verdicts(made, *there)

    for cuid in (cuid for cuid, why in found.items() if why is None):
        mine = [one for one in made if one[0] == cuid]
        ends = [one[3] for one in mine if one[2] == "linked" and one[3]]
        assert mine[-1][2] == "linked"
        assert max(ends) <= WINDOW[1]
        assert {"submitted", "suppressed"} & {row[3] for row in there if row[0] == cuid}
