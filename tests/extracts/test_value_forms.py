"""How dates are written, where zeros were lost or a time of day stands behind them."""

from __future__ import annotations

from datetime import date

import pytest

from flows.extensions.init.column_signs import EXPIRY, written_as
from flows.extensions.init.guess import Column
from flows.extensions.init.value_forms import Step, date_forms

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


MONTHS = [(month, year) for year in (2027, 2028, 2029) for month in range(1, 13)]


@pytest.mark.parametrize(
    ("written", "forms"),
    [
        ("01/{0:02}/{1}", ["DD/MM/YYYY", "MM/DD/YYYY"]),
        ("01.{0:02}.{1}", ["DD.MM.YYYY", "MM.DD.YYYY"]),
        ("01-{0:02}-{1}", ["DD-MM-YYYY", "MM-DD-YYYY"]),
        ("01{0:02}{1}", ["DDMMYYYY", "MMDDYYYY"]),
        ("1.{0}.{1}", ["DD.MM.YYYY", "MM.DD.YYYY"]),
        ("{0:02}/01/{1}", ["MM/DD/YYYY", "DD/MM/YYYY"]),
        ("{1}01{0:02}", ["YYYYDDMM", "YYYYMMDD"]),
        ("{1}-01-{0:02}", ["YYYY-DD-MM", "YYYY-MM-DD"]),
        ("{1}{0:02}01", ["YYYYMMDD"]),
        ("{1}-{0:02}-01", ["YYYY-MM-DD"]),
        ("{0:02}/28/{1}", ["MM/DD/YYYY"]),
        ("{0:02}{1}", ["MMYYYY"]),
        ("{1}{0:02}", ["YYYYMM"]),
    ],
)
def test_the_part_that_never_varies_is_rather_the_day_and_what_fits_as_well_is_a_doubt(
    written: str, forms: list[str]
) -> None:
    values = [written.format(month, year) for month, year in MONTHS]

    assert forms == date_forms(values, TODAY).forms


@pytest.mark.parametrize(
    ("days", "forms"),
    [(range(1, 13), ["DD/MM/YYYY", "MM/DD/YYYY"]), (range(1, 29), ["MM/DD/YYYY"])],
)
def test_cards_that_all_end_in_one_month_are_a_doubt_until_a_day_is_beyond_twelve(
    days: range, forms: list[str]
) -> None:
    values = [f"12/{day:02}/2027" for day in days]

    assert forms == date_forms(values, TODAY).forms


@pytest.mark.parametrize("mark", ["", "/", "-"])
def test_a_month_with_two_digits_of_a_year_has_one_order(mark: str) -> None:
    month_first = [f"{month:02}{mark}{year % 100}" for month, year in MONTHS]
    year_first = [f"{year % 100}{mark}{month:02}" for month, year in MONTHS]

    assert [f"MM{mark}YY"] == date_forms(month_first, TODAY).forms
    assert [f"YY{mark}MM"] == date_forms(year_first, TODAY).forms


@pytest.mark.parametrize(
    ("header", "forms"),
    [("EXP", 2), ("EXP_DDMMYYYY", 1), ("Expiry (DD/MM/YYYY)", 1), ("EXP_MMYY", 2)],
)
def test_a_header_that_has_the_form_decides_between_two(header: str, forms: int) -> None:
    values = tuple(f"01/{month:02}/{year}" for month, year in MONTHS)

    written = written_as(Column(f'from = "{header}"', header, values), EXPIRY, TODAY)

    assert (forms, True) == (len(written), "DD/MM/YYYY" in written[0])
