"""Columns where one value stands in too many rows, though nearly all should differ.

A CVV of all `000` keeps every rule, and no link that asks for it can be opened. The largest share
that one value may have is `[limits] max_one_value`, or else `Column.most_equal`. Fewer cells than
FEWEST_JUDGED are not judged: so few people may be one family or firm, and chance alone gives a few
cells a large share. Months of expiry are judged in a portfolio alone: the new cards of one night
end together. A text that the settings give to every row is not judged. Only the share of a value is
shown, never the value.
"""

from collections.abc import Iterator

import polars as pl

from schemas import portal
from schemas.issuer import Issuer
from schemas.manifest import Layout


def columns_of_one_value(rows: pl.DataFrame, layout: Layout, issuer: Issuer) -> Iterator[str]:
    """Yield a sentence per column where one value stands in more rows than the limit allows.

    `rows`: of the extract, normalised; a cell that stands for nothing is none.
    """
    for name in rows.columns:
        limit = _limit(name, layout, issuer)
        cells = rows[name].drop_nulls().to_list()
        most = portal.most_equal_cells(cells, limit)
        if most:
            share = f"{most:,} of {len(cells):,} cells"
            yield f"{name} has the same value in {share}, limit {limit:.0%}"


def _limit(name: str, layout: Layout, issuer: Issuer) -> float | None:
    """Return the largest share of one value in a column, None where any may be."""
    source = layout.columns.get(name)
    if source is not None and not source.names:
        return None
    if name in issuer.limits.max_one_value:
        return issuer.limits.max_one_value[name]
    if name == portal.MONTH and not issuer.full_portfolio:
        return None
    column = portal.COLUMNS.get(name)
    return column.most_equal if column is not None else None
