"""Checking: which row breaks which rule, as verdicts without a value.

The rules stand in `schemas.portal`. pandera checks the shape of each block; its rules are asked in one pass, where
pandera would take one each (a test holds both to the same verdicts).
"""

from __future__ import annotations

from datetime import date

import polars as pl
from pandera.config import ValidationDepth, config_context

from flows.core.errors import BugError
from flows.core.rows.cvv import diagnose_hash
from schemas.portal import Rule, columns, for_day, rules_of_day
from schemas.rules import Rules


def check(rows: pl.DataFrame, as_of: date, rules: Rules) -> pl.DataFrame:
    """Return verdicts (row, column, code, severity) in the order of the rows (interface.md 2.6).

    `rows` are normalised, of about one block; `as_of` is the business date. A cell has at most one reject and one
    warning: the first rule it breaks. Raises BugError, without any value, where the frame has the wrong shape.
    """
    # The diagnosis of a hash is more precise than its format, and only the first reason of a cell stays.
    broken = pl.concat([diagnose_hash(rows), *_broken(rows, as_of, rules)])
    severity = {code: rules.severity(code) for code in broken["code"].unique()}
    told = broken.lazy().with_columns(severity=pl.col("code").replace_strict(severity, return_dtype=pl.String))
    kept = told.filter(pl.col("severity") != "off")
    first = kept.unique(["row", "column", "severity"], keep="first", maintain_order=True)
    return first.sort("row", maintain_order=True).collect()


def _broken(rows: pl.DataFrame, as_of: date, rules: Rules) -> list[pl.DataFrame]:
    """Return row, column, code per broken rule; the exceptions of pandera and polars hold cells and end here."""
    trouble = ""
    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_ONLY):
            for_day(as_of, rules).validate(rows.select(columns()))
        asked = rules_of_day(as_of, rules)
        held = rows.lazy().select(rule.holds.alias(rule.code) for rule in asked).collect()
        return [_verdicts(rows["row"], rule, held[rule.code]) for rule in asked if not held[rule.code].all()]
    except Exception as error:  # noqa: BLE001  ours is raised below, without theirs
        trouble = type(error).__name__
    raise BugError("check", trouble)


def _verdicts(row: pl.Series, rule: Rule, holds: pl.Series) -> pl.DataFrame:
    failed = row.filter(~holds)
    return pl.DataFrame({"row": failed, "column": [rule.column] * len(failed), "code": [rule.code] * len(failed)})
