"""What a resubmission says of its rows before it sends them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.resend.resubmission import (
    Request,
    ResendPlan,
    StandingRowsError,
    _refuse_standing,
)
from flows.resend.selected_runs import newest_first
from flows.resend.selection import RowSelection

ROWS = pl.DataFrame(
    [
        (1, None, "card.card.exists"),
        (2, None, "card.card.exists"),
        (3, None, None),
        (4, None, "address.city.missing"),
        (5, "linked", "card.pan.other"),
        (6, "linked", "card.pan.other"),
        (7, "awaiting", None),
        (8, "on hold", None),
    ],
    {"row": pl.UInt32, "why": pl.String, "reason": pl.String},
    orient="row",
)
REFUSED = pl.DataFrame(
    {"row": [4], "reasons": [["address.city|address.city.long", "email|email.form"]]},
    {"row": pl.UInt32, "reasons": pl.List(pl.String)},
)


def plan(rows: pl.DataFrame, refused: pl.DataFrame) -> ResendPlan:
    """Return a plan of which only the rows matter."""
    nothing = cast(Any, None)
    fields = dict.fromkeys(ResendPlan._fields, nothing)
    return ResendPlan(**fields | {"rows": rows, "refused": refused})


def test_most_rows_come_first_and_a_refused_row_has_the_first_of_its_reasons() -> None:
    resend = plan(ROWS, REFUSED)

    assert [("linked", 2), ("awaiting", 1), ("on hold", 1)] == [*resend.left.items()]
    assert [
        ("sent again", "card.card.exists", 2),
        ("stay: linked", "card.pan.other", 2),
        ("corrected, but still refused", "address.city.long", 1),
        ("sent again", "", 1),
        ("stay: awaiting", "", 1),
        ("stay: on hold", "", 1),
    ] == resend.fates.rows()


def test_nothing_is_sent_where_all_that_goes_out_is_still_refused() -> None:
    fourth = ROWS.filter(row=4)

    assert not plan(ROWS, REFUSED).nothing
    assert plan(fourth, REFUSED).nothing
    assert plan(ROWS.filter(row=7), REFUSED.clear()).nothing
    assert not plan(ROWS.filter(row=3), REFUSED.clear()).nothing


REQUEST = Request("bank-20261120-3f9c21aa", RowSelection(), "lost")


def standing(*runs: str, named: bool = True) -> pl.DataFrame:
    """Return rows that are linked in these runs."""
    rows = {"why": "linked", "where": list(runs), "origin": range(1, len(runs) + 1), "named": named}
    return pl.DataFrame(rows)


def repeats(*runs: str) -> list[Any]:
    return [SimpleNamespace(run=run) for run in runs]


@pytest.mark.parametrize("earlier", [["r1"], ["r1", "r2"]])
def test_rows_that_stand_by_the_same_request_are_no_reason_to_refuse_it(earlier: list[str]) -> None:
    _refuse_standing(REQUEST, standing("r1", "r1"), repeats(*earlier))
    _refuse_standing(REQUEST, standing("r3", named=False), [])


@pytest.mark.parametrize("earlier", [[], ["r2"]])
def test_rows_that_stand_otherwise_are_refused_with_the_first_five_of_their_runs(
    earlier: list[str],
) -> None:
    with pytest.raises(StandingRowsError) as caught:
        _refuse_standing(
            REQUEST, standing("r7", "r2", "r3", "r6", "r5", "r4", ""), repeats(*earlier)
        )

    assert (7, "r2, r3, r4, r5, r6") == tuple(
        caught.value.fields[name] for name in ("count", "where")
    )


def test_of_several_runs_the_newest_comes_first() -> None:
    runs = [f"bank-202611{day}-3f9c21aa{again}" for day, again in ((20, ""), (21, ""), (20, "-r2"))]

    assert [runs[1], runs[2], runs[0]] == newest_first(runs)
