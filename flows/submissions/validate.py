"""Validate rows with pandera: which row breaks which rule, as verdicts without a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandera.polars as pa
import polars as pl
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaErrors

from flows.errors import BugError
from schemas import rules
from schemas.portal import columns
from schemas.row_settings import RuleSettings

VERDICT: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32, "column": pl.String, "code": pl.String, "severity": pl.String
}  # fmt: skip

SCREEN = "screen"
GROUPS = ("reject", "warn", SCREEN)
_NONE = pl.DataFrame(schema=VERDICT | {"rank": pl.UInt32})


class RuleGroup(NamedTuple):
    """Rules that are asked together: the expression of each, and its verdict where it fails."""

    holds: tuple[pl.Expr, ...]
    reported: pl.DataFrame  # column, code, severity, and rank: the rule's place in the table


class Contract(NamedTuple):
    """The pandera schema for a business date and an issuer's settings, and its rules one by one."""

    schema: pa.DataFrameSchema
    by_group: dict[str, RuleGroup]


def validate(rows: pl.DataFrame, as_of: date, settings: RuleSettings) -> pl.DataFrame:
    """Return verdicts (VERDICT) in the order of the rows; a row without a verdict `reject` passed pandera (2.6).

    `rows`: row and the portal's columns, normalised; `as_of` is the business date. A cell has at most one verdict of
    each severity: the first rule it breaks. Raises BugError, without any value, where the columns are not the schema's.
    """
    contract = contract_of(rules.RULES, as_of, settings)
    problem = "pandera and the rules disagree"
    try:
        failed = _failed(contract.schema, rows)
        if failed is not None:
            asked = contract.by_group
            verdicts = [_by_rule(rows.filter(mask), asked[one], sure=one != SCREEN) for one, mask in failed.items()]
            ranked = pl.concat([_NONE, *verdicts]).sort("row", "rank")
            return ranked.unique(["row", "column", "severity"], keep="first", maintain_order=True).select(*VERDICT)
    except Exception as error:  # noqa: BLE001  polars' and pandera's own may hold cells: ours is raised below
        problem = type(error).__name__
    raise BugError(place="validate", kind=problem)


@lru_cache(8)
def contract_of(table: Sequence[rules.Rule], as_of: date, settings: RuleSettings) -> Contract:
    """Make the pandera schema of the table: the columns in order, and one composite check for each group of rules.

    A group has the rules of one severity, or those that have a screen: their check asks one shape of each column, and
    only rows that have it are asked rule by rule.
    """
    asked: dict[str, RuleGroup] = {}
    checks = []
    severities = {rule.code: rule.severity_by(settings) for rule in table}
    groups = {
        rule.code: SCREEN if rule.screen and severities[rule.code] != "off" else severities[rule.code] for rule in table
    }
    for group in GROUPS:
        ranked = [(rank, rule) for rank, rule in enumerate(table) if groups[rule.code] == group]
        holds = {rule.code: rule.expression(as_of, settings) for _, rule in ranked}
        reported = {
            "column": [rule.column for _, rule in ranked],
            "code": list(holds),
            "severity": [severities[code] for code in holds],
            "rank": [rank for rank, _ in ranked],
        }
        types = {name: _NONE.schema[name] for name in reported}
        named = tuple(one.alias(code) for code, one in holds.items())
        asked[group] = RuleGroup(named, pl.DataFrame(reported, types))
        broad = [holds[rule.code] for _, rule in ranked if groups.get(rule.narrows) != group]
        if group == SCREEN:
            broad = [rules.unlike(name, *(one.screen for _, one in ranked if one.column == name)) for name in columns()]
        if ranked:
            # 0: pandera would keep the values of the cells that fail
            checks.append(pa.Check(_composite(broad), name=group, n_failure_cases=0))
    cells = {name: pa.Column(pl.String, nullable=True) for name in columns()}
    return Contract(pa.DataFrameSchema(cells, checks=checks, strict=True, ordered=True), asked)


def _composite(holds: Sequence[pl.Expr]) -> Callable[[Any], pl.LazyFrame]:
    every = pl.all_horizontal(holds)

    def check(data: Any) -> pl.LazyFrame:
        frame: pl.LazyFrame = data.lazyframe
        return frame.select(every)

    return check


def _failed(schema: pa.DataFrameSchema, rows: pl.DataFrame) -> dict[str, pl.Series] | None:
    """Return, for each group with failures, which rows fail its check; None where the columns are wrong."""
    failed: dict[str, pl.Series] = {}
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        try:
            schema.validate(rows.select(name for name in columns() if name in rows.columns), lazy=True)
        except SchemaErrors as errors:
            for error in errors.schema_errors:
                name = getattr(error.check, "name", None)
                if name not in GROUPS or not isinstance(error.check_output, pl.DataFrame):
                    return None
                failed[name] = ~error.check_output.to_series()
    return failed


def _by_rule(rows: pl.DataFrame, asked: RuleGroup, *, sure: bool) -> pl.DataFrame:
    """Return row, rank, column, code, severity of every rule that these rows break.

    Raises ValueError where a row breaks none, though it is `sure` that it must.
    """
    rule, at = np.nonzero(~rows.select(asked.holds).to_numpy().T)
    if sure and len(np.unique(at)) != rows.height:
        raise ValueError("a row fails the composite check and no rule")
    return asked.reported[rule].insert_column(0, rows["row"][at])
