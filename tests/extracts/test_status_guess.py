"""What `init` offers for a column that may say which rows count, and which of its values it shows."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.init.guess import Column, Guess
from flows.extensions.init.status_guess import status_doubt
from schemas.status import IGNORED, StatusColumn


def doubt(header: str, *values: str) -> Guess:
    """Return the doubt of a column in which each value is ten times."""
    return status_doubt(Column(f'from = "{header}"', header, values * 10))


def offers(header: str, *values: str) -> list[Any]:
    others = doubt(header, *values).others
    return [tomllib.loads(f"offer = {other}")["offer"] for other in others]


def offer(header: str, *values: str) -> dict[str, str]:
    """Return what the first offer makes of each value, as its initial: Send, Leave out, Delete."""
    first = offers(header, *values)[0]
    lists = {"S": "send", "L": "leave_out", "D": "delete"}
    decided = {value: key for key, name in lists.items() for value in first.get(name, [])}
    return {value: decided[value] for value in values}


@pytest.mark.parametrize(
    ("header", "values", "fates"),
    [
        ("BLK_CD", ("", "L", "S", "F"), "SLLL"),
        ("BLOCK", ("", "F"), "SL"),
        ("BLOCK", ("N", "F"), "LL"),
        ("BLOCK", ("T", "F"), "LL"),
        ("BLOCK", ("", "S"), "SL"),
        ("BLOCK", ("S", "N"), "LS"),
        ("BLOCKED", ("Y", "N", ""), "LSS"),
        ("BLOCKED", ("Y", ""), "LS"),
        ("BLOQUEIO", ("SIM", "NÃO"), "LS"),
        ("Sperrkz", ("J", "N"), "LS"),
        ("HOLD_FLAG", ("Y", "N"), "LS"),
        ("BLOCK", ("0", "1"), "SL"),
        ("BLOCK", ("0",), "S"),
        ("BLOCK", ("0", "1", "2"), "LLL"),
        ("NOT_BLOCKED", ("Y", "N"), "LL"),
        ("UNBLOCKED", ("Y", "N"), "LL"),
        ("DEL_FLAG", ("Y", "N"), "DS"),
        ("DELETED", ("X", ""), "DS"),
        ("DECEASED", ("1", "0"), "DS"),
        ("DELETE_CD", ("", "A"), "SL"),
        ("ACTIVE", ("Y", "N", ""), "SLL"),
        ("ACTIVE", ("0", "1"), "LS"),
        ("CARD_STATUS", ("A", "C"), "SD"),
        ("CARD_STATUS", ("A", "F", "S"), "SLL"),
        ("CARD_STATUS", ("A",), "S"),
        ("CARD_STATUS", ("O",), "L"),
        ("STATUS", ("Y", "N"), "LL"),
        ("STATUT", ("O", "N"), "LL"),
        ("STATUS", ("0", "1"), "LL"),
        ("STATUS", ("A", "Q"), "LL"),
        ("ACTION", ("A", "C", "D"), "SSD"),
        ("ACTION", ("A", "R"), "LL"),
    ],
)
def test_a_code_is_offered_for_sending_only_where_all_codes_of_its_column_are_known(
    header: str, values: Sequence[str], fates: str
) -> None:
    assert dict(zip(values, fates, strict=True)) == offer(header, *values)


@pytest.mark.parametrize(
    "word",
    [
        "gesperrt",
        "BLOQUEADO",
        "on hold",
        "Bloqué",
        "Blocked",
        "bloccata",
        "frozen",
        "En opposition",
    ],
)
@pytest.mark.parametrize("header", ["SITUACAO", "Sperrkennzeichen", "CARD_STATUS", "BLK_CD"])
def test_what_is_blocked_is_left_out_so_that_its_link_is_not_withdrawn(
    header: str, word: str
) -> None:
    assert "L" == offer(header, "", word)[word]


@pytest.mark.parametrize("word", ["CLOSED", "gelöscht", "Fallecido", "Stolen"])
def test_what_has_ended_is_deleted(word: str) -> None:
    assert {"ACTIVE": "S", word: "D"} == offer("CARD_STATUS", "ACTIVE", word)


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("STATUS", ("0", "1")),
        ("BRANCH", ("1", "2")),
        ("X", ("Smith", "Jones")),
        ("STATUS_TEXT", tuple(f"code {number}" for number in range(20))),
        ("BLOCK", tuple(f"{number:02}" for number in range(20))),
        ("CLOSED_DT", ("01/02/2026", "03/04/2026")),
        ("STATUS", ("",)),
    ],
)
def test_ignored_is_never_the_only_offer_and_each_is_one_that_the_settings_take(
    header: str, values: Sequence[str]
) -> None:
    *decided, last = offers(header, *values)

    assert [IGNORED, True] == [last, bool(decided)]
    assert all(StatusColumn.model_validate(each) for each in decided)


def test_a_day_that_fits_two_forms_is_offered_in_both() -> None:
    dated = offers("CLOSED_DT", "", "01/02/2026", "03/04/2026")

    assert [{"date": "DD/MM/YYYY"}, {"date": "MM/DD/YYYY"}, IGNORED] == dated


def test_values_that_nobody_may_see_are_left_out_by_an_offer() -> None:
    assert {"send": [], "leave_out": [""], "unknown": "leave_out"} == offers("X", "Smith", "Lee")[0]
    many = [f"{number:02}" for number in range(20)]
    assert {"send": [""], "unknown": "leave_out"} == offers("BLOCK", "", *many)[0]


@pytest.mark.parametrize(
    ("header", "values", "is_shown"),
    [
        ("STATUS_KARTY", ("AKTYWNA", "ZASTRZEŻONA"), True),
        ("CARD_STATUS", ("w trakcie",), True),
        ("STATUS_BY", ("Smith", "Jones"), False),
        ("BRANCH", ("Smith", "Jones"), False),
        ("STATUS", ("4242424242424242", "A"), False),
        ("STATUS", tuple(f"{letter}bcd" for letter in string.ascii_lowercase), False),
    ],
)
def test_the_words_of_a_status_column_are_shown_to_who_must_answer(
    header: str, values: Sequence[str], *, is_shown: bool
) -> None:
    shown = doubt(header, *values)

    assert is_shown == all(value in shown.question for value in values)
    assert is_shown == bool(shown.values)


def test_a_word_that_is_nearly_as_often_as_there_are_rows_is_not_shown() -> None:
    column = Column('from = "STATUS"', "STATUS", ("Smith", "Jones", "Lee"))

    assert not any(name in status_doubt(column).question for name in column.values)


@given(st.sets(st.sampled_from(string.ascii_uppercase + string.digits), min_size=1, max_size=6))
def test_of_a_block_column_only_a_no_and_an_empty_cell_are_offered_for_sending(
    codes: set[str],
) -> None:
    fates = offer("BLK_CD", "", *sorted(codes))

    assert {"", "N", "0"} >= {code for code, fate in fates.items() if fate == "S"}
