"""Rows that were sent more than once: which of the runs a result file answers, told from ledgers
and file alone.
"""

from __future__ import annotations

from datetime import date
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.results.read import ResultRows
from schemas.breaks import RESULT_LONG
from tests.results.outcomes import (
    Row,
    attribute,
    attribute_all,
    error,
    link,
    refusal,
    result,
    sent_rows,
)

FIRST, RENEWED, AGAIN = (
    "first-bank-20261001-3f9c21aa",
    "first-bank-20261120-aaaaaaaa",
    "first-bank-20261120-aaaaaaaa-r2",
)
WHOLE = [link(at) for at in range(1, 6)]


def came(day: date | None, rows: list[Row] | None = None, name: str = "download.csv") -> ResultRows:
    """Return a result file of five links that came in on a day."""
    return result(rows or WHOLE, name)._replace(received=day)


def answered(file: ResultRows, *runs: str, sizes: tuple[int, ...] = ()) -> set[str]:
    """Return the runs a file answers, each of which sent the same cardholders from the first on."""
    sent = pl.concat(
        [
            sent_rows(1, size=size, run=run)
            for run, size in zip(runs, sizes or (5,) * len(runs), strict=True)
        ]
    )
    return set(attribute(file, sent).outcomes["run"])


def test_a_whole_chunk_that_was_renewed_is_answered_in_the_newest_run() -> None:
    assert answered(came(date(2026, 11, 22)), FIRST, RENEWED) == {RENEWED}
    assert answered(came(date(2026, 11, 22)), RENEWED, FIRST) == {RENEWED}


def test_a_run_of_a_day_after_the_file_came_cannot_have_been_answered_by_it() -> None:
    assert answered(came(date(2026, 11, 19)), FIRST, RENEWED) == {FIRST}


def test_one_row_too_many_is_not_given_to_a_run_of_a_day_after_the_file_came() -> None:
    sent = pl.concat([sent_rows(1, size=5, run=run) for run in (FIRST, RENEWED)])

    outcomes = attribute(came(date(2026, 11, 19), [*WHOLE, link(1)]), sent).outcomes

    assert {FIRST} == set(outcomes["run"])
    assert [RESULT_LONG] == outcomes["trouble"].drop_nulls().to_list()


def test_a_row_that_comes_twice_does_not_make_a_file_the_answer_of_a_larger_chunk() -> None:
    renewed = came(date(2026, 11, 22), [*WHOLE[:4], link(1)], f"{RENEWED}-00001.csv")

    assert answered(renewed, FIRST, RENEWED, sizes=(5, 4)) == {RENEWED}


def test_a_run_of_the_day_the_file_came_can_have_been_answered_by_it() -> None:
    assert answered(came(date(2026, 11, 20)), FIRST, RENEWED) == {RENEWED}


def test_of_two_runs_of_one_day_the_one_made_again_is_the_newer() -> None:
    assert answered(came(date(2026, 11, 20)), FIRST, AGAIN, RENEWED) == {AGAIN}


def test_a_file_that_carries_the_name_of_a_run_was_made_after_it_whatever_the_clocks_say() -> None:
    assert answered(came(date(2026, 11, 19), name=f"{RENEWED}-00001.csv"), FIRST, RENEWED) == {
        RENEWED
    }


def test_a_later_day_decides_before_size_so_that_a_report_made_anew_says_the_same() -> None:
    part = came(date(2026, 11, 19), [link(at) for at in range(1, 4)])

    assert answered(part, FIRST) == answered(part, FIRST, RENEWED, sizes=(5, 3)) == {FIRST}


def test_a_partial_resubmission_is_answered_where_the_file_has_its_size() -> None:
    rows = [link(at) for at in range(1, 4)]

    assert answered(came(date(2026, 11, 22), rows), FIRST, RENEWED, sizes=(5, 3)) == {RENEWED}
    assert answered(came(date(2026, 11, 22)), FIRST, RENEWED, sizes=(5, 3)) == {FIRST}


