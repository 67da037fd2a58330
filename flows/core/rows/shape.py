"""What pandera says of a frame's shape: its columns, their order and their types. It is asked once for each shape."""

from __future__ import annotations

from functools import lru_cache

import pandera.polars as pa
import polars as pl
from pandera.config import ValidationDepth, config_context


def misshapen(frame: pl.DataFrame, model: type[pa.DataFrameModel]) -> str:
    """Return the name of pandera's error where a frame has not the model's shape, else nothing; no cell is looked at.

    A night of 500 rows has a dozen frames of two shapes, and each question would take as long as checking the rows.
    """
    return _asked(model, tuple(frame.schema.items()))


@lru_cache(64)
def _asked(model: type[pa.DataFrameModel], shape: tuple[tuple[str, pl.DataType], ...]) -> str:
    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_ONLY):
            model.validate(pl.DataFrame(schema=dict(shape)))
    except Exception as error:  # noqa: BLE001  pandera raises its own and polars' errors
        return type(error).__name__
    return ""
