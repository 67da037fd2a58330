"""Ledger records are checked as their model declares them; the error names columns and shows no
cell.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from flows.errors import BugError
from flows.submissions.ledger import check_records
from schemas import ledger

SOUND: dict[str, Any] = dict.fromkeys(ledger.dtypes()) | {
    "row": 1,
    "line": 2,
    "cuid_made": False,
    "fate": ledger.REJECTED,
    "reasons": [],
}
GOOD: dict[str, list[Any]] = {
    "cuid": ["c-1"],
    "cuid_made": [True],
    "last_4": ["4242"],
    "expiration": ["2911"],
    "fate": [*ledger.FATES],
    "chunk": [1],
    "position": [1],
    "origin": [1],
    "reasons": [["a|b"]],
}
BAD: dict[str, list[Any]] = {
    "row": [0, None],
    "line": [0, None],
    "cuid_made": [None],
    "last_4": ["42", "42424", "٤٢٤٢", ""],
    "expiration": ["29-11"],
    "fate": ["sent", "", None],
    "chunk": [0],
    "position": [0],
    "origin": [0],
    "reasons": [None],
}


def records(*changes: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([SOUND | change for change in changes], schema=ledger.dtypes())


def refused(frame: pl.DataFrame) -> bool:
    try:
        check_records(frame)
    except BugError:
        return True
    return False


@pytest.mark.parametrize(
    ("name", "cell"), [(name, cell) for name, cells in GOOD.items() for cell in cells]
)
def test_a_record_as_the_model_declares_it_passes(name: str, cell: object) -> None:
    assert not refused(records({}, {name: cell}))


@pytest.mark.parametrize(
    ("name", "cell"), [(name, cell) for name, cells in BAD.items() for cell in cells]
)
def test_a_cell_that_the_model_does_not_allow_is_refused_by_the_name_of_its_column(
    name: str, cell: object
) -> None:
    with pytest.raises(BugError) as error:
        check_records(records({}, {name: cell}))

    assert {"place": "ledger", "kind": name} == error.value.fields


def test_the_error_names_columns_and_shows_no_cell() -> None:
    with pytest.raises(BugError) as error:
        check_records(records({"last_4": "4242424242424242", "fate": "lost"}))

    assert {"place": "ledger", "kind": "last_4, fate"} == error.value.fields


def test_records_of_another_shape_are_refused() -> None:
    frame = records({})

    assert refused(frame.drop("origin"))
    assert refused(frame.select(pl.all().reverse(), extra=1))
    assert refused(frame.with_columns(pl.col("row").cast(pl.Int64)))
