"""Attempts at the rows of a run make one history: each row once, by the state that counts."""

from __future__ import annotations

import polars as pl

from flows.results.row_states import STATES, after_all


def test_rows_after_all_attempts_are_those_of_the_run_moved_on() -> None:
    own = {"linked": 5, "awaiting": 3, "error": 3, "refused": 2}
    rows = pl.DataFrame(
        {"row": range(1, 7), "state": ["error", "error", "rejected", *["cancelled"] * 3]}
    )
    first = pl.DataFrame(
        {
            "origin": range(1, 7),
            "state": ["linked", "error", "rejected", "linked", "error", "cancelled"],
        }
    )
    second = pl.DataFrame({"origin": [2, 3], "state": ["cancelled", "awaiting"]})

    found = after_all(own, rows, [first, second])

    assert {"linked": 7, "awaiting": 2, "error": 3, "refused": 1} == found
    assert tuple(found) == STATES
