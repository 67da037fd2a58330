"""Repairs of whole columns: decided once, by the first block, for the whole extract; never row by row."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from flows.errors import ExtractError
from schemas import places
from schemas.expressions import MONTH_SHAPE, YEAR_SHAPE
from schemas.portal import COUNTRY, CVV, MONTH, PAN, POSTAL_CODE, SUBNATIONAL, YEAR
from schemas.row_settings import Repairs

ENOUGH = 20  # values; one CVV in ten starts with 0, so if none of twenty does, zeros were probably lost
SHORT_ZIP, WHOLE_ZIP = "^[0-9]{3,4}$", "^0[0-9]{4}"
SHORT_CVV, WHOLE_CVV = "^[0-9]{1,2}$", "^0[0-9]{2}$"


class ExcelDamageError(ExtractError):
    """A spreadsheet has destroyed digits of the extract's card numbers."""

    message = "Extract {name}: card numbers were damaged by a spreadsheet ({sign})."
    next_step = "Nothing was sent. The issuer must export it again without opening it in a spreadsheet."


class RepairContradictedError(ExtractError):
    """A later row contradicts a repair that the first rows needed."""

    message = "Extract {name}: row {row} contradicts the repair {repair}, which the first rows needed."
    next_step = (
        "Nothing was sent. The issuer must write the column one way throughout, or set {repair} = false in [repairs]."
    )


class Decided(NamedTuple):
    """The repairs of an extract, named as in the settings `[repairs]`."""

    zip_zeros: bool = False
    cvv_zeros: bool = False
    expiration_order: bool = False


def decide(rows: pl.DataFrame, repairs: Repairs, name: str) -> Decided:
    """Return the repairs that the first block of extract `name` needs; ExcelDamageError where digits are lost."""
    if repairs.refuse_excel:
        _refuse_excel(rows[PAN].drop_nulls(), name)
    return Decided(
        repairs.zip_zeros and _zips_lost_zeros(rows),
        repairs.cvv_zeros and _cvvs_lost_zeros(rows[CVV].drop_nulls()),
        repairs.expiration_order and _month_and_year_swapped(rows.select(YEAR, MONTH).drop_nulls()),
    )


def repair(rows: pl.DataFrame, decided: Decided, name: str) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return a normalised block repaired, and the cells changed per repair; RepairContradictedError names the row."""
    american, zipped, cvv, year, month = (pl.col(COUNTRY) == places.US, *map(pl.col, (POSTAL_CODE, CVV, YEAR, MONTH)))
    short_zip, short_cvv = american & zipped.str.contains(SHORT_ZIP), cvv.str.contains(SHORT_CVV)
    # Per repair: the rows it changes, the rows that contradict it, the columns after it.
    steps = {
        "zip_zeros": (short_zip, american & zipped.str.contains(WHOLE_ZIP), [_padded(POSTAL_CODE, short_zip, 5)]),
        "cvv_zeros": (short_cvv, cvv.str.contains(WHOLE_CVV), [_padded(CVV, short_cvv, 3)]),
        "expiration_order": (
            year.is_not_null() | month.is_not_null(),
            month.str.contains(MONTH_SHAPE) & ~year.str.contains(MONTH_SHAPE),
            [month.alias(YEAR), year.alias(MONTH)],
        ),
    }
    counts: dict[str, int] = {}
    for field in (field for field, needed in decided._asdict().items() if needed):
        changes, against, columns = steps[field]
        contrary = rows.filter(against)["row"]
        if len(contrary):
            raise RepairContradictedError(name=name, repair=field, row=contrary[0])
        counts[field] = rows.filter(changes).height
        rows = rows.with_columns(columns)
    return rows, counts


def _padded(column: str, short: pl.Expr, width: int) -> pl.Expr:
    return pl.when(short).then(pl.col(column).str.zfill(width)).otherwise(column).alias(column)


def _zips_lost_zeros(rows: pl.DataFrame) -> bool:
    """Return whether no ZIP has a leading zero, and the short ones, padded, are in their states."""
    american = rows.filter(pl.col(COUNTRY) == places.US).select(POSTAL_CODE, SUBNATIONAL).drop_nulls()
    short = american.filter(pl.col(POSTAL_CODE).str.contains(SHORT_ZIP))
    padded = short.select(pl.col(POSTAL_CODE).str.zfill(5).str.slice(0, 3) + pl.col(SUBNATIONAL)).to_series()
    in_state = padded.is_in(places.postal_places()).sum()
    return 0 < 0.95 * len(padded) <= in_state and not american[POSTAL_CODE].str.contains(WHOLE_ZIP).any()


def _cvvs_lost_zeros(cvvs: pl.Series) -> bool:
    """Return whether no CVV has a leading zero, and about as many are short as should have one."""
    short = cvvs.str.contains(SHORT_CVV).sum()
    return len(cvvs) >= ENOUGH and 0 < short < 0.3 * len(cvvs) and not cvvs.str.contains(WHOLE_CVV).any()


def _month_and_year_swapped(rows: pl.DataFrame) -> bool:
    """Return whether every value fits YYMM for MMYY, and not every value fits as read."""
    as_read = rows[MONTH].str.contains(MONTH_SHAPE).all() and rows[YEAR].str.contains(YEAR_SHAPE).all()
    other = rows[YEAR].str.contains(MONTH_SHAPE).all() and rows[MONTH].str.contains(YEAR_SHAPE).all()
    return rows.height > 0 and other and not as_read


def _refuse_excel(pans: pl.Series, name: str) -> None:
    if pans.str.contains("^[0-9][.,]?[0-9]*[eE][+]?[0-9]+$").any():
        raise ExcelDamageError(name=name, sign="scientific notation")
    # Excel keeps fifteen digits and writes 0 for the sixteenth.
    if len(pans) >= ENOUGH and pans.str.ends_with("0").all():
        raise ExcelDamageError(name=name, sign="every number ends in 0")
