"""What a person may choose for a portal column, and what it makes of rows: shapes, no cells."""

import tomllib
from collections.abc import Sequence
from datetime import date
from typing import Final

import polars as pl
from pydantic import TypeAdapter, ValidationError

from flows.errors import CardlinkError
from flows.extensions.init.column_guesses import written_as
from flows.extensions.init.column_signs import EXPIRY, NAME
from flows.extensions.init.guess import Column
from flows.extracts.grammar import RECORD
from flows.extracts.mapping import column_of
from flows.submissions.shapes import found_in
from schemas import portal
from schemas.mapping import Spec

ROWS: Final = 3
_SPEC: Final = TypeAdapter[Spec](Spec)


def spellings(column: Column, target: str, today: date) -> list[str]:
    """Return what a portal column may be made of a source column: itself, and forms that fit."""
    if not column.present:
        return [column.spec]
    if target in (portal.YEAR, portal.MONTH):
        return [column.spec, *written_as(column, EXPIRY, today)]
    if target in (portal.FIRST_NAME, portal.LAST_NAME) and any(map(_has_words, column.present)):
        return [column.spec, *written_as(column, NAME, today)]
    return [column.spec]


def _has_words(value: str) -> bool:
    return " " in value


def shapes(value: str, target: str, columns: Sequence[Column]) -> list[str]:
    """Return what a setting would make of the first rows, in shape; nothing where it cannot."""
    if target not in portal.columns() or not columns:
        return []
    rows = _first_rows(columns)
    try:
        spec = _SPEC.validate_python(tomllib.loads(f"value = {value}")["value"])
        cells = rows.select(cell=column_of(target, spec, rows.columns))
    except (ValidationError, CardlinkError, pl.exceptions.PolarsError):
        return []
    shown = cells.select(found_in(pl.lit(target), pl.col("cell"))).to_series()
    return [shape or "(unreadable)" for shape in shown.to_list()]


def _first_rows(columns: Sequence[Column]) -> pl.DataFrame:
    """Return the first rows of a sample as the reader would have them."""
    if columns[0].name:
        return pl.DataFrame({column.name: list(column.values[:ROWS]) for column in columns})
    records = []
    for row in range(min(ROWS, len(columns[0].values))):
        record = ""
        for column in columns:
            first = int(column.source.strip("at =[]").split(",")[0])
            record = record.ljust(first - 1) + column.values[row]
        records.append(record)
    return pl.DataFrame({RECORD: records})
