"""What a check shows of a cell: its shape, never its content, and of card data only the length.

A text of 40 characters or more without a blank has no shape, since the positions of its letters and
digits could reveal which hash it is. The ledger keeps column and code only, so `rejects.csv` of a
run says what is accepted, not what the cell looked like.
"""

import polars as pl

from schemas.expressions import UNREADABLE
from schemas.portal import CVV, CVV_HASH, PAN, columns

# replaced in this order; the first one hides hashes
MASKS = {
    r"^\S{40,}$": "A" * 21,
    r"[\p{L}\p{M}]": "A",
    r"\p{N}": "9",
    "[^ -~]": "?",
    "^(.{20}).+$": "$1...",
}


def shape(cell: pl.Expr) -> pl.Expr:
    """Return the shape of a text: A for a letter, 9 for a digit, cut where it is long."""
    for pattern, mask in MASKS.items():
        cell = cell.str.replace_all(pattern, mask)
    return cell


def shapes(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return row, column and `found`, the shape, of the cells that verdicts reject.

    Of card data only the length is shown.
    """
    cell = pl.col("cell")
    rejected = verdicts.filter(severity="reject").select("row", "column").unique()
    bad_rows = rows.join(rejected, on="row", how="semi")
    cells = bad_rows.unpivot(columns(), index="row", variable_name="column", value_name="cell")
    is_card_data = pl.col("column").is_in((PAN, CVV, CVV_HASH))
    length = pl.concat_str(cell.str.len_chars(), pl.lit(" characters"))
    shown = pl.when(is_card_data).then(length).otherwise(shape(cell))
    readable = cells.filter(cell != UNREADABLE).select("row", "column", found=shown)
    return readable.join(rejected, on=["row", "column"], how="semi")
