"""Checking: which row breaks which rule, as verdicts without a value. The rules stand in `schemas.portal`."""

from __future__ import annotations

from datetime import date

import pandera.errors
import polars as pl
from pandera.config import ValidationDepth, config_context

from flows.core.cvv import diagnose_hash
from flows.core.errors import BugError
from schemas.portal import columns, for_day
from schemas.rules import Rules


def check(rows: pl.DataFrame, as_of: date, rules: Rules) -> pl.DataFrame:
    """Return verdicts (row, column, code, severity) in the order of the rows (interface.md 2.6).

    `rows` are normalised, of about one block; `as_of` is the business date. A cell has at most one reject and one
    warning: the first rule it breaks. Raises BugError, without any value, where the frame has the wrong shape.
    """
    # The diagnosis of a hash is more precise than its format, and only the first reason of a cell stays.
    broken = pl.concat([diagnose_hash(rows), *_broken(rows, as_of, rules)])
    severity = {code: rules.severity(code) for code in broken["code"].unique()}
    return (
        broken.with_columns(severity=pl.col("code").replace_strict(severity, default=None, return_dtype=pl.String))
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
    except pandera.errors.SchemaErrors as errors:
        masked = [one for one in errors.schema_errors if isinstance(one.check_output, pl.DataFrame)]
        trouble = "" if len(masked) == len(errors.schema_errors) else "a rule gave no verdict by row"
        broken = [_verdicts(rows["row"], one) for one in masked]
    except Exception as error:  # noqa: BLE001  the texts of polars hold cells too
        trouble = type(error).__name__
    if trouble:
        raise BugError("check", trouble)
    return broken


def _verdicts(row: pl.Series, error: pandera.errors.SchemaError) -> pl.DataFrame:
    failed = row.filter(~error.check_output.to_series()).to_frame("row")
    return failed.with_columns(column=pl.lit(error.schema.name), code=pl.lit(error.check.name))
