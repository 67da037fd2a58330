"""The base of every table we write, as `Settings` is of every TOML table and `Document` of every JSON object."""

from __future__ import annotations

import pandera.polars as pa


class Table(pa.DataFrameModel):
    """A table with exactly its columns, in their order."""

    class Config:
        """Refuse a table with other columns, or with these in another order."""

        strict = True
        ordered = True
