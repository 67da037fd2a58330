"""Ledger records as `schemas.ledger` declares them: pandera checks their shape, and its rules are asked in one pass.

pandera would ask each rule by itself, which on a night of 500 rows takes as long as checking the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pandera.polars as pa
import polars as pl
from pandera.config import ValidationDepth, config_context

from flows.core.errors import BugError
from schemas.ledger import Ledger


def check_records(records: pl.DataFrame) -> None:
    """Raise BugError, which names the columns and shows no cell, where records are not as the ledger's model says."""
    trouble = ""
    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_ONLY):
            Ledger.validate(records)
    except Exception as error:  # noqa: BLE001  ours is raised below, without theirs: it holds cells
        trouble = type(error).__name__
    if not trouble:
        held = records.select(_rules())
        trouble = ", ".join(name for name in held.columns if not held[name].item())
    if trouble:
        raise BugError("ledger", trouble)


@cache
def _rules() -> tuple[pl.Expr, ...]:
    """Return, by column, whether every record keeps what the model declares; a null keeps all but `nullable`."""
    return tuple(
        pl.all_horizontal(
            pl.lit(column.nullable) | (pl.col(name).null_count() == 0),
            *(_declared(pl.col(name), check).fill_null(True).all() for check in column.checks),
        ).alias(name)
        for name, column in Ledger.to_schema().columns.items()
    )


def _declared(cell: pl.Expr, check: pa.Check) -> pl.Expr:
    """Return one of pandera's own checks as an expression; KeyError for one the ledger has not used so far."""
    asked: dict[str, Callable[..., pl.Expr]] = {
        "greater_than_or_equal_to": lambda min_value: cell >= min_value,
        "isin": lambda allowed_values: cell.is_in(list(allowed_values)),
        "str_matches": lambda pattern: cell.str.contains(pattern),
    }
    return asked[str(check.name)](**(check.statistics or {}))
