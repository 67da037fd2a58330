"""Validate rows with pandera: which row breaks which rule, as verdicts without a value.

The contract is the schema of `schemas.input_file`, with a check for each rule. Pandera evaluates
the whole block once for each check, so all rows pass one check that is made of the same rules
(`FastSchema`), and only the rows that fail it are then checked rule by rule. A test holds the two
schemas equal, verdict by verdict.

Validation takes about a fifth of the CPU of a submit. A rejected row keeps only the reasons that
rejected it; a row that is sent keeps its warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandera.polars as pa
import polars as pl
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaError, SchemaErrors

from flows.errors import BugError
from schemas import rules
from schemas.expressions import lacks_all
from schemas.input_file import check_of, text_columns
from schemas.issuer import RuleSettings
from schemas.portal import columns
from schemas.rule import ActiveRule, Rule, rules_in_force

VERDICT: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "column": pl.String,
    "code": pl.String,
    "severity": pl.String,
}
_RANKED = VERDICT | {"rank": pl.UInt32}  # and the rule's place in the table
_NO_VERDICTS = pl.DataFrame(schema=_RANKED)

# The one check of a FastSchema.
CONJUNCTION = "every rule, and no shape that a screened rule looks for"


class _DisagreeError(Exception):
    """Pandera's check is not that of the table, or a row fails it and breaks no rule."""


class FastSchema(NamedTuple):
    """The schema of the input file with one check for all rules instead of one for each.

    Rules with a screen have a schema of their own, `screened`: only rows that do not keep `screens`
    can break one. Of the other rules, `verdicts` has column, code, severity and rank: what each
    says where it is broken.
    """

    schema: pa.DataFrameSchema
    holds: tuple[pl.Expr, ...]
    verdicts: pl.DataFrame
    screens: pl.Expr
    screened: FastSchema | None = None


def validate(rows: pl.DataFrame, as_of: date, settings: RuleSettings) -> pl.DataFrame:
    """Return verdicts (VERDICT) in the order of the rows (interface.md 2.6).

    `rows`: row and the portal's columns, normalised; `as_of` is the business date. A row without a
    verdict `reject` passed pandera. A cell has at most one verdict of each severity: the first rule
    it breaks. Raises BugError, without any value, where the columns are not the schema's.
    """
    fast = fast_schema(rules.RULES, as_of, settings)
    try:
        verdicts = pl.concat([_NO_VERDICTS, *_verdicts(fast, rows)]).sort("row", "rank")
        cell = ["row", "column", "severity"]
        return verdicts.unique(cell, keep="first", maintain_order=True).select(*VERDICT)
    except _DisagreeError:
        problem = "pandera and the rules disagree"
    # the text of their error may hold cells, so ours is raised below, outside the `except`
    except Exception as error:  # noqa: BLE001  whatever polars and pandera raise
        problem = type(error).__name__
    raise BugError(place="validate", kind=problem)


def keeps_rules(column: str, rows: pl.DataFrame, as_of: date, settings: RuleSettings) -> pl.Series:
    """Return which rows no rule of a column rejects; of the columns only this one is looked at."""
    rejecting = [
        active.holds
        for active in rules_in_force(rules.RULES, as_of, settings)
        if active.rule.column == column and active.severity == "reject"
    ]
    return rows.select(pl.all_horizontal(rejecting).alias(column)).to_series()


@lru_cache(8)
def fast_schema(table: Sequence[Rule], as_of: date, settings: RuleSettings) -> FastSchema:
    """Make the fast schema of a table of rules, on a business date, by an issuer's settings."""
    active_rules = rules_in_force(table, as_of, settings)
    plain = [active for active in active_rules if not active.rule.screen]
    screened = [active for active in active_rules if active.rule.screen]
    # its rows have been judged by their columns, so its schema has none
    behind_screens = _fast_schema(screened, pl.lit(value=True), None) if screened else None
    return _fast_schema(plain, _screens(screened), behind_screens, text_columns({}))


def _fast_schema(
    active_rules: Sequence[ActiveRule],
    screens: pl.Expr,
    screened: FastSchema | None,
    columns: dict[str, pa.Column] | None = None,
) -> FastSchema:
    """Make the schema of rules and screens: of a row that passes its check all of them hold."""
    codes = {active.rule.code for active in active_rules}
    # a row that breaks a narrow rule breaks the one that it narrows
    holds = [active.holds for active in active_rules if active.rule.narrows not in codes]
    check = check_of(CONJUNCTION, pl.all_horizontal(*holds, screens))
    is_whole = columns is not None
    schema = pa.DataFrameSchema(columns, checks=[check], strict=is_whole, ordered=is_whole)
    verdicts = [
        (active.rule.column, active.rule.code, active.severity, active.rank)
        for active in active_rules
    ]
    return FastSchema(
        schema,
        tuple(active.holds.alias(active.rule.code) for active in active_rules),
        pl.DataFrame(verdicts, _NO_VERDICTS.drop("row").schema, orient="row"),
        screens,
        screened,
    )


def _screens(screened: Sequence[ActiveRule]) -> pl.Expr:
    """Return whether a row has none of the shapes that these rules look for."""
    shapes: dict[str, list[str]] = {}
    for active in screened:
        shapes.setdefault(active.rule.column, []).append(active.rule.screen)
    return pl.all_horizontal(
        pl.lit(value=True), *(lacks_all(column, of_column) for column, of_column in shapes.items())
    )


def _verdicts(fast: FastSchema, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield verdicts with their ranks, those behind the screens of rows that have their shapes.

    Raises _DisagreeError for a row that fails and has neither a verdict nor such a shape.
    """
    failing = _failing(fast.schema, rows)
    if failing.is_empty():
        return
    judged = failing.lazy().select(*fast.holds, fast.screens.alias(CONJUNCTION)).collect()
    breaks = ~judged.to_numpy()
    if not breaks.any(axis=1).all():
        raise _DisagreeError
    rule_indexes, row_indexes = np.nonzero(breaks[:, :-1].T)
    yield fast.verdicts[rule_indexes].insert_column(0, failing["row"][row_indexes])
    if fast.screened is not None:
        yield from _verdicts(fast.screened, failing.filter(breaks[:, -1]))


def _failing(schema: pa.DataFrameSchema, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that fail the check.

    Raises _DisagreeError where something else is wrong, such as the columns.
    """
    cells = rows.select(name for name in columns() if name in rows.columns)
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        try:
            schema.validate(cells, lazy=True)
        except SchemaErrors as failed:
            (error,) = failed.schema_errors
            return rows.filter(~_passes(error))
    return rows.clear()


def _passes(error: SchemaError) -> pl.Series:
    """Return which rows pass the check that failed."""
    if getattr(error.check, "name", None) != CONJUNCTION:
        raise _DisagreeError from None
    if not isinstance(error.check_output, pl.DataFrame):
        raise _DisagreeError from None
    return error.check_output.to_series()
