"""Who goes out again, decided from what is known: nobody who is linked or awaiting."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.resend.selection import EXCLUDED, RECHECKED, SELECTED, decide
from flows.runs.frames import shaped
from flows.submissions.row_scope import PICK
from schemas.portal import CITY, COUNTRY, PAN

VERDICT = ("row", "cuid", "last_4", "fate", "reasons")


def asked(*rows: tuple[int, str | None, str | None]) -> pl.DataFrame:
    """Return rows asked for: number, cuid, last_4."""
    return pl.DataFrame(
        [(*row, "error", [], None, False, False) for row in rows], SELECTED, orient="row"
    )


def tried(*rows: tuple[int, str | None, str | None, str, list[str]]) -> pl.DataFrame:
    """Return what the rules say: row, cuid, last_4, fate, reasons."""
    rows_of = pl.DataFrame(rows, {name: RECHECKED[name] for name in VERDICT}, orient="row")
    return shaped(rows_of, RECHECKED)


def picks(*rows: tuple[int, int]) -> pl.DataFrame:
    """Return rows of the source and the rows asked for that they are."""
    return pl.DataFrame(rows, PICK, orient="row")


def stand(*rows: tuple[int, str, str]) -> pl.DataFrame:
    """Return what blocks rows: origin, state, run."""
    schema = {"origin": pl.UInt32, "stands": pl.String, "where": pl.String}
    return pl.DataFrame(rows, schema, orient="row")


def corrected(*rows: int) -> pl.Series:
    """Return the rows that were corrected."""
    return pl.Series(rows, dtype=pl.UInt32)


def test_each_row_that_stays_has_one_reason() -> None:
    rows = asked(*((at, f"c{at}", "1111") for at in range(1, 10)))
    now = tried(
        (1, "c1", "1111", "submitted", []),
        (2, "c2", "1111", "submitted", []),
        (3, "c3", "1111", "rejected", [f"{PAN}|card.pan.missing", f"{CITY}|address.city.missing"]),
        (4, "c4", "1111", "rejected", [f"{CITY}|address.city.missing"]),
        (5, "c5", "1111", "rejected", [f"{CITY}|address.city.missing"]),
        (6, "c6", "1111", "duplicate", ["|row.content.repeated"]),
        (7, "c7", "1111", "ineligible", [f"{COUNTRY}|address.country.not_served"]),
        (8, "c8", "1111", "suppressed", ["|row.filter.excluded"]),
    )
    facts = (
        rows,
        picks(*((at, at) for at in range(1, 9))),
        now,
        stand((2, "linked", "r9")),
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
        (7, "is not eligible for a link", None),
        (8, EXCLUDED, None),
        (9, "not in the corrected extract", None),
    ] == found.select("origin", "why", "where").rows()


def test_an_override_lifts_what_stands_but_never_what_it_sent_itself() -> None:
    rows = asked((1, "a", "1111"), (2, "b", "2222"))
    now = tried((1, "a", "1111", "submitted", []), (2, "b", "2222", "submitted", []))
    blocked = stand((1, "linked", "r1"), (2, "awaiting", "r2"))
    facts = (rows, picks((1, 1), (2, 2)), now, blocked, corrected())

    found = decide(*facts, frozenset({"r2"}))

    assert [(1, None, "r1", True), (2, "awaiting", "r2", False)] == found.select(
        "origin", "why", "where", "over"
    ).rows()


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["submitted", "rejected"]), max_size=6),
    st.frozensets(st.integers(1, 6)),
)
def test_no_row_that_is_blocked_goes_out_and_every_row_asked_for_is_told_once(
    fates: list[str], blocked: frozenset[int]
) -> None:
    numbers = range(1, len(fates) + 1)
    facts = (
        asked(*((number, f"c{number}", "1111") for number in numbers)),
        picks(*((number + 10, number) for number in numbers)),
        tried(*((number + 10, "c", "1111", fates[number - 1], []) for number in numbers)),
        stand(*((number, "linked", "r1") for number in sorted(blocked))),
        corrected(),
    )

    decided = decide(*facts)

    going = decided.filter(pl.col("why").is_null())["origin"]
    assert list(numbers) == decided["origin"].to_list()
    assert not blocked & set(going)
    assert not decided["over"].any()
