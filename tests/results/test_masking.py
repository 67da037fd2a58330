"""Nothing that is stored of a foreign text holds a card number, a CVV or a formula."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.results.masking import LONGEST, mask, mask_host, mask_key, storable
from flows.runs.frames import csv_pieces

PARTS_OF_NAMES = (
    *("bank", "card", "cvv", "Jane", ".csv", "-", "_", " ", "[", "]", "e3", "é"),
    *("20261120", "1234", "12 34 56 78", "4000000000000002", "[9 digits]"),
)


@given(st.text(), st.from_regex(r"\A[0-9]{13,19}\Z"), st.text())
def test_no_run_of_thirteen_digits_survives(before: str, digits: str, after: str) -> None:
    told = mask(before + digits + after)

    assert digits not in told
    assert len(told) <= LONGEST


@given(st.text() | st.lists(st.sampled_from(PARTS_OF_NAMES)).map("".join))
def test_what_is_kept_of_a_name_is_kept_of_itself_marks_apart(name: str) -> None:
    kept = mask_key(name)

    assert "[" in kept or kept == mask_key(kept)


def test_of_a_foreign_cell_what_is_harmless_is_stored() -> None:
    cells = pl.DataFrame(
        {"cuid": ["c-1", "4242 4242 4242 4242", None, "customer-12345678", "2027-01-20", "k9Xz3"]}
    )

    stored = cells.select(storable("cuid"))["cuid"].to_list()

    expected = ["c-1", "[16 digits]", None, "customer-12345678", "2027-01-20", "[5 characters]"]
    assert expected == stored


def test_the_host_of_a_shop_is_kept_and_nothing_else_that_is_said_to_be_one() -> None:
    assert "www.shop4you.example.com" == mask_host("www.shop4you.example.com")
    assert "[16 digits]" == mask_host("4242424242424242")
    assert "[link]" == mask_host("shop.example.com/4242424242424242")


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_formula_is_text_in_a_spreadsheet(formula: str) -> None:
    cells = pl.DataFrame({"row": [1, 2, 3], "message": [formula, "fine", None]})

    written = b"".join(csv_pieces([cells], cells.columns))

    assert [f"'{formula}", "fine", None] == pl.read_csv(written)["message"].to_list()


def test_the_cells_of_what_is_sent_to_other_systems_are_unchanged() -> None:
    cells = pl.DataFrame({"cuid": ["=1+1"]})

    assert b"cuid\n=1+1\n" == b"".join(csv_pieces([cells], ["cuid"], unchanged=True))
