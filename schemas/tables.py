"""The base of every table we write, as `Settings` is of every TOML table and `Document` of every JSON object."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


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
