"""Where a card stands, and its cardholder, after one attempt or several."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT, UNKNOWN_CONTENT
from flows.book.fold import fold
from flows.book.kept_links import KEPT, NONE_KEPT
from flows.book.people import balance
from flows.book.standing import standing, with_excluded
from flows.reports.unlinked import unlinked
from schemas.actions import NOTHING
from schemas.breaks import DECISIONS, LOST
from schemas.reasons import DYING, EXCLUDED_SINCE

TODAY = date(2026, 11, 20)
LINK = TODAY + timedelta(30)
LOST_ROW = DECISIONS[LOST].reason


def attempt(
    state: str, turn: int = 1, holder: str | None = "a", **more: object
) -> dict[str, object]:
    """Return one attempt as a book has it."""
    return {
        "turn": turn,
        "run": f"r{turn}",
        "holder": holder,
        "cuid": holder,
        "last_4": "1111",
        "twin": 0,
        "expiration": "2912",
        "state": state,
        "decided": False,
        "expires_on": LINK if state == "linked" else None,
        "tries": 1,
        "sendings": 1,
        **more,
    }


def cards(*attempts: dict[str, object], day: date = TODAY) -> pl.DataFrame:
    return standing(fold(pl.DataFrame([*attempts], ATTEMPT)), day)


def stands(*attempts: dict[str, object], day: date = TODAY) -> list[str]:
    """Return where the cards stand."""
    return cards(*attempts, day=day)["standing"].cast(pl.String).to_list()


def people(*attempts: dict[str, object]) -> dict[str, int]:
    """Return how many cardholders stand where."""
    counted = balance(cards(*attempts))
    return {state: number for state, number in counted.people.items() if number}


def test_the_last_attempt_counts() -> None:
    assert ["linked"] == stands(attempt("error"), attempt("awaiting", 2), attempt("linked", 3))


def test_a_refusal_takes_no_link_away() -> None:
    assert ["linked"] == stands(attempt("linked"), attempt("error", 2), attempt("rejected", 3))


@pytest.mark.parametrize(
    ("state", "name"), [("error", "not replaced"), ("rejected", "not updated")]
)
def test_a_link_that_a_refused_row_was_to_replace_or_may_change_has_the_reason_of_that_row(
    state: str, name: str
) -> None:
    card = cards(
        attempt("linked", as_of=TODAY), attempt(state, 2, as_of=TODAY, reason="card.pan.other")
    )

    assert [(name, "card.pan.other")] == [(str(card["standing"][0]), card["reason"][0])]


def test_a_link_that_stays_by_decision_stands_as_if_nothing_had_been_refused() -> None:
    folded = fold(pl.DataFrame([attempt("linked"), attempt("error", 2)], ATTEMPT))
    decision = pl.DataFrame([{"holder": "a", "last_4": "1111", "refused": "r2"}], KEPT)

    names = [str(standing(folded, TODAY, kept)["standing"][0]) for kept in (NONE_KEPT, decision)]

    assert ["not replaced", "linked"] == names


def test_of_a_card_the_issue_that_was_tried_last_is_current_whatever_its_expiry() -> None:
    issues = cards(
        attempt("linked", 2), attempt("linked", 1, expiration="3012"), attempt("linked", holder="b")
    )

    current = issues.filter("current").select("holder", "expiration").sort("holder").rows()

    assert [("a", "2912"), ("b", "2912")] == current


@pytest.mark.parametrize("content", [1, UNKNOWN_CONTENT])
def test_an_earlier_issue_that_is_sent_again_is_not_the_newest(content: int) -> None:
    earlier: dict[str, Any] = {"expiration": "2812", "as_of": TODAY}
    attempts = [
        attempt("error", 1, content=1, **earlier),
        attempt("error", 2, content=2, as_of=TODAY),
        attempt("linked", 3, content=content, **earlier),
    ]
    folded = fold(pl.DataFrame(attempts, ATTEMPT))

    issues = standing(folded, TODAY, days={1: TODAY} if content == 1 else {})

    current = issues.filter("current").select("expiration", pl.col("standing").cast(pl.String))
    assert [("2912", "refused")] == current.rows()


def test_an_extract_of_an_earlier_day_that_comes_later_brings_no_newer_issue() -> None:
    late: dict[str, Any] = {"content": 2, "expiration": "2812"}
    before = TODAY - timedelta(1)
    attempts = [attempt("error", content=1, as_of=TODAY), attempt("error", 2, as_of=before, **late)]
    again = attempt("linked", 3, as_of=TODAY, **late)
    folded = fold(pl.DataFrame([*attempts, again], ATTEMPT))

    issues = standing(folded, TODAY, days={1: TODAY, 2: before})

    assert ["2912"] == issues.filter("current")["expiration"].to_list()


def test_of_the_issues_in_one_extract_the_last_to_expire_is_current_but_for_a_corrected_one() -> (
    None
):
    both = [attempt("error", content=1, expiration=year, as_of=TODAY) for year in ("2912", "2812")]
    again = attempt("linked", 2, content=1, expiration="2812", as_of=TODAY)

    def current(*attempts: dict[str, object]) -> str:
        issues = standing(fold(pl.DataFrame([*attempts], ATTEMPT)), TODAY, days={1: TODAY})
        return str(issues.filter("current")["expiration"].item())

    assert ("2912", "2812") == (current(*both, again), current(both[0], again))


def test_a_card_has_the_columns_that_are_promised_and_no_others() -> None:
    more = ("standing", "who", "until", "linked_at", "first", "current", "action")

    assert {*ATTEMPT, *more} == set(cards(attempt("linked")).columns)


def test_what_was_never_sent_changes_nothing_where_something_was() -> None:
    assert ["refused"] == stands(attempt("error"), attempt("cancelled", 2))


def test_what_a_run_sent_counts_before_what_the_same_run_refused() -> None:
    assert ["refused"] == stands(attempt("rejected"), attempt("error"))


def test_a_link_ends_without_anything_being_written() -> None:
    assert [["linked"], ["expired"]] == [
        stands(attempt("linked"), day=day) for day in (LINK, LINK + timedelta(1))
    ]


def test_a_link_that_lives_counts_although_its_renewal_is_awaited() -> None:
    both = [attempt("linked"), attempt("awaiting", 2, wait="uploaded")]

    assert [["linked"], ["awaiting"]] == [
        stands(*both, day=day) for day in (LINK, LINK + timedelta(1))
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"wait": "waiting"}, "to upload"),
        ({"wait": "held"}, "on hold"),
        ({"wait": "uploaded"}, "awaiting"),
        ({"wait": "answered"}, "awaiting"),
        ({"wait": "single"}, "unknown"),
        ({"wait": "answered", "trouble": "LAST4_MISMATCH"}, "unsettled"),
    ],
)
def test_what_an_unanswered_row_waits_for_says_where_its_card_stands(
    more: dict[str, Any], expected: str
) -> None:
    assert [expected] == stands(attempt("awaiting", **more))


@pytest.mark.parametrize(("day", "is_work"), [(29, True), (30, True), (31, False)])
def test_a_card_that_has_to_be_sent_again_is_nobodys_work_after_its_last_day(
    day: int, *, is_work: bool
) -> None:
    refused = attempt("error", expiration="2611", reason="card.pan.other")
    today = date(2026, 11, 1) + timedelta(day - 1)

    assert [is_work] == [who != "" for who in cards(refused, day=today)["who"]]


def test_a_reissued_card_is_one_card_and_stands_where_its_newest_issue_does() -> None:
    refused = attempt("error", 2, expiration="3112", reason="cardholder.cuid.exists")
    history = cards(attempt("linked"), refused)

    assert [("2912", "linked", False), ("3112", "refused", True)] == sorted(
        history.select("expiration", pl.col("standing").cast(pl.String), "current").rows()
    )
    assert {"refused": 1} == people(attempt("linked"), refused)


def test_two_cards_that_look_the_same_in_one_run_are_two_cards() -> None:
    assert ["linked", "refused"] == sorted(stands(attempt("linked"), attempt("error", twin=1)))


def test_a_cardholder_stands_where_the_card_does_that_needs_most_attention() -> None:
    assert {"refused": 1} == people(attempt("linked"), attempt("error", last_4="2222"))


def test_a_row_without_a_readable_card_counts_only_where_its_cardholder_has_no_other() -> None:
    unreadable: dict[str, Any] = {"last_4": None, "expiration": None}
    refused = [attempt("rejected", holder=holder, **unreadable) for holder in ("a", "b", None)]

    assert {"not sent": 1, "linked": 1} == people(*refused, attempt("linked"))


@pytest.mark.parametrize(
    ("last", "who"),
    [
        ({"state": "error", "decided": True, "reason": LOST_ROW}, "operator"),
        ({"state": "error", "reason": "card.creation.unknown"}, "issuer"),
        ({"state": "cancelled"}, "operator"),
        ({"state": "linked", "expires_on": TODAY - timedelta(1)}, "operator"),
    ],
)
def test_a_card_that_has_expired_is_sent_no_more_so_nobody_acts_and_its_reason_says_so(
    last: dict[str, Any], who: str
) -> None:
    living = cards(attempt(**last, expiration="2611"))
    ended = cards(attempt(**last, expiration="2610"))

    assert living["standing"].to_list() == ended["standing"].to_list()
    assert [[who], [""]] == [each["who"].to_list() for each in (living, ended)]
    if last["state"] != "linked":  # of a link that ended the renewal says why
        assert [DYING] == unlinked(ended)["reason"].to_list()
        assert [DYING] != unlinked(living)["reason"].to_list()


def test_a_card_that_we_refused_stays_the_issuers_though_it_has_expired() -> None:
    [who] = cards(attempt("rejected", expiration="2610", reason="card.creation.unknown"))["who"]

    assert "issuer" == who


def test_the_balance_says_the_business_result_in_one_sentence() -> None:
    counted = balance(
        cards(
            attempt("linked"),
            attempt("rejected", holder="b", reason="card.pan.luhn"),
            attempt("awaiting", holder="c", wait="uploaded"),
            attempt("awaiting", holder="d", wait="waiting"),
        )
    )

    assert (
        "1 of 4 cardholders have a link; 1 waits for the issuer, 1 for the partner, 1 for you."
        == counted.sentence
    )
    assert not counted.is_done


def test_who_has_a_link_of_which_something_is_to_be_decided_is_counted_apart() -> None:
    linked = attempt("linked", name_check=1)
    changed = attempt("changed", 2, content=2, name_check=2)
    refused = attempt("rejected", holder="b", reason="card.pan.luhn")

    only = balance(cards(linked, changed))
    both = balance(cards(linked, changed, refused))

    assert "1 of 1 cardholder has a link; of those with a link, 1 waits for you." == only.sentence
    assert both.sentence == (
        "1 of 2 cardholders have a link; 1 waits for the issuer; of those with a link, "
        "1 waits for you."
    )
    assert {"issuer": 1, "partner": 0, "operator": 1} == both.waits


def test_where_nobody_waits_the_sentence_says_so() -> None:
    assert (
        "1 of 1 cardholder has a link; nobody waits." == balance(cards(attempt("linked"))).sentence
    )


def test_nobody_acts_about_a_card_that_was_refused_and_is_left_out_since() -> None:
    refused = cards(attempt("error", reason="card.pan.other"))
    linked = cards(attempt("linked"))
    of = refused.select("holder", "last_4")

    left_out, kept = (with_excluded(known, of) for known in (refused, linked))

    columns = ["who", "reason", "action"]
    assert [("", EXCLUDED_SINCE, NOTHING)] == left_out.select(columns).rows()
    assert linked.equals(kept)
