"""The base of every table we write, as `Settings` is of every TOML table and `Document` of every JSON object."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pandera.polars as pa
import polars as pl

FORMAT = 1  # version of our Parquet files: goes up when one of them gets, loses or changes a column


class Table(pa.DataFrameModel):
    """A table with exactly its columns, in their order."""

    class Config:
        """Refuse a table with other columns, or with these in another order."""

        strict = True
        ordered = True

    @classmethod
    def dtypes(cls) -> dict[str, pl.DataType]:
        """Return the columns and their polars types, in order."""
        return {name: column.dtype.type for name, column in cls.to_schema().columns.items()}


def parquet(frame: pl.DataFrame, metadata: Mapping[str, str] | None = None, **options: Any) -> bytes:
    """Return a frame as Parquet; its metadata name the version, which the first did not write."""
    out, named = BytesIO(), {"format": str(FORMAT)} if FORMAT > 1 else {}
    frame.write_parquet(out, metadata={**(metadata or {}), **named} or None, **options)
    return out.getvalue()
