"""Limits and precedence of what is guessed of an extract: the limit and its neighbours, and which of
two readings wins, by the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest

from flows.extensions.init import (
    column_guesses,
    column_signs,
    status_guess,
    value_forms,
)
from flows.extensions.init.guess import Column
from flows.extracts import status_words

TODAY = date(2026, 11, 20)


def column(*values: str, name: str = "X") -> Column:
    return Column(f'from = "{name}"', name, values)


def many(text: str, times: int, other: str, others: int) -> list[str]:
    return [text] * times + [other] * others


# Dates and names
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "step"),
    [
        (["116", "1226"], (4, 0)),
        (["1126", "11226"], (0, 0)),
        (["11126", "111226"], (6, 0)),
        (["1112026", "11112026"], (8, 0)),
        (["116", "11226"], (0, 0)),
        (["1126", "1226"], (0, 0)),
    ],
)
def test_dates_of_two_sizes_have_lost_a_zero_where_the_longer_is_a_date(
    values: Sequence[str], step: tuple[int, int]
) -> None:
    assert step == value_forms._step(values)


@pytest.mark.parametrize(("year", "share"), [("15", 0.0), ("16", 1.0), ("46", 1.0), ("47", 0.0)])
def test_a_card_expires_from_ten_years_ago_to_twenty_ahead(year: str, share: float) -> None:
    assert share == value_forms.share_of_dates([f"01/{year}"], "MM/YY", TODAY)


def test_dates_have_a_form_where_more_than_half_have_it_and_all_forms_that_fit_as_well() -> None:
    half, most = many("11/27", 1, "x", 1), many("11/27", 2, "x", 1)
    either = ["01/02/2027"] * 49
    last = ["01/31/2027"]

    assert [] == value_forms.date_forms(half, TODAY).forms
    assert ["MM/YY"] == value_forms.date_forms(most, TODAY).forms
    assert ["MM/DD/YYYY"] == value_forms.date_forms([*either, *last], TODAY).forms
    assert ["MM/DD/YYYY", "DD/MM/YYYY"] == value_forms.date_forms(
        [*either, *either, *last], TODAY
    ).forms


@pytest.mark.parametrize(
    ("with_comma", "forms"),
    [
        (10, ["FIRST LAST", "LAST FIRST"]),
        (11, ["LAST, FIRST", "FIRST LAST"]),
        (19, ["LAST, FIRST", "FIRST LAST"]),
        (20, ["LAST, FIRST"]),
    ],
)
def test_names_have_the_last_one_first_where_nearly_all_have_a_comma(
    with_comma: int, forms: list[str]
) -> None:
    assert forms == value_forms.name_forms(many("Smith, Q", with_comma, "Qq", 20 - with_comma))


@pytest.mark.parametrize(
    ("first", "last", "orders"),
    [
        (3, 0, ["FIRST LAST"]),
        (2, 0, ["FIRST LAST", "LAST FIRST"]),
        (5, 1, ["FIRST LAST"]),
        (4, 1, ["FIRST LAST", "LAST FIRST"]),
        (1, 4, ["LAST FIRST", "FIRST LAST"]),
        (1, 5, ["LAST FIRST"]),
        (1, 1, ["FIRST LAST", "LAST FIRST"]),
    ],
)
def test_the_order_of_names_is_clear_where_first_names_stand_four_times_as_often_at_one_end(
    first: int, last: int, orders: list[str]
) -> None:
    known = sorted(value_forms._COMMON)[0]

    assert orders == value_forms._name_orders([[known, "zzz"]] * first + [["zzz", known]] * last)


@pytest.mark.parametrize(("long", "is_clear"), [(1, True), (2, False)])
def test_an_order_is_clear_where_one_name_in_fifty_is_long(long: int, is_clear: bool) -> None:
    known = sorted(value_forms._COMMON)[0]
    names = [[known, "zzz"]] * (50 - long) + [[known, "maria", "smith", "jones"]] * long

    assert is_clear == (["FIRST LAST"] == value_forms._name_orders(names))


@pytest.mark.parametrize(
    ("name", "is_long"),
    [("maria smith", False), ("maria anna smith", True), ("maria ann smith", False)],
)
def test_a_name_is_long_with_three_words_of_four_letters(name: str, is_long: bool) -> None:
    assert is_long == value_forms._is_long(name.split())


# Status
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("different", "rows", "has_few"),
    [(1, 4, False), (2, 4, True), (2, 3, False), (12, 24, True), (13, 40, False)],
)
def test_a_column_may_say_status_by_a_few_values_each_there_twice(
    different: int, rows: int, has_few: bool
) -> None:
    values = [f"{number % different}" for number in range(rows)]

    assert has_few == status_guess._has_few_values(column(*values))


@pytest.mark.parametrize(
    ("values", "may_be"), [(("A", "AB"), True), (("A", "ABC"), False), (("AB",), True)]
)
def test_codes_have_two_characters_at_most(values: Sequence[str], may_be: bool) -> None:
    assert may_be == status_guess._may_be_codes(column(*values))


@pytest.mark.parametrize(
    ("share", "text"), [(0.0049, "<1%"), (0.005, "0%"), (0.0051, "1%"), (1.0, "100%")]
)
def test_a_share_below_half_a_hundredth_is_less_than_one(share: float, text: str) -> None:
    assert text == status_guess._share(share)


@pytest.mark.parametrize(("values", "asked"), [(12, 12), (13, 0)])
def test_so_many_values_are_asked_about_one_by_one(values: int, asked: int) -> None:
    codes = [f"{number:02d}" for number in range(values)]

    assert asked == len(status_guess._values_to_decide(column(*codes)))
    assert (asked == 0) == ("values, 0% empty" in status_guess._shares(column(*codes)))


@pytest.mark.parametrize(("days", "forms"), [(19, []), (20, ["YYYYMMDD"])])
def test_a_day_of_closing_has_the_form_that_nearly_all_have(days: int, forms: list[str]) -> None:
    values = many("20261120", days, "unknown", 20 - days)

    assert forms == status_guess._day_forms(values)


def test_a_code_of_two_letters_is_no_word_of_status() -> None:
    assert [False, True] == [status_words.speak_of_status([value]) for value in ("ok", "open")]
    offers = [status_guess._usual(column(value)) for value in ("ok", "open")]
    assert [{"send": [], "leave_out": ["ok"]}, {"send": ["open"]}] == offers


@pytest.mark.parametrize(("length", "shown"), [(11, 11), (12, 12), (13, 15)])
def test_a_shape_is_shown_whole_up_to_twelve_characters(length: int, shown: int) -> None:
    assert shown == len(status_words.shape("x" * length))


# Columns
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("digits", "have"), [(4, False), (5, True), (6, True)])
def test_a_street_has_numbers_in_half_of_its_values(digits: int, have: bool) -> None:
    values = many("1 Elm", digits, "Elm", 10 - digits)

    assert have == column_guesses._have_digits(column(*values))


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        (["2108", "AB1"], False),
        (["2108", "02109", "AB1"], True),
        (["02108", "02109", "AB1"], False),
    ],
)
def test_zips_lost_their_zeros_where_most_are_numbers_and_one_is_short(
    values: Sequence[str], lost: bool
) -> None:
    assert lost == column_guesses._lost_zeros(column(*values))


@pytest.mark.parametrize(("single", "is_half"), [(5, False), (6, True)])
def test_a_name_is_half_of_one_where_most_have_one_word(single: int, is_half: bool) -> None:
    values = many("Smith", single, "Ann Smith", 10 - single)

    assert is_half == column_guesses._is_other_half(column(*values, name="NAME"))


@pytest.mark.parametrize(("different", "differs"), [(99, False), (100, True)])
def test_an_own_value_of_nearly_every_row_is_no_chance(different: int, differs: bool) -> None:
    values = [f"{min(number, different - 1)}" for number in range(100)]

    assert differs == column_guesses._differs(column(*values))


@pytest.mark.parametrize(
    ("fit", "is_rival"), [(0.5, False), (0.75, False), (0.8, True), (1.0, True)]
)
def test_a_rival_has_a_header_that_is_nearly_as_good(fit: float, is_rival: bool) -> None:
    best, other = (
        column_signs.Candidate(fit=each, share=1.0, column=column("1")) for each in (1.0, fit)
    )

    assert is_rival == bool(column_guesses._rivals([best, other]))


@pytest.mark.parametrize(("units", "may_be"), [(1, False), (2, True)])
def test_most_values_of_a_second_line_are_apartments(units: int, may_be: bool) -> None:
    values = many("Apt 4", units, "Elm Street", 2 - units)

    assert may_be == column_signs.may_be_second_line(column(*values))


@pytest.mark.parametrize(
    ("values", "are"),
    [
        (["Elm", "Oak"], False),
        (["Elm", "Oak", "Ash"], True),
        (["Elm", "Oak", "Ash", "1", "2", "3"], False),
        (["Elm", "Oak", "Ash", "Fir", "1", "2", "3"], True),
    ],
)
def test_texts_are_of_three_kinds_and_most_values(values: Sequence[str], are: bool) -> None:
    assert are == column_signs._are_texts(values)


@pytest.mark.parametrize(
    ("header", "fit"), [("first name", 1.0), ("the first name", 0.9), ("first", 0.0)]
)
def test_a_header_says_a_phrase_the_less_the_more_stands_beside(header: str, fit: float) -> None:
    assert fit == pytest.approx(column_signs.phrase_fit(header, "first name"))
