"""Checking: which row breaks which rule, as verdicts without a value. The rules themselves stand in `schemas.portal`."""

from __future__ import annotations

from datetime import date

import pandera.errors
import polars as pl
from pandera.config import ValidationDepth, config_context

from flows.core.cvv import diagnose_hash
from flows.core.errors import BugError
from schemas.portal import columns, for_day
from schemas.rules import Rules

VERDICT = pl.Schema({"row": pl.UInt32, "column": pl.String, "code": pl.String, "severity": pl.String})


def check(rows: pl.DataFrame, as_of: date, rules: Rules) -> pl.DataFrame:
    """Return one verdict (row, column, code, severity) per cell that breaks a rule, ordered by row (interface.md 2.6).

    `rows` are normalised; `as_of` is the business date. A cell has at most one reject and one warning: the first
    rule it breaks. Raises BugError, without any value, where the frame itself has the wrong shape.
    """
    broken = [*_broken(rows, as_of, rules), diagnose_hash(rows)]
    verdicts = pl.concat(broken)
    severity = {code: rules.severity(code) for code in verdicts["code"].unique()}
    return (
        verdicts.with_columns(
            severity=pl.col("code").replace_strict(severity, default=None, return_dtype=pl.String)
        )
        .filter(pl.col("severity") != "off")
        .unique(["row", "column", "severity"], keep="first", maintain_order=True)
        .sort("row", maintain_order=True)
    )


def _broken(rows: pl.DataFrame, as_of: date, rules: Rules) -> list[pl.DataFrame]:
    """Run pandera and return row, column, code per broken rule; its exception holds cells and ends here."""
    trouble = ""
    broken: list[pl.DataFrame] = []
    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
            for_day(as_of, rules).validate(rows.select(columns()), lazy=True)
    except pandera.errors.SchemaErrors as error:
        broken = [
            _verdicts(rows, one) for one in error.schema_errors if isinstance(one.check_output, pl.DataFrame)
        ]
        trouble = "" if len(broken) == len(error.schema_errors) else "a frame of the wrong shape"
    except Exception as error:  # noqa: BLE001  any other text may hold cells too
        trouble = type(error).__name__
    if trouble:
        raise BugError("check", trouble)
    return broken


def _verdicts(rows: pl.DataFrame, error: pandera.errors.SchemaError) -> pl.DataFrame:
    mask = error.check_output.to_series()
    column, code = pl.lit(error.schema.name), pl.lit(error.check.name)
    return rows.filter(~mask).select("row", column.alias("column"), code.alias("code"))
