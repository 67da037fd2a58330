"""Validate rows with pandera: which row breaks which rule, as verdicts without a value.

The contract is the schema of `schemas.input_file`, with a check for each rule. Pandera evaluates
the whole block once for each check, so all rows pass a few checks, each made of many of the same
rules (`FastSchema`), and only the rows that fail one are then checked rule by rule. A test holds
the two schemas equal, verdict by verdict.

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
from schemas.issuer import RuleSettings, Severity
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

# The checks of a FastSchema: the conjunction of the rules of each severity, and the screens.
CONJUNCTIONS: dict[Severity, str] = {
    "reject": "every rule that rejects",
    "warn": "every rule that warns",
}
SCREENS = "no shape that a screened rule looks for"


class _DisagreeError(Exception):
    """Pandera's checks are not those of the table, or a row fails one of them and no rule."""


class RuleGroup(NamedTuple):
    """The rules behind one check, one by one."""

    holds: tuple[pl.Expr, ...]
    verdicts: pl.DataFrame  # column, code, severity and rank: what each says where it is broken


class FastSchema(NamedTuple):
    """The schema of the input file with a check for many rules instead of one for each.

    `groups` has the rules behind each conjunction by the name of its check. Rules with a screen
    have a schema of their own, `screened`: only the rows that fail the check SCREENS can break one.
    """

    schema: pa.DataFrameSchema
    groups: dict[str, RuleGroup]
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


@lru_cache(8)
def fast_schema(table: Sequence[Rule], as_of: date, settings: RuleSettings) -> FastSchema:
    """Make the fast schema of a table of rules, on a business date, by an issuer's settings."""
    active_rules = rules_in_force(table, as_of, settings)
    plain = [active for active in active_rules if not active.rule.screen]
    screened = [active for active in active_rules if active.rule.screen]
    checks = _conjunctions(plain)
    behind_screens = None
    if screened:
        checks.insert(0, _screens(screened))
        # without columns, which are judged by then
        schema = pa.DataFrameSchema(checks=_conjunctions(screened))
        behind_screens = FastSchema(schema, _groups(screened))
    schema = pa.DataFrameSchema(text_columns({}), checks=checks, strict=True, ordered=True)
    return FastSchema(schema, _groups(plain), behind_screens)


def _conjunctions(active_rules: Sequence[ActiveRule]) -> list[pa.Check]:
    """Make the check of each severity that has rules: a row keeps all of them."""
    checks = []
    for severity, name in CONJUNCTIONS.items():
        group = _of_severity(active_rules, severity)
        codes = {active.rule.code for active in group}
        # a row that breaks a narrow rule breaks the one that it narrows
        holds = [active.holds for active in group if active.rule.narrows not in codes]
        if holds:
            checks.append(check_of(name, pl.all_horizontal(holds)))
    return checks


def _screens(screened: Sequence[ActiveRule]) -> pa.Check:
    """Make the check of the screens: without their shapes none of these rules can be broken."""
    shapes: dict[str, list[str]] = {}
    for active in screened:
        shapes.setdefault(active.rule.column, []).append(active.rule.screen)
    holds = [lacks_all(column, of_column) for column, of_column in shapes.items()]
    return check_of(SCREENS, pl.all_horizontal(holds))


def _groups(active_rules: Sequence[ActiveRule]) -> dict[str, RuleGroup]:
    """Return the rules behind each conjunction, by the name of its check."""
    return {
        name: _group(_of_severity(active_rules, severity))
        for severity, name in CONJUNCTIONS.items()
    }


def _group(active_rules: Sequence[ActiveRule]) -> RuleGroup:
    holds = tuple(active.holds.alias(active.rule.code) for active in active_rules)
    verdicts = [
        (active.rule.column, active.rule.code, active.severity, active.rank)
        for active in active_rules
    ]
    return RuleGroup(holds, pl.DataFrame(verdicts, _NO_VERDICTS.drop("row").schema, orient="row"))


def _of_severity(active_rules: Sequence[ActiveRule], severity: Severity) -> list[ActiveRule]:
    return [active for active in active_rules if active.severity == severity]


def _verdicts(fast: FastSchema, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield verdicts with their ranks, those behind the screens of rows that have their shapes."""
    for name, fails in _failures(fast.schema, rows).items():
        failing = rows.filter(fails)
        if name == SCREENS and fast.screened is not None:
            yield from _verdicts(fast.screened, failing)
        else:
            yield _verdicts_by_rule(fast.groups[name], failing)


def _failures(schema: pa.DataFrameSchema, rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Return, for each check that fails, which rows fail it.

    Raises _DisagreeError where something else is wrong, such as the columns.
    """
    cells = rows.select(name for name in columns() if name in rows.columns)
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        try:
            schema.validate(cells, lazy=True)
        except SchemaErrors as failed:
            return dict(map(_failure, failed.schema_errors))
    return {}


def _failure(error: SchemaError) -> tuple[str, pl.Series]:
    """Return the name of the check that failed, and which rows fail it."""
    name = getattr(error.check, "name", None)
    if name not in (SCREENS, *CONJUNCTIONS.values()):
        raise _DisagreeError from None
    if not isinstance(error.check_output, pl.DataFrame):
        raise _DisagreeError from None
    return name, ~error.check_output.to_series()


def _verdicts_by_rule(group: RuleGroup, rows: pl.DataFrame) -> pl.DataFrame:
    """Return row, column, code, severity and rank for each rule of the group that a row breaks.

    Raises _DisagreeError for a row that breaks none.
    """
    rule_indexes, row_indexes = np.nonzero(~rows.select(group.holds).to_numpy().T)
    if len(np.unique(row_indexes)) != rows.height:
        raise _DisagreeError
    return group.verdicts[rule_indexes].insert_column(0, rows["row"][row_indexes])
