"""The shape of a frame: pandera's verdict, remembered, is pandera's verdict on every frame of that shape."""

from __future__ import annotations

from contextlib import suppress

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaError

from flows.core.rows.shape import misshapen
from schemas import ledger
from schemas.ledger import Ledger
from schemas.portal import PortalInput, columns

TYPES = [pl.String(), pl.Int64(), pl.UInt32(), pl.Null(), pl.Boolean()]


def refused_by_pandera(frame: pl.DataFrame) -> bool:
    with (
        suppress(SchemaError),
        config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_ONLY),
    ):
        PortalInput.validate(frame)
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(columns()), max_size=2),
    st.dictionaries(st.sampled_from(columns()), st.sampled_from(TYPES), max_size=2),
    st.booleans(),
    st.integers(0, 2),
)
def test_a_remembered_verdict_is_panderas_whatever_is_in_the_frame(
    missing: list[str], types: dict[str, pl.DataType], backwards: bool, rows: int
) -> None:
    names = [name for name in columns() if name not in missing]
    schema = {name: types.get(name, pl.String()) for name in (reversed(names) if backwards else names)}
    frame = pl.DataFrame({name: [None] * rows for name in schema}, schema=schema)

    verdicts = [misshapen(frame, PortalInput) for _ in range(2)]

    assert [refused_by_pandera(frame)] * 2 == [verdict != "" for verdict in verdicts]


def test_each_model_has_its_own_shape() -> None:
    frame = pl.DataFrame(schema=ledger.dtypes())

    assert misshapen(frame, Ledger) == ""
    assert misshapen(frame, PortalInput) == "SchemaError"