def test_a_chunk_that_a_file_answers_whole_comes_before_a_newer_one_with_other_rows_too() -> None:
    came_then = date(2026, 11, 22)

    assert answered(came(came_then), FIRST, RENEWED, sizes=(5, 9)) == {FIRST}
    assert answered(came(came_then, WHOLE[:4]), FIRST, RENEWED, sizes=(5, 9)) == {RENEWED}


@pytest.mark.parametrize(
    ("name", "runs", "row"),
    [(f"{FIRST}-00001.csv", [FIRST] * 3, 1), ("download.csv", [RENEWED] * 3, None)],
)
def test_a_file_in_which_an_error_names_another_is_not_the_whole_answer_of_a_resubmission(
    name: str, runs: list[str], row: int | None
) -> None:
    rows = [link(2), error("could not create the card of c-1: no city"), link(3)]
    sent = pl.concat([sent_rows(1, 4, FIRST), sent_rows(1, 3, RENEWED, first=2)])

    outcomes = attribute(came(date(2026, 11, 22), rows, name), sent).outcomes

    assert (runs, row) == (outcomes["run"].to_list(), outcomes["row"][1])


def test_part_of_an_answer_to_a_partial_resubmission_goes_to_the_newest_run() -> None:
    rows = [link(at) for at in range(1, 3)]

    assert answered(came(date(2026, 11, 22), rows), FIRST, RENEWED, sizes=(5, 3)) == {RENEWED}


def test_where_nobody_knows_when_a_file_came_the_newest_run_is_meant() -> None:
    assert answered(came(None), FIRST, RENEWED) == {RENEWED}


def test_a_row_of_two_runs_of_which_the_file_has_as_many_rows_is_of_the_newer() -> None:
    sent = [sent_rows(1, 4, FIRST), sent_rows(1, 4, RENEWED, first=3)]
    file = came(date(2026, 11, 22), [link(1), link(3), link(5)])

    runs = [attribute(file, pl.concat(order)).outcomes["run"] for order in (sent, sent[::-1])]

    assert [[FIRST, RENEWED, RENEWED]] * 2 == [told.to_list() for told in runs]


def _two_cards_each() -> pl.DataFrame:
    """Return the rows of a chunk with two cards of `c-1`, then two of `c-2`."""
    cuid = pl.concat_str(pl.lit("c-"), (pl.col("row") + 1) // 2)
    return sent_rows(1, size=4).with_columns(cuid=cuid)


def test_refusals_that_name_a_cardholder_of_several_cards_are_of_a_card_each() -> None:
    refused = result([refusal(1), refusal(2), refusal(1), refusal(2)])

    assert [1, 3, 2, 4] == attribute(refused, _two_cards_each()).outcomes["row"].to_list()


def test_an_error_whose_text_names_a_cardholder_is_of_their_first_card_without_a_result() -> None:
    told = error("the city of c-1 is missing")
    rows = [
        attribute(result(file), _two_cards_each()).outcomes["row"].to_list()
        for file in ([told, link(2, last_4="0003")], [told, link(1)])
    ]

    assert [[1, 3], [2, 1]] == rows


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(1, 8)), min_size=1, max_size=5
    ),
    st.randoms(use_true_random=False),
)
def test_files_say_the_same_together_alone_and_in_any_order(
    files: list[tuple[int, int, int]], chance: Random
) -> None:
    sent = pl.concat(
        [
            sent_rows(2, size=4, run=FIRST),
            sent_rows(1, size=6, run=RENEWED, first=2),
            sent_rows(1, size=4, run=AGAIN),
        ]
    )
    dropped = [
        came(
            date(2026, 11, 1 + day % 30),
            [link(at) for at in range(first, first + size)],
            f"{at}.csv",
        )
        for at, (day, first, size) in enumerate(files)
    ]
    alone = {one.name: attribute(one, sent).outcomes for one in dropped}
    chance.shuffle(dropped)

    together = {one.name: one.outcomes for one in attribute_all(dropped, sent.reverse())}

    assert all(together[name].equals(alone[name]) for name in alone)
