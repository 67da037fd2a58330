"""Which rows are asked for: every part of the wish adds rows."""

from __future__ import annotations

import polars as pl
import pytest

from flows.resend.selection import SELECTED, RowSelection, select_rows
from flows.results.row_states import RUN_ROW
from schemas.portal import CITY, PAN
from schemas.reasons import CHANGED

ROWS = pl.DataFrame(
    [
        (1, None, "a", "1111", "linked", []),
        (2, None, "b", "2222", "error", ["address.postal_code.format"]),
        (3, None, "c", "3333", "error", ["cardholder.cuid.unavailable"]),
        (4, None, "d", "4444", "awaiting", None),
        (5, None, "e", "5555", "cancelled", None),
        (
            6,
            None,
            "f",
            None,
            "rejected",
            [f"{CITY}|address.city.missing", f"{PAN}|card.pan.missing"],
        ),
        (7, None, "g", "7777", "duplicate", ["|row.content.repeated"]),
        (8, None, "h", "8888", "suppressed", [f"|{CHANGED}"]),
        (9, None, "i", "9999", "suppressed", [f"|{CHANGED}", "|card.link.standing"]),
    ],
    {name: kind for name, kind in RUN_ROW.items() if name not in ("line", "found")},
    orient="row",
)


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (RowSelection(errors=True), [2, 3]),
        (RowSelection(rejects=True), [6]),
        (RowSelection(missing=True), [4, 5]),
        (RowSelection(rows=frozenset({1, 7, 99})), [1, 7]),
        (RowSelection(codes=frozenset({"address"})), [2, 6]),
        (RowSelection(codes=frozenset({"address.postal_code"})), [2]),
        (RowSelection(codes=frozenset({"card.pan.missing"})), [6]),
        (RowSelection(codes=frozenset({"address.post"})), []),
        (RowSelection(codes=frozenset({"row.chunk.cancelled"})), [5]),
        (RowSelection(actions=frozenset({"resubmit as is"})), [3]),
        (RowSelection(actions=frozenset({"nothing"})), [7]),
        (RowSelection(errors=True, rejects=True, rows=frozenset({1})), [1, 2, 3, 6]),
        (RowSelection(), []),
    ],
)
def test_every_part_of_a_wish_adds_rows(wanted: RowSelection, rows: list[int]) -> None:
    found = select_rows(ROWS, wanted)

    assert rows == found["row"].to_list()
    assert dict(found.schema) == {
        name: pl.DataFrame(schema=SELECTED).schema[name] for name in SELECTED
    }


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        # a change that was held back, or cancelled on its way
        (RowSelection(changed=True), [(5, True), (8, True)]),
        (RowSelection(replacing=True), [(3, True)]),
        (RowSelection(errors=True), [(2, False), (3, False)]),
    ],
)
def test_rows_that_are_to_replace_a_link_are_asked_for_as_such(
    wanted: RowSelection, rows: list[tuple[int, bool]]
) -> None:
    found = select_rows(ROWS, wanted, replacing=[3, 4, 5])

    assert rows == found.select("row", "replaces").rows()


def test_what_is_named_is_told_from_what_is_of_a_kind() -> None:
    found = select_rows(
        ROWS, RowSelection(errors=True, missing=True, rows=frozenset({3})), corrected=frozenset({6})
    )

    assert [(2, False), (3, True), (4, True), (5, True), (6, False)] == found.select(
        "row", "named"
    ).rows()


def test_the_reason_is_the_first_that_refused_it() -> None:
    found = select_rows(ROWS, RowSelection(rejects=True, missing=True))

    assert [None, None, "address.city.missing"] == found["reason"].to_list()
