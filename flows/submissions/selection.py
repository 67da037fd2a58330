"""The rows of an extract that a run sends again, by number, with their corrected fields."""

from __future__ import annotations

import polars as pl

from schemas.portal import POSTAL_CODE, columns

CLEARED = "(empty)"  # a correction that clears the field
PICK: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "origin": pl.UInt32}


class SelectedRows:
    """Rows to send again: `rows` has row, and origin, the row of the earlier run that is repeated.

    `corrections`: row and any of the portal's columns; null keeps the source's value, CLEARED removes it.
    """

    def __init__(self, rows: pl.DataFrame, corrections: pl.DataFrame | None = None) -> None:
        self.rows = rows.select(pl.col(name).cast(kind) for name, kind in PICK.items())
        given = pl.DataFrame(schema={"row": pl.UInt32}) if corrections is None else corrections
        self._corrections = given.select(pl.col("row").cast(pl.UInt32), *(name for name in columns() if name in given))

    def keep(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the selected rows of a frame (with `row`)."""
        return frame.join(self.rows.select("row"), on="row", how="semi", maintain_order="left")

    def origins(self, rows: pl.DataFrame) -> pl.Series:
        """Return the row of the earlier run that each row repeats."""
        return rows.select("row").join(self.rows, on="row", how="left", maintain_order="left")["origin"]

    def correct(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace mapped values by corrected ones, except postal codes."""
        return self._over(rows, [name for name in self._corrections.columns[1:] if name != POSTAL_CODE])

    def correct_codes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace repaired postal codes by corrected ones, which have lost no zeros."""
        return self._over(rows, [name for name in self._corrections.columns if name == POSTAL_CODE])

    def _over(self, rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        if not names or self._corrections.is_empty():
            return rows
        given = self._corrections.select("row", pl.col(names).name.prefix("new "))
        beside = rows.join(given, on="row", how="left", maintain_order="left")
        return beside.select(_over(name) if name in names else pl.col(name) for name in rows.columns)


def _over(name: str) -> pl.Expr:
    new = pl.col(f"new {name}")
    return pl.when(new == CLEARED).then(None).otherwise(pl.coalesce(new, name)).alias(name)
