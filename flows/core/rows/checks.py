"""Checking: which row breaks which rule, as verdicts without a value.

The rules stand in `schemas.portal`. pandera checks the shape of each block; its rules are asked in one pass, where
pandera would take one each (a test holds both to the same verdicts).
"""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import NamedTuple

import numpy as np
import polars as pl

from flows.core.errors import BugError
from flows.core.rows.cvv import diagnose_hash
from flows.core.rows.shape import misshapen
from schemas.portal import PortalInput, columns, rules_of_day
from schemas.rules import Rules


class _Asked(NamedTuple):
    """The rules that are not off: an expression of each, and what it says (column, code, severity) where it fails."""

    holds: tuple[pl.Expr, ...]
    says: pl.DataFrame


def check(rows: pl.DataFrame, as_of: date, rules: Rules) -> pl.DataFrame:
    """Return verdicts (row, column, code, severity) in the order of the rows (interface.md 2.6).

    `rows` are normalised, of about one block; `as_of` is the business date. A cell has at most one reject and one
    warning: the first rule it breaks. Raises BugError, without any value, where the frame has the wrong shape.
    """
    trouble = misshapen(rows.select(name for name in columns() if name in rows.columns), PortalInput)
    if not trouble:
        try:
            return _verdicts(rows, _asked(as_of, rules), rules)
        except Exception as error:  # noqa: BLE001  polars' own may hold cells: ours is raised below, without it
            trouble = type(error).__name__
    raise BugError("check", trouble)


def _verdicts(rows: pl.DataFrame, asked: _Asked, rules: Rules) -> pl.DataFrame:
    rule, at = np.nonzero(~rows.select(asked.holds).to_numpy().T)
    told = asked.says[rule].insert_column(0, rows["row"][at])
    mistaken = diagnose_hash(rows)
    if mistaken.height:  # it is more precise than the hash's format, and only the first reason of a cell stays
        severity = {code: rules.severity(code) for code in mistaken["code"].unique()}
        judged = mistaken.with_columns(severity=pl.col("code").replace_strict(severity, return_dtype=pl.String))
        told = pl.concat([judged.filter(pl.col("severity") != "off"), told])
    first = told.lazy().unique(["row", "column", "severity"], keep="first", maintain_order=True)
    return first.sort("row", maintain_order=True).collect()


@cache
def _asked(as_of: date, rules: Rules) -> _Asked:
    on = [rule for rule in rules_of_day(as_of, rules) if rules.severity(rule.code) != "off"]
    says = {
        "column": [rule.column for rule in on],
        "code": [rule.code for rule in on],
        "severity": [rules.severity(rule.code) for rule in on],
    }
    return _Asked(tuple(rule.holds.alias(rule.code) for rule in on), pl.DataFrame(says))
