"""Who goes out again, decided from what is known: nobody who is linked or awaiting."""

from __future__ import annotations

from datetime import date

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.resend.selection import RECHECKED, SELECTED, STANDING, active_attempts, cards, decide
from flows.submissions.row_scope import PICK
from schemas.portal import CITY, PAN

TODAY = date(2026, 11, 20)


def asked(*rows: tuple[int, str | None, str | None]) -> pl.DataFrame:
    """Return rows asked for: number, cuid, last_4."""
    return pl.DataFrame([(*row, "error", [], None, False) for row in rows], SELECTED, orient="row")


def tried(*rows: tuple[int, str | None, str | None, str, list[str]]) -> pl.DataFrame:
    """Return what the rules say: row, cuid, last_4, fate, reasons."""
    return pl.DataFrame(rows, RECHECKED, orient="row")


def picks(*rows: tuple[int, int]) -> pl.DataFrame:
    """Return rows of the source and the rows asked for that they are."""
    return pl.DataFrame(rows, PICK, orient="row")


def stand(*rows: tuple[str, str, str, str]) -> pl.DataFrame:
    """Return what stands: run, cuid, last_4, state."""
    return pl.DataFrame(rows, STANDING, orient="row")


def corrected(*rows: int) -> pl.Series:
    """Return the rows that were corrected."""
    return pl.Series(rows, dtype=pl.UInt32)


def test_awaiting_and_linked_stand_in_the_way_until_the_link_ends() -> None:
    attempts = pl.DataFrame(
        {
            "run": ["r1", "r2", "r3", "r4", "r5"],
            "cuid": ["a", "b", "c", "d", "e"],
            "last_4": ["1"] * 5,
            "state": ["awaiting", "linked", "linked", "linked", "error"],
            "expires_on": [None, TODAY, date(2026, 11, 19), None, None],
        }
    )

    assert ["r1", "r2", "r4"] == active_attempts(attempts, TODAY)["run"].to_list()


def test_a_row_is_held_against_the_card_it_was_and_the_card_it_would_be() -> None:
    found = cards(
        asked((1, "old", "1111"), (2, None, None)),
        picks((7, 1)),
        tried((7, "new", "2222", "submitted", [])),
    )

    assert {(1, "old", "1111"), (1, "new", "2222")} == set(found.rows())


def test_each_row_that_stays_has_one_reason() -> None:
    rows = asked(*((at, f"c{at}", "1111") for at in range(1, 8)))
    now = tried(
        (1, "c1", "1111", "submitted", []),
        (2, "c2", "1111", "submitted", []),
        (3, "c3", "1111", "rejected", [f"{PAN}|card.pan.missing", f"{CITY}|address.city.missing"]),
        (4, "c4", "1111", "rejected", [f"{CITY}|address.city.missing"]),
        (5, "c5", "1111", "rejected", [f"{CITY}|address.city.missing"]),
        (6, "c6", "1111", "duplicate", ["|row.content.repeated"]),
    )
    facts = (
        rows,
        picks(*((at, at) for at in range(1, 7))),
        now,
        stand(("r9", "c2", "1111", "linked")),
        corrected(5),
    )

    found = decide(*facts)

    assert [
        (1, None, None),
        (2, "linked", "r9"),
        (3, "card fields are corrected at the source only", None),
        (4, "would be refused as before", None),
        (5, None, None),
        (6, "repeats another of these rows", None),
        (7, "not in the corrected extract", None),
    ] == found.select("origin", "why", "where").rows()


def test_an_override_lifts_what_stands_but_never_what_it_sent_itself() -> None:
    rows = asked((1, "a", "1111"), (2, "b", "2222"))
    now = tried((1, "a", "1111", "submitted", []), (2, "b", "2222", "submitted", []))
    attempts = [
        ("r1", "a", "1111", "linked"),
        ("r2", "b", "2222", "awaiting"),
        ("r3", "b", "2222", "linked"),
    ]
    facts = (rows, picks((1, 1), (2, 2)), now, stand(*attempts), corrected())

    found = decide(*facts, frozenset({"r2"}))

    assert [(1, None, "r1", True), (2, "awaiting", "r2", False)] == found.select(
        "origin", "why", "where", "over"
    ).rows()


CARD = st.tuples(st.sampled_from("abc"), st.sampled_from(["1111", "2222"]))


@settings(deadline=None)
@given(
    st.lists(CARD, max_size=6),
    st.lists(CARD, min_size=6, max_size=6),
    st.lists(st.tuples(CARD, st.sampled_from(["linked", "awaiting"])), max_size=4),
    st.frozensets(st.sampled_from(["submitted", "rejected"]), min_size=1),
)
def test_no_card_that_stands_goes_out_and_every_row_asked_for_is_told_once(
    before: list[tuple[str, str]],
    now: list[tuple[str, str]],
    attempts: list[tuple[tuple[str, str], str]],
    fates: frozenset[str],
) -> None:
    numbers = range(1, len(before) + 1)
    fate = sorted(fates)
    facts = (
        asked(*((at, *card) for at, card in zip(numbers, before, strict=True))),
        picks(*((at + 10, at) for at in numbers)),
        tried(*((at + 10, *now[at - 1], fate[at % len(fate)], []) for at in numbers)),
        stand(*((f"r{at}", *card, state) for at, (card, state) in enumerate(attempts))),
        corrected(),
    )

    found = decide(*facts)

    standing_cards = {card for card, _ in attempts}
    going = found.filter(pl.col("why").is_null())["origin"]
    assert list(numbers) == found["origin"].to_list()
    assert not [at for at in going if {before[at - 1], now[at - 1]} & standing_cards]
    assert not found["over"].any()
