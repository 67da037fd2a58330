"""What is rejected, as cells of the issuer's file: one verdict for one cell there, its shape."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from flows.extracts.origins import Origin
from flows.submissions.shapes import found_in
from schemas.portal import MONTH, YEAR, columns

FOUND: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "column": pl.String,
    "found": pl.String,
}


class Texts(NamedTuple):
    """The rows of a block, and the text of each portal column in them before it was mapped."""

    rows: pl.DataFrame
    of: Mapping[str, pl.Expr]


def texts_of(source: pl.DataFrame, origins: Mapping[str, Origin], mapped: pl.DataFrame) -> Texts:
    """Return the texts of the extract's rows.

    Without origins those of the `mapped` rows: with corrections the extract's do not count.
    """
    if not origins:
        return Texts(mapped, {name: pl.col(name) for name in columns()})
    return Texts(source, {name: origin.text for name, origin in origins.items()})


NO_TEXTS = Texts(pl.DataFrame(), {})


def found(texts: Texts, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return what was found (FOUND) in the cells that verdicts reject."""
    rejected = verdicts.filter(severity="reject").select("row", "column").unique()
    mapped = [name for name in rejected["column"].unique().sort() if name in texts.of]
    if not mapped:
        return pl.DataFrame(schema=FOUND)
    rows = texts.rows.filter(pl.col("row").is_in(rejected["row"].unique().implode()))
    cells = rows.select("row", *(texts.of[name].alias(name) for name in mapped)).unpivot(
        mapped, index="row", variable_name="column", value_name="cell"
    )
    listed = cells.join(rejected, on=["row", "column"], how="semi")
    return listed.select("row", "column", found=found_in(pl.col("column"), pl.col("cell")))


def once_for_a_date(verdicts: pl.DataFrame, origins: Mapping[str, Origin]) -> pl.DataFrame:
    """Return verdicts without those on a month that only repeat the one on its year.

    That is where one source column has both, and both are wrong alike, such as missing.
    """
    year = origins.get(YEAR)
    month = origins.get(MONTH)
    if verdicts.is_empty() or year is None or month is None or year.column != month.column:
        return verdicts
    kind = pl.col("code").str.split(".").list.last().alias("kind")
    of_years = verdicts.filter(column=YEAR).select("row", "severity", kind)
    of_months = verdicts.filter(column=MONTH).with_columns(kind)
    repeated = of_months.join(of_years, on=of_years.columns, how="semi")
    return verdicts.join(repeated, on=["row", "column", "code"], how="anti", maintain_order="left")
