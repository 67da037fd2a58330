"""A sample of an extract's rows, and its profile: what the columns look like, kept without a value.

The same rows are sampled however the extract is cut into blocks. No cell leaves memory.

A profile is a function of the extract, so concurrent processes write the same manifest. It has, per
mapped column, the cells filled, how varied they are, lengths and forms, and of cards the first six
digits; never a cell, and no form of a CVV or its hash. It is part of the manifest, which every
purge keeps.
"""

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from flows.submissions.shapes import shape
from schemas.cell_formats import present
from schemas.manifest import ColumnProfile, Profile
from schemas.portal import CVV, CVV_HASH, PAN

SAMPLED = 2048  # rows at most
KEPT = 32  # lengths, forms and BINs of a column: the most frequent; longer cells count as this long
FORM_LENGTH = 24  # characters
# in this order
FORMS = {
    r"[^\p{L}\p{M} -~]+": "?",
    r"[\p{L}\p{M}]+": "A",
    "[0-9]+": "9",
    "[A9+/=]*(A9|9A)[A9+/=]*": "X",
}
SCATTERED = 1 << 32
# by the golden ratio, so that multiples are spread evenly
SCATTER = np.uint64(2654435761)


class _Variety(NamedTuple):
    """How many cells of a column are filled, and how many ordered pairs of them are equal."""

    filled: int
    equal_pairs: int


class Sample:
    """A sample of the rows of an extract, whose mapped blocks are added in order."""

    def __init__(self) -> None:
        self._kept: list[pl.DataFrame] = []
        self._below = SCATTERED  # a row is kept where its scattered number is below

    def add(self, rows: pl.DataFrame) -> None:
        """Add a block: row, line, and the columns."""
        self._kept = [self._thinned(pl.concat([*self._kept, self._thinned(rows)]))]

    @property
    def rows(self) -> pl.DataFrame:
        """The rows that are kept: row, line, and the columns."""
        return pl.concat(self._kept)

    def look(self, column: str) -> tuple[float, list[str]]:
        """Return which share of the cells has content, and its three most frequent shapes.

        A is a letter, 9 a digit.
        """
        cells = self.rows.select(shape=shape(present(pl.col(column)))).to_series()
        if cells.is_empty():
            return 0.0, []
        filled = cells.drop_nulls()
        counts = filled.value_counts().sort("count", "shape", descending=[True, False])
        return filled.len() / cells.len(), counts["shape"].head(3).to_list()

    @property
    def empty(self) -> bool:
        """Whether no row was added."""
        return not any(map(len, self._kept))

    def profile(self) -> Profile:
        """Return the profile of the rows."""
        rows = self.rows.drop("row", "line")
        cell = pl.col("cell")
        filled_cells = rows.unpivot(variable_name="column", value_name="cell").drop_nulls()
        cells = filled_cells.group_by("column", "cell").agg(n=pl.len().cast(pl.Int64))
        varieties = _varieties(cells)
        lengths = _counts(cells, cell.str.len_chars().clip(upper_bound=KEPT))
        forms = _counts(cells.filter(~pl.col("column").is_in((CVV, CVV_HASH))), _form(cell))
        bins = _counts(cells.filter(column=PAN), _bin(cell))
        columns: dict[str, ColumnProfile] = {}
        for name in rows.columns:
            variety = varieties.get(name, _Variety(0, 0))
            columns[name] = ColumnProfile(
                filled=variety.filled,
                distinct=self._distinct(variety),
                lengths=lengths.get(name, {}),
                forms=forms.get(name, {}),
            )
        return Profile(rows=rows.height, columns=columns, bins=bins.get(PAN, {}))

    def _distinct(self, variety: _Variety) -> float:
        """Return how many values a column has in the whole extract, by how many pairs are equal."""
        filled = variety.filled
        most = filled * SCATTERED // self._below  # cells of the whole extract
        if not variety.equal_pairs:
            return most
        return min(most, round(filled * (filled - 1) / variety.equal_pairs, 2))

    def _thinned(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows to keep, of which there are never too many."""
        scattered = rows["row"].to_numpy() * SCATTER % np.uint64(SCATTERED)
        while np.count_nonzero(scattered < self._below) > SAMPLED:
            self._below //= 2
        # gathered: a filter would hold on to whole blocks
        return rows[np.flatnonzero(scattered < self._below)]


def _varieties(cells: pl.DataFrame) -> dict[str, _Variety]:
    """Return the variety of each column; `cells`: column, cell, and `n`, how often it is there."""
    n = pl.col("n")
    sums = cells.group_by("column").agg(n.sum(), equal_pairs=(n * (n - 1)).sum())
    return {column: _Variety(filled, equal) for column, filled, equal in sums.iter_rows()}


def _form(cell: pl.Expr) -> pl.Expr:
    """Return the form of a text: A for letters, 9 for digits, X for both mixed."""
    for pattern, mask in FORMS.items():
        cell = cell.str.replace_all(pattern, mask)
    return cell.str.slice(0, FORM_LENGTH)


def _bin(cell: pl.Expr) -> pl.Expr:
    """Return the first six digits of a card number, null where it is none."""
    return cell.str.replace_all("[ -]", "").str.extract("^([0-9]{6})[0-9]{6,13}$")


def _counts(cells: pl.DataFrame, feature: pl.Expr) -> dict[str, dict[Any, int]]:
    """Return how many cells have each value of a feature, by column: the most frequent values.

    `feature` is the length, form or BIN of a cell; `cells` as of `_varieties`.
    """
    features = cells.select("column", "n", feature.alias("feature")).drop_nulls()
    sums = features.group_by("column", "feature").agg(pl.sum("n"))
    counts: dict[str, dict[Any, int]] = {}
    for column, value, n in sums.sort("n", "feature", descending=[True, False]).iter_rows():
        of_column = counts.setdefault(column, {})
        if len(of_column) < KEPT:
            of_column[value] = n
    return counts
