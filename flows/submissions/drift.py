"""Drift: what the columns of an extract look like, kept without a value, and how a night departs
from those before it.

A profile counts a sample of the rows: the same rows however the extract is cut into blocks. No cell
leaves memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from flows.runs.documents import Night
from schemas.expressions import UNREADABLE
from schemas.manifest import ColumnProfile, Profile
from schemas.mapping import present
from schemas.portal import CVV, CVV_HASH, PAN, columns

SAMPLED = 2048  # rows at most
KEPT = 32  # lengths, forms and BINs of a column: the most frequent; longer cells count as this long
# by the golden ratio, so that multiples are spread evenly
SCATTERED, SCATTER = 1 << 32, np.uint64(2654435761)
# What a check shows of a cell; none of a hash.
MASKS = {
    r"^\S{40,}$": "A" * 21,
    r"[\p{L}\p{M}]": "A",
    r"\p{N}": "9",
    "[^ -~]": "?",
    "^(.{20}).+$": "$1...",
}
NIGHTS, FEWEST = 10, 5  # compared with, and needed to know what is usual

FILLED = "filled in {now:.0%} of the rows, usually {usual:.0%}"
VARIED = "spread over about {values:,.0f} values, usually {many:,.0f}"
LONGER = "{now:.0%} of the cells are longer than {key} characters, usually {usual:.0%}"
FORM = "{now:.0%} of the cells have the form {key} (A: letters, 9: digits, X: both), usually {usual:.0%}"
BEGINS = "{now:.0%} of the cards begin with {key}, usually {usual:.0%}"


def shape(cell: pl.Expr) -> pl.Expr:
    """Return the shape of a text: A for a letter, 9 for a digit, cut where it is long."""
    for pattern, mask in MASKS.items():
        cell = cell.str.replace_all(pattern, mask)
    return cell


def shapes(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return row, column and `found` of the cells that verdicts reject: the shape, of card data
    only the length.
    """
    refused, cell = (
        verdicts.filter(severity="reject").select("row", "column").unique(),
        pl.col("cell"),
    )
    bad = rows.join(refused, on="row", how="semi")
    cells = bad.unpivot(columns(), index="row", variable_name="column", value_name="cell")
    length = pl.concat_str(cell.str.len_chars(), pl.lit(" characters"))
    found = (
        pl.when(pl.col("column").is_in((PAN, CVV, CVV_HASH))).then(length).otherwise(shape(cell))
    )
    told = cells.filter(cell != UNREADABLE).select("row", "column", found=found)
    return told.join(refused, on=["row", "column"], how="semi")


