"""Repairs of whole columns: decided once, on the evidence of the first block, then held; never row by row."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from flows.core.errors import ExtractError
from schemas import places
from schemas.portal import COUNTRY, CVV, MONTH, PAN, POSTAL_CODE, YEAR
from schemas.rules import Repairs


class ExcelDamageError(ExtractError):
    """The extract went through a spreadsheet, and digits of its card numbers are gone."""

    says = "Extract {0}: card numbers were damaged by a spreadsheet ({1})."
    then = "Nothing was sent. The issuer must export it again as text, without opening it in between."

    def __init__(self, name: str, sign: str) -> None:
        super().__init__(name, sign)


class RepairContradictedError(ExtractError):
    """A later row contradicts the evidence a repair was decided on."""

    says = "Extract {0}: row {2} contradicts the repair {1}, which was decided on the first rows."
    then = "Nothing was sent. The issuer must write the column one way throughout, or [repairs] must switch it off."

    def __init__(self, name: str, repair: str, row: int) -> None:
        super().__init__(name, repair, row)


class Decided(NamedTuple):
    """The repairs held for the whole extract."""

    zip_zeros: bool = False
    cvv_zeros: bool = False
    expiration_order: bool = False


def decide(rows: pl.DataFrame, repairs: Repairs, name: str) -> Decided:
    """Return what the normalised first block shows to be needed; ExcelDamageError where digits are gone for good."""
    if repairs.refuse_excel:
        _refuse_excel(rows, name)
    american = rows.filter(pl.col(COUNTRY) == places.US)[POSTAL_CODE]
    return Decided(
        repairs.zip_zeros and _lost_zeros(american, r"^[0-9]{3,4}$", r"^0[0-9]{4}"),
        repairs.cvv_zeros and _lost_zeros(rows[CVV], r"^[0-9]{1,2}$", r"^0[0-9]{2}"),
        repairs.expiration_order and _swapped(rows),
    )


def repair(rows: pl.DataFrame, decided: Decided, name: str) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return the rows mended, and the count of cells per repair; RepairContradictedError names the row."""
    counts: dict[str, int] = {}
    if decided.expiration_order:
        rows = rows.with_columns(pl.col(MONTH).alias(YEAR), pl.col(YEAR).alias(MONTH))
        counts["expiration_order"] = rows.height
    if decided.zip_zeros:
        short = (pl.col(COUNTRY) == places.US) & pl.col(POSTAL_CODE).str.contains(r"^[0-9]{3,4}$")
        counts["zip_zeros"] = rows.select(short.sum()).item()
        rows = rows.with_columns(
            pl.when(short).then(pl.col(POSTAL_CODE).str.zfill(5)).otherwise(POSTAL_CODE).alias(POSTAL_CODE)
        )
    if decided.cvv_zeros:
        short = pl.col(CVV).str.contains(r"^[0-9]{1,2}$")
        counts["cvv_zeros"] = rows.select(short.sum()).item()
        rows = rows.with_columns(pl.when(short).then(pl.col(CVV).str.zfill(3)).otherwise(CVV).alias(CVV))
    return rows, counts


def _lost_zeros(column: pl.Series, short: str, kept: str) -> bool:
    return bool(column.str.contains(short).any()) and not column.str.contains(kept).any()


def _swapped(rows: pl.DataFrame) -> bool:
    month = r"^(0[1-9]|1[0-2])$"
    return bool(rows[YEAR].str.contains(month).all()) and not rows[MONTH].str.contains(month).all()


def _refuse_excel(rows: pl.DataFrame, name: str) -> None:
    pans = rows[PAN].drop_nulls()
    if pans.str.contains(r"^[0-9][.,]?[0-9]*[eE]\+?[0-9]+$").any():
        raise ExcelDamageError(name, "scientific notation")
    if len(pans) >= 20 and pans.str.ends_with("0").all():
        raise ExcelDamageError(name, "every number ends in 0")
