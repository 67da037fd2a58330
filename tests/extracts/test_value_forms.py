"""How dates are written, where zeros were lost or a time of day stands behind them."""

from __future__ import annotations

from datetime import date

import pytest

from flows.extracts.value_forms import Step, date_forms

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("values", "step", "form"),
    [
        (["126", "1227"], Step(pad=4), "MMYY"),
        (["10126", "121326"], Step(pad=6), "MMDDYY"),
        (["1012026", "12132026"], Step(pad=8), "MMDDYYYY"),
        (["1226", "1227"], Step(), "MMYY"),
        (["2026-11-20 10:00", "2026-01-02 11:00"], Step(cut=10), "YYYY-MM-DD"),
    ],
)
def test_dates_are_read_with_the_zeros_that_a_spreadsheet_took_and_without_their_time(
    values: list[str], step: Step, form: str
) -> None:
    assert (step, [form]) == date_forms(values, TODAY)


@pytest.mark.parametrize("values", [["12", "123"], ["1012", "10122026"], ["26", "126", "1227"]])
def test_numbers_of_other_lengths_are_no_dates_that_lost_a_zero(values: list[str]) -> None:
    assert (Step(), []) == date_forms(values, TODAY)
