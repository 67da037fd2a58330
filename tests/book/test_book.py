"""What a book answers about its cards, from attempts in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT
from flows.book.book import Book
from flows.book.departures import NOBODY as NOBODY_LEFT
from flows.book.given_up import GIVEN_UP, NOBODY
from flows.book.kept_links import NONE_KEPT
from flows.book.stages import NO_STAGES
from tests.book.test_standing import LINK, TODAY, attempt

CARD_OF_A = pl.DataFrame([{"holder": "a", "last_4": "1111"}], GIVEN_UP)


def book(*attempts: dict[str, object], given_up: pl.DataFrame = NOBODY) -> Book:
    """Return the book with these attempts, of whose cards nobody has left."""
    return Book(
        "bank",
        0,
        TODAY,
        pl.DataFrame([*attempts], ATTEMPT),
        NOBODY_LEFT,
        lambda: NO_STAGES,
        given_up,
        NONE_KEPT,
    )


@pytest.mark.parametrize(
    ("state", "ask", "refused"),
    [
        ("rejected", Book.not_updated, "r2"),
        ("error", Book.not_replaced, "r2"),
        ("changed", Book.changes, ""),
    ],
)
def test_what_a_newer_row_says_of_a_card_names_the_run_of_its_link(
    state: str, ask: Callable[[Book, pl.DataFrame], pl.DataFrame], refused: str
) -> None:
    linked = attempt("linked", content=1, as_of=TODAY, name_check=1, address_check=1)
    newer = attempt(state, 2, content=2, as_of=TODAY, name_check=2, address_check=1)
    asked = book(linked, newer)

    rows = ask(asked, asked.cards(TODAY))

    assert [("r1", refused)] == rows.select("link", "refused").rows()


@pytest.mark.parametrize(
    ("wait", "others", "is_over"),
    [
        ("uploaded", [], True),
        ("answered", [], True),
        ("waiting", [], False),
        ("held", [], False),
        ("uploaded", ["b"], False),
    ],
)
def test_an_uploaded_chunk_is_given_up_where_all_who_wait_for_it_are(
    wait: str, others: list[str], *, is_over: bool
) -> None:
    waiting = [attempt("awaiting", holder=holder, chunk=1, wait=wait) for holder in ("a", *others)]
    linked = attempt("linked", holder="c", chunk=1)

    chunks = book(*waiting, linked, given_up=CARD_OF_A).given_up_chunks

    assert ({("r1", 1)} if is_over else set()) == chunks


def test_a_card_is_active_twice_where_two_links_live_of_what_was_sent_last() -> None:
    def linked(turn: int, holder: str = "a", **more: object) -> dict[str, object]:
        facts = {"renewal": False, "address_check": 1, **more}
        return attempt("linked", turn, holder, **facts)

    names = {1: 1, 2: 2, 3: 2}
    repeated = [linked(turn, cuid=f"c{turn}", name_check=name) for turn, name in names.items()]
    renamed = [linked(turn, "b", name_check=turn) for turn in (1, 2)]
    renewed = [linked(turn, "c", renewal=turn > 1) for turn in (1, 2)]
    cards = book(*repeated, *renamed, *renewed)

    assert [("c1", "1111", "2912", "r2 r3")] == cards.active_twice(LINK).rows()
    assert [] == cards.active_twice(LINK + timedelta(1)).rows()
