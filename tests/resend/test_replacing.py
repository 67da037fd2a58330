"""Rows of a corrected extract stand for rows of a run, each for one."""

from __future__ import annotations

import polars as pl

from flows.resend.corrected_extract import CORRECTED, by_cuid, by_number

RUN = "bank-20261120-3f9c21aa"


def test_a_number_tells_the_row_and_a_run_must_be_the_one_asked_for() -> None:
    rows = pl.DataFrame(
        {
            "row": [1, 2, 3, 4, 5],
            "cuid": ["a"] * 5,
            "number": ["7", " 8 ", "nine", None, "10"],
            "run": [RUN, None, RUN, RUN, "another"],
        }
    )

    assert [(1, 7), (2, 8)] == by_number(rows, RUN).rows()
    assert [(1, 7), (2, 8), (5, 10)] == by_number(rows.drop("run"), RUN).rows()


def test_a_cuid_tells_the_row_where_it_is_one_rows_alone() -> None:
    rows = pl.DataFrame(
        [(1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, None)], CORRECTED, orient="row"
    )
    ours = pl.DataFrame(
        [(10, "a"), (11, "b"), (12, "c"), (13, "c"), (14, None)], CORRECTED, orient="row"
    )

    found = by_cuid(rows, ours)

    assert [(1, 10), (2, 11), (3, 11), (4, 12), (4, 13)] == found.rows()
