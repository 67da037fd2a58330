"""The ledger's rules asked in one pass and by pandera: the same verdict on whatever a record holds."""

from __future__ import annotations

from typing import Any

import pandera.errors
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.errors import BugError
from flows.submissions.publish import check_records
from schemas import ledger

SOUND: dict[str, Any] = dict.fromkeys(ledger.dtypes()) | {
    "row": 1,
    "line": 2,
    "cuid_made": False,
    "fate": ledger.REJECTED,
    "reasons": [],
}
CELLS: dict[str, list[Any]] = {
    "row": [0, None],
    "line": [0, None],
    "cuid": ["c-1"],
    "cuid_made": [True, None],
    "last_4": ["4242", "42", "42424", "٤٢٤٢", ""],
    "expiration": ["2911", "29-11"],
    "fate": [*ledger.FATES, "sent", "", None],
    "chunk": [1, 0],
    "position": [1, 0],
    "origin": [1, 0],
    "reasons": [["a|b"], None],
}


def records(*changes: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([SOUND | change for change in changes], schema=ledger.dtypes())


def refused(frame: pl.DataFrame) -> bool:
    try:
        check_records(frame)
    except BugError:
        return True
    return False


def refused_by_pandera(frame: pl.DataFrame) -> bool:
    try:
        ledger.Ledger.validate(frame)
    except (pandera.errors.SchemaError, pandera.errors.SchemaErrors):
        return True
    return False


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={name: st.sampled_from(cells) for name, cells in CELLS.items()}),
        min_size=1,
        max_size=3,
    )
)
def test_records_are_refused_as_pandera_would_refuse_them(changes: list[dict[str, Any]]) -> None:
    frame = records(*changes)

    assert refused_by_pandera(frame) == refused(frame)


@pytest.mark.parametrize(("name", "cell"), [(name, cell) for name, cells in CELLS.items() for cell in cells])
def test_every_rule_of_the_model_is_asked(name: str, cell: object) -> None:
    frame = records({}, {name: cell})

    assert refused_by_pandera(frame) == refused(frame)


def test_the_error_names_columns_and_shows_no_cell() -> None:
    with pytest.raises(BugError) as error:
        check_records(records({"last_4": "4242424242424242", "fate": "lost"}))

    assert {"place": "ledger", "kind": "last_4, fate"} == error.value.fields


def test_records_of_another_shape_are_refused() -> None:
    frame = records({})

    assert refused(frame.drop("origin"))
    assert refused(frame.select(pl.all().reverse(), extra=1))
    assert refused(frame.with_columns(pl.col("row").cast(pl.Int64)))
