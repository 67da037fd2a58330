from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT, NO_ATTEMPTS
from flows.book.fold import fold
from flows.book.standing import standing
from flows.reports.across import across
from flows.reports.open_items import ReportTerms, WaitingChunk
from flows.reports.run_facts import RunFacts
from flows.reports.unlinked import unlinked

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TERMS = ReportTerms(NOW, 48)
ROWS = {
    "read": 10,
    "linked": 6,
    "error": 1,
    "awaiting": 3,
    "rejected": 0,
    "duplicate": 0,
    "suppressed": 0,
}


NOBODY = unlinked(standing(fold(NO_ATTEMPTS), NOW.date()))


def waiting(hours: int, missing: str = "no result", chunk: int = 1, rows: int = 3) -> WaitingChunk:
    return WaitingChunk(
        "bank-20261118-0123abcd", chunk, missing, rows, NOW - timedelta(hours=hours)
    )


def run(*chunks: WaitingChunk, day: int = 18, **changes: Any) -> RunFacts:
    reasons = {"submit": [("card.pan.luhn", 2)], "partner": [("card.pan.other", 1)]}
    whole = RunFacts(
        "r", date(2026, 11, day), "balanced", ROWS, reasons, {date(2026, 11, 25): 6}, chunks
    )
    return whole._replace(**changes)


def attempt(
    cuid: str, last_4: str | None, state: str, reason: str | None = None, turn: int = 1
) -> dict[str, object]:
    """Return one attempt as a book has it."""
    return {
        "turn": turn,
        "run": f"r{turn}",
        "cuid": cuid,
        "holder": cuid,
        "last_4": last_4,
        "twin": 0,
        "state": state,
        "reason": reason,
        "decided": False,
        "tries": 1,
        "sendings": int(state in ("linked", "error", "awaiting")),
    }


def without_link(*attempts: dict[str, object]) -> pl.DataFrame:
    """Return unlinked.csv of a book with these attempts."""
    book = fold(pl.DataFrame([*attempts], ATTEMPT))
    return unlinked(standing(book, NOW.date()))


def test_a_chunk_is_overdue_once_the_expected_time_has_passed_and_not_before() -> None:
    facts = across([run(waiting(48), waiting(49, chunk=2))], NOBODY, TERMS)

    assert {"count": 2, "rows": 6, "overdue": {"count": 1, "rows": 3}} == {
        name: facts["outstanding"][name] for name in ("count", "rows", "overdue")
    }
    assert "answers overdue" == facts["verdict"]


def test_an_answer_that_came_and_does_not_fit_is_not_silence() -> None:
    facts = across([run(waiting(500, "result unsettled"), waiting(1, chunk=2))], NOBODY, TERMS)

    assert 0 == facts["outstanding"]["overdue"]["count"]
    assert {"count": 1, "rows": 3} == facts["outstanding"]["missing"]["result unsettled"]


def test_reasons_are_told_by_business_date() -> None:
    facts = across([run(day=18), run(day=19), run(day=19)], NOBODY, TERMS)

    luhn = next(line for line in facts["reasons"] if line["code"] == "card.pan.luhn")
    assert (6, {"2026-11-18": 2, "2026-11-19": 4}) == (luhn["rows"], luhn["nights"])


def test_links_about_to_expire_are_counted_from_today_whenever_they_were_reported() -> None:
    facts = across([run(), run()], NOBODY, TERMS)

    assert [("within 7 days", 12)] == [
        (step["when"], step["links"]) for step in facts["links"] if step["links"]
    ]


def test_a_cardholder_linked_or_waiting_in_any_run_is_not_without_a_link() -> None:
    cards_left = without_link(
        attempt("a", "1111", "error", "x.y.z"),
        attempt("b", "2222", "error", "x.y.z"),
        attempt("a", "1111", "linked", turn=2),
    )

    assert ["b"] == cards_left["cuid"].to_list()


def test_another_card_of_the_same_cardholder_still_needs_its_link() -> None:
    cards_left = without_link(
        attempt("a", "1111", "linked"), attempt("a", "9999", "error", "card.pan.other")
    )

    assert [("a", "9999")] == cards_left.select("cuid", "last_4").rows()


def test_a_row_refused_before_its_card_was_readable_is_settled_by_any_card_of_its_cardholder() -> (
    None
):
    cards_left = without_link(
        attempt("a", "1111", "linked"),
        attempt("a", None, "rejected", "card.pan.missing"),
        attempt("b", None, "rejected", "card.pan.missing"),
    )

    assert ["b"] == cards_left["cuid"].to_list()


def test_the_reason_of_most_cardholders_comes_first_and_of_equal_ones_the_first_by_name() -> None:
    reasons = {"a": "x.c", "b": "x.b", "c": "x.b", "d": "x.a"}
    cards = without_link(*(attempt(cuid, "1111", "error", code) for cuid, code in reasons.items()))

    listed = across([run()], cards, TERMS)["unlinked"]["reasons"]

    assert [("x.b", 2), ("x.a", 1), ("x.c", 1)] == [
        (line["code"], line["cardholders"]) for line in listed
    ]


def test_attempts_are_counted_and_the_last_one_says_why() -> None:
    cards_left = without_link(
        attempt("=a", "1111", "rejected", "card.pan.luhn"),
        attempt("=a", "1111", "error", "card.pan.other", turn=2),
    )

    assert [
        ("=a", "1111", 2, 1, "r2", "partner", "card.pan.other", "ask the partner")
    ] == cards_left.drop("since").rows()


@pytest.mark.parametrize(
    ("late", "missing", "is_overdue"),
    [(0, "no result", False), (1, "no result", True), (1, "no usable answer", False)],
)
def test_an_answer_is_overdue_once_its_hours_are_over_and_one_that_came_is_not(
    late: int, missing: str, is_overdue: bool
) -> None:
    chunk = waiting(48, missing)
    since = chunk.since - timedelta(seconds=late)

    assert is_overdue == TERMS.overdue(chunk._replace(since=since))