class Sample:
    """A sample of the rows of an extract, whose mapped blocks are added in order."""

    def __init__(self) -> None:
        self._kept: list[pl.DataFrame] = []
        self._below = SCATTERED  # a row is kept where its scattered number is below

    def add(self, rows: pl.DataFrame) -> None:
        """Add a block: row, line, and the columns."""
        self._kept = [self._thinned(pl.concat([*self._kept, self._thinned(rows)]))]

    def look(self, column: str) -> tuple[float, list[str]]:
        """Return which share of the cells has content, and its three most frequent shapes: A a
        letter, 9 a digit.
        """
        cells = pl.concat(self._kept).select(shape=shape(present(pl.col(column)))).to_series()
        known = cells.drop_nulls()
        most = (
            known.value_counts().sort("count", "shape", descending=[True, False])["shape"].head(3)
        )
        return known.len() / cells.len() if cells.len() else 0.0, most.to_list()

    @property
    def empty(self) -> bool:
        """Whether no row was added."""
        return not any(map(len, self._kept))

    def profile(self) -> Profile:
        """Return the profile of the rows."""
        rows, n, cell = pl.concat(self._kept).drop("row", "line"), pl.col("n"), pl.col("cell")
        found = (
            rows.unpivot(variable_name="column", value_name="cell")
            .drop_nulls()
            .group_by("column", "cell")
        )
        cells = found.agg(n=pl.len().cast(pl.Int64))
        sums = {
            name: each
            for name, *each in cells.group_by("column")
            .agg(n.sum(), e=(n * (n - 1)).sum())
            .iter_rows()
        }
        form = cell.str.replace_all(r"[^\p{L}\p{M} -~]+", "?").str.replace_all(
            r"[\p{L}\p{M}]+", "A"
        )
        form = (
            form.str.replace_all("[0-9]+", "9")
            .str.replace_all("[A9+/=]*(A9|9A)[A9+/=]*", "X")
            .str.slice(0, 24)
        )
        lengths = _counts(cells, cell.str.len_chars().clip(upper_bound=KEPT))
        forms = _counts(cells.filter(~pl.col("column").is_in((CVV, CVV_HASH))), form)
        bins = cell.str.replace_all("[ -]", "").str.extract("^([0-9]{6})[0-9]{6,13}$")
        columns = {}
        for name in rows.columns:
            filled, equal = sums.get(name, (0, 0))
            most = filled * SCATTERED // self._below  # in the whole extract
            distinct = min(most, round(filled * (filled - 1) / equal, 2)) if equal else most
            columns[name] = ColumnProfile(
                filled=filled,
                distinct=distinct,
                lengths=lengths.get(name, {}),
                forms=forms.get(name, {}),
            )
        return Profile(
            rows=rows.height,
            columns=columns,
            bins=_counts(cells.filter(column=PAN), bins).get(PAN, {}),
        )

    def _thinned(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows to keep, of which there are never too many."""
        scattered = rows["row"].to_numpy() * SCATTER % np.uint64(SCATTERED)
        while np.count_nonzero(scattered < self._below) > SAMPLED:
            self._below //= 2
        # gathered: a filter would hold on to whole blocks
        return rows[np.flatnonzero(scattered < self._below)]


def _counts(cells: pl.DataFrame, what: pl.Expr) -> dict[str, dict[Any, int]]:
    """Return how many cells have each length, form or BIN, by column."""
    found = (
        cells.select("column", "n", what.alias("what"))
        .drop_nulls()
        .group_by("column", "what")
        .agg(pl.sum("n"))
    )
    counts: dict[str, dict[Any, int]] = {}
    for column, one, n in found.sort("n", "what", descending=[True, False]).iter_rows():
        if len(counts.setdefault(column, {})) < KEPT:
            counts[column][one] = n
    return counts


def departures(profile: Profile | None, nights: Sequence[Night], limit: float) -> list[str]:
    """Return a sentence per column that departs from the last nights; those without a profile do
    not count.

    A column departs where a share is outside those of all nights but the highest and the lowest,
    and by more than
    `limit`, than chance explains, and than these nights are from each other.
    """
    known = [dict(_measures(one.profile)) for one in nights if one.profile][-NIGHTS:]
    found: dict[str, tuple[float, str]] = {}
    for (column, text), (cells, shares) in _measures(profile) if profile else ():
        usual = [one[column, text] for one in known if (column, text) in one]
        if len(usual) < FEWEST:
            continue
        # four standard deviations
        chance = 2 * sqrt(1 / cells + 1 / median(number for number, _ in usual))
        for key in sorted({key for _, one in ((cells, shares), *usual) for key in one}):
            # A number may have a digit more than yesterday: what is longer than 12 characters was
            # longer than 11.
            near = key - key // 8 if isinstance(key, int) else key
            before, alike = (sorted(one.get(at, 0.0) for _, one in usual) for at in (key, near))
            share, low, high, was = shares.get(key, 0.0), before[1], before[-2], median(before)
            far = max(low - shares.get(near, 0.0), share - alike[-2]) / max(
                limit, chance, high - low
            )
            if far > max(1, found.get(column, (0, ""))[0]):
                values, many = (share or 1) ** -2, (was or 1) ** -2
                found[column] = (
                    far,
                    f"{column}: {text.format(key=key, now=share, usual=was, values=values, many=many)}",
                )
    return [text for _, text in found.values()]


def _measures(profile: Profile) -> Iterator[tuple[tuple[str, str], tuple[int, dict[Any, float]]]]:
    """Yield by column and sentence of how many cells a measure is, and their shares."""
    for name, one in profile.columns.items():
        up_to = accumulate(one.lengths.get(length, 0) for length in range(KEPT))
        bins = profile.bins if name == PAN else {}
        found: tuple[tuple[str, int, Mapping[Any, float]], ...] = (
            (FILLED, profile.rows, {"": one.filled}),
            # the chance that two are equal
            (VARIED, one.filled, {"": one.filled / sqrt(max(1, one.distinct))}),
            (LONGER, one.filled, {length: one.filled - n for length, n in enumerate(up_to)}),
            (FORM, one.filled, one.forms),
            (BEGINS, sum(bins.values()), bins),
        )
        for text, cells, counts in found:
            if cells and counts:
                yield (name, text), (cells, {key: n / cells for key, n in counts.items()})
