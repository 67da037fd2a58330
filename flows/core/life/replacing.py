"""Which row of a corrected extract stands for which row of a run: by its number there, or else by cuid."""

from __future__ import annotations

import polars as pl

from flows.core.rows.picked import PICK

# A row of the corrected extract; `number` and `run` only where it has such columns.
CORRECTED: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "cuid": pl.String}


def by_number(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return row and origin by the column `number`; rows without one, or of another run, stand for nothing."""
    ours = pl.lit(value=True) if "run" not in rows.columns else pl.col("run").fill_null(run).is_in([run, ""])
    number = pl.col("number").str.strip_chars().cast(pl.UInt32, strict=False)
    return _picks(rows.filter(ours).with_columns(origin=number))


def by_cuid(rows: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    """Return row and origin by cuid; `ours` has row and cuid of every row of the run with one of these cuids."""
    return _picks(rows.join(ours.rename({"row": "origin"}), on="cuid", maintain_order="left"))


def ambiguous(picks: pl.DataFrame) -> pl.DataFrame:
    """Return the picks that cannot be told apart: several rows for one, or one for several."""
    return picks.filter(pl.col("row").is_duplicated() | pl.col("origin").is_duplicated())


def _picks(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(kind) for name, kind in PICK.items()).drop_nulls().unique(maintain_order=True)
