"""Validate rows with pandera: which row breaks which rule, as verdicts without a value.

The contract is the schema of `schemas.input_file`, with a check for each rule. Pandera evaluates
the whole block once for each check, so all rows pass one check that is made of the same rules
(`FastSchema`), and of the rows that fail it what this check found of each rule is read. A test
holds the two schemas equal, verdict by verdict.

Validation takes about a fifth of the CPU of a submit. A rejected row keeps only the reasons that
rejected it; a row that is sent keeps its warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from schemas.input_file import text_columns
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

    Most rows keep `screens`, and then they keep all rules of `behind`, a schema for each screen. Of
    the other rules, `verdicts` has column, code, severity and rank: what each says where it is
    broken.
    """

    columns: dict[str, pa.Column] | None
    rules: tuple[pl.Expr, ...]
    verdicts: pl.DataFrame
    screens: tuple[pl.Expr, ...] = ()
    behind: tuple[FastSchema, ...] = ()


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
    """Make the fast schema of a table of rules, on a business date, by an issuer's settings.

    Asked of few rows, column by column, are the rules with a screen, and those that narrow another
    one: a row breaks the wider rule, too.
    """
    active_rules = rules_in_force(table, as_of, settings)
    holds = {active.rule.code: active.holds for active in active_rules}
    plain: list[ActiveRule] = []
    seldom: dict[str, list[ActiveRule]] = {}
    for active in active_rules:
        if active.rule.screen or active.rule.narrows in holds:
            seldom.setdefault(active.rule.column, []).append(active)
        else:
            plain.append(active)
    return _fast_schema(plain, text_columns({}))._replace(
        screens=tuple(
            _screen(column, rules, holds).alias(column) for column, rules in seldom.items()
        ),
        # their rows have been judged by their columns, so these schemas have none
        behind=tuple(_fast_schema(rules, None) for rules in seldom.values()),
    )


def _fast_schema(
    active_rules: Sequence[ActiveRule], columns: dict[str, pa.Column] | None
) -> FastSchema:
    verdicts = [
        (active.rule.column, active.rule.code, active.severity, active.rank)
        for active in active_rules
    ]
    return FastSchema(
        columns,
        tuple(active.holds.alias(active.rule.code) for active in active_rules),
        pl.DataFrame(verdicts, _NO_VERDICTS.drop("row").schema, orient="row"),
    )


def _screen(column: str, rules: Sequence[ActiveRule], holds: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return whether a row keeps these rules of a column for sure: it has none of the shapes that
    they look for, and keeps the rules that they narrow.
    """
    shapes = [active.rule.screen for active in rules if active.rule.screen]
    wider = dict.fromkeys(active.rule.narrows for active in rules if not active.rule.screen)
    return pl.all_horizontal(lacks_all(column, shapes), *(holds[code] for code in wider))


def _verdicts(fast: FastSchema, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield verdicts with their ranks, those behind the screens of rows that do not keep them.

    Raises _DisagreeError for a row that fails and breaks neither a rule nor a screen.
    """
    failing, holds = _failing(fast, rows)
    if failing.is_empty():
        return
    breaks = ~holds.to_numpy()
    if not breaks.any(axis=1).all():
        raise _DisagreeError
    rule_indexes, row_indexes = np.nonzero(breaks[:, : len(fast.rules)].T)
    yield fast.verdicts[rule_indexes].insert_column(0, failing["row"][row_indexes])
    for screened, is_asked in zip(fast.behind, breaks[:, len(fast.rules) :].T, strict=True):
        if is_asked.any():
            yield from _verdicts(screened, failing.filter(is_asked))


def _failing(fast: FastSchema, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that fail pandera's check, and of each which rules and screens hold.

    The rules are evaluated once, in the check. Raises _DisagreeError where something else is wrong,
    such as the columns.
    """
    holds: list[pl.DataFrame] = []

    def all_hold(data: pa.PolarsData) -> pl.LazyFrame:
        # for so few rows the other engine, of many threads, takes a tenth longer
        verdicts = data.lazyframe.select(*fast.rules, *fast.screens).collect(engine="in-memory")
        holds.append(verdicts)
        return verdicts.lazy().select(pl.all_horizontal(pl.all()))

    # pandera would keep the values of cells that fail
    check = pa.Check(all_hold, name=CONJUNCTION, n_failure_cases=0)
    is_whole = fast.columns is not None
    schema = pa.DataFrameSchema(fast.columns, checks=[check], strict=is_whole, ordered=is_whole)
    cells = rows.select(name for name in columns() if name in rows.columns)
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        try:
            schema.validate(cells, lazy=True)
        except SchemaErrors as failed:
            (error,) = failed.schema_errors
            is_failing = ~_passes(error)
            return rows.filter(is_failing), holds[0].filter(is_failing)
    return rows.clear(), pl.DataFrame()


def _passes(error: SchemaError) -> pl.Series:
    """Return which rows pass the check that failed."""
    if getattr(error.check, "name", None) != CONJUNCTION:
        raise _DisagreeError from None
    if not isinstance(error.check_output, pl.DataFrame):
        raise _DisagreeError from None
    return error.check_output.to_series()
