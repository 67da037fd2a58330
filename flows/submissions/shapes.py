"""What is shown of a cell: its shape, never its content, and of a CVV or its hash only the length.

A text of 40 characters or more without a blank has no shape, since the positions of its letters and
digits could reveal which hash it is. The ledger keeps the shape of a cell that was rejected, as it
is in the issuer's file, for `rejects.csv`.
"""

import re

import polars as pl

from schemas.cell_formats import present
from schemas.expressions import UNREADABLE
from schemas.ledger import EMPTY
from schemas.portal import CVV, CVV_HASH

_NO_SHAPE = r"^\S{40,}$"
# replaced in this order: a digit of another script is no 9, since none is accepted
_SIGNS = {r"[\p{L}\p{M}]": "A", "[0-9]": "9", "[^ -~]": "?"}
# the first one hides hashes
MASKS = {_NO_SHAPE: "A" * 21, **_SIGNS, "^(.{20}).+$": "$1..."}
_LONG_RUN = re.compile(r"([A9?])\1{9,}")  # so no shape has as many digits as a card number
_LONGEST = 24


def shape(cell: pl.Expr) -> pl.Expr:
    """Return the shape of a text: A for a letter, 9 for a digit, cut where it is long."""
    for pattern, mask in MASKS.items():
        cell = cell.str.replace_all(pattern, mask)
    return cell


def found_in(column: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Return what was found in the cells of portal columns, EMPTY where nothing was.

    `text`: the cells as they are in the issuer's file. Long runs are counted: A(12), 9(16). Null
    where mapping did not keep the text.
    """
    is_ascii = ~text.str.contains("[^ -~]")
    others = pl.when(is_ascii).then(pl.lit("")).otherwise(pl.lit(", not ASCII"))
    length = pl.concat_str(text.str.len_chars(), pl.lit(" characters"), others)
    signs = text
    for pattern, sign in _SIGNS.items():
        signs = signs.str.replace_all(pattern, sign)
    is_secret = column.is_in([CVV, CVV_HASH]) | text.str.contains(_NO_SHAPE)
    shown = pl.when(is_secret).then(length).otherwise(signs)
    is_absent = present(text).is_null()
    listed = pl.when(is_absent).then(pl.lit(EMPTY)).when(text != UNREADABLE).then(shown)
    return listed.map_batches(_compacted, return_dtype=pl.String, is_elementwise=True)


def _compacted(shapes: pl.Series) -> pl.Series:
    """Return shapes with long runs counted, cut where they are still long."""
    distinct = shapes.drop_nulls().unique()
    if distinct.is_empty():
        return shapes
    return shapes.replace_strict(
        distinct, distinct.map_elements(_counted, pl.String), default=None, return_dtype=pl.String
    )


def _counted(shape: str) -> str:
    counted = _LONG_RUN.sub(lambda run: f"{run[1]}({len(run[0])})", shape)
    return counted if len(counted) <= _LONGEST else f"{counted[:_LONGEST]}..."
