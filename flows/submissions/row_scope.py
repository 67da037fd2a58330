"""Which rows of an extract are sent, with which corrections, and what a check learns of them.

A check takes the same steps as a submit and goes on where a submit stops: its `Inspection` collects
the errors of the mapping and counts cells, shapes and verdicts. How full a column is, and its
shapes, come from the sample that the profile is made of.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extracts.mapping import Note, stop
from flows.submissions.prior_state import PriorState
from flows.submissions.sample import Sample
from schemas.manifest import Layout
from schemas.portal import POSTAL_CODE, columns

CLEARED = "(empty)"  # a correction that clears the field
PICK: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "origin": pl.UInt32}


class SelectedRows:
    """Rows to send again: `rows` has row, and origin, the row of the earlier run that is repeated.

    `corrections`: row and any of the portal's columns; null keeps the source's value, CLEARED
    removes it.
    """

    def __init__(self, rows: pl.DataFrame, corrections: pl.DataFrame | None = None) -> None:
        self.rows = rows.select(pl.col(name).cast(kind) for name, kind in PICK.items())
        if corrections is None:
            corrections = pl.DataFrame(schema={"row": pl.UInt32})
        corrected = [name for name in columns() if name in corrections]
        self._corrections = corrections.select(pl.col("row").cast(pl.UInt32), *corrected)

    def keep(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the selected rows of a frame (with `row`)."""
        return frame.join(self.rows.select("row"), on="row", how="semi", maintain_order="left")

    def origins(self, rows: pl.DataFrame) -> pl.Series:
        """Return the row of the earlier run that each row repeats."""
        joined = rows.select("row").join(self.rows, on="row", how="left", maintain_order="left")
        return joined["origin"]

    def correct(self, rows: pl.DataFrame, *, codes: bool = False) -> pl.DataFrame:
        """Replace mapped values by corrected ones.

        Postal codes, which have lost no zeros, are corrected only after the repairs (`codes`).
        """
        names = [name for name in self._corrections.columns[1:] if (name == POSTAL_CODE) == codes]
        if not names or self._corrections.is_empty():
            return rows
        corrections = self._corrections.select("row", pl.col(names).name.prefix("new "))
        beside = rows.join(corrections, on="row", how="left", maintain_order="left")
        return beside.with_columns(map(_corrected, names)).select(rows.columns)


def _corrected(name: str) -> pl.Expr:
    new = pl.col(f"new {name}")
    return pl.when(new == CLEARED).then(None).otherwise(pl.coalesce(new, name)).alias(name)


class Inspection:
    """What a check learns of the rows.

    The errors in spite of which it went on, counts of verdicts, a sample, and the rows not sent.
    """

    def __init__(self) -> None:
        self.errors: list[CardlinkError] = []
        self.unsent: list[pl.DataFrame] = []  # ledger records
        self.layout: Layout | None = None  # how the extract was read
        self.verdicts = Counter[tuple[str, str, str]]()  # column, code, severity
        self.sample = Sample()


class RowScope(NamedTuple):
    """Which rows of an extract a run sends, and what earlier runs know of its cards."""

    selected: SelectedRows | None = None
    prior: PriorState | None = None
    inspection: Inspection | None = None  # of a check
    note: Note = stop  # what is done with an error of the mapping: a check notes it and goes on
    # all columns are kept, with the CVV as in the source (single links, interface.md 2.8)
    keep_cells: bool = False


EVERY_ROW = RowScope()
