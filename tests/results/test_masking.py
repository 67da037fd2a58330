"""Nothing that is stored of a foreign text holds a card number, a CVV or a formula."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.redaction import MASK
from flows.results.masking import LONGEST, mask, storable
from flows.runs.frames import csv_pieces


@pytest.mark.parametrize("separator", ["", " ", "-", ".", "/", "\u00a0", " - ", "&", "\u2013"])
def test_a_card_number_is_masked_whatever_separates_its_digits(separator: str) -> None:
    card = separator.join(("4242", "4242", "4242", "4242"))

    assert f"card {MASK} is invalid" == mask(f"card {card} is invalid")


@pytest.mark.parametrize(
    "text", ["cvv 123", "CVV: '007'", "security code is 1234", "cvc=999", 'cvv2 value "123"']
)
def test_a_cvv_is_masked_where_the_text_calls_it_one(text: str) -> None:
    assert not any(
        character.isdigit() for character in mask(text).replace("cvv2", "").replace("CVV2", "")
    )


def test_the_hash_of_a_cvv_is_masked_because_it_is_a_cvv() -> None:
    assert f"got {MASK}" == mask("got pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM=")


def test_a_postal_code_and_a_phone_number_stay_readable() -> None:
    assert "postal_code 02108-1234 is invalid, not 617 555 0100" == mask(
        "postal_code 02108-1234 is invalid, not 617 555 0100"
    )


@given(st.text(), st.from_regex(r"\A[0-9]{13,19}\Z"), st.text())
def test_no_run_of_thirteen_digits_survives(before: str, digits: str, after: str) -> None:
    told = mask(before + digits + after)

    assert digits not in told
    assert len(told) <= LONGEST


def test_a_foreign_cell_that_looks_like_a_card_number_is_not_stored() -> None:
    cells = pl.DataFrame({"cuid": ["c-1", "4242 4242 4242 4242", None, "20261120-77"]})

    assert ["c-1", None, None, "20261120-77"] == cells.select(storable("cuid"))["cuid"].to_list()


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_formula_is_text_in_a_spreadsheet(formula: str) -> None:
    cells = pl.DataFrame({"row": [1, 2, 3], "message": [formula, "fine", None]})

    written = b"".join(csv_pieces([cells], cells.columns))

    assert [f"'{formula}", "fine", None] == pl.read_csv(written)["message"].to_list()


def test_the_cells_of_what_is_sent_to_other_systems_are_unchanged() -> None:
    cells = pl.DataFrame({"cuid": ["=1+1"]})

    assert b"cuid\n=1+1\n" == b"".join(csv_pieces([cells], ["cuid"], unchanged=True))
