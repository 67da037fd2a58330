"""Validate rows with pandera: which row breaks which rule, as verdicts without a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandera.polars as pa
import polars as pl
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaErrors

from flows.errors import BugError
from schemas import rules
from schemas.issuer import RuleSettings, Severity
from schemas.portal import columns

VERDICT: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32, "column": pl.String, "code": pl.String, "severity": pl.String
}  # fmt: skip

SCREEN = "screen"
SEVERITIES: tuple[Severity, ...] = ("reject", "warn")
_NONE = pl.DataFrame(schema=VERDICT | {"rank": pl.UInt32})


class _DisagreeError(Exception):
    """Pandera's checks are not those of the table, or a row fails one of them and no rule."""


# The rules of one severity: the expression of each, and its verdict where it fails: column, code,
# severity, and rank, the rule's place in the table.
SeverityRules = tuple[tuple[pl.Expr, ...], pl.DataFrame]


class Contract(NamedTuple):
    """A pandera schema for a business date and an issuer's settings, and its rules one by one.

    `screened` has the rules with a screen: it is asked about the rows that fail the check SCREEN of this one.
    """

    schema: pa.DataFrameSchema
    by_severity: dict[str, SeverityRules]
    screened: Contract | None = None


def validate(rows: pl.DataFrame, as_of: date, settings: RuleSettings) -> pl.DataFrame:
    """Return verdicts (VERDICT) in the order of the rows; a row without a verdict `reject` passed
    pandera (2.6).

    `rows`: row and the portal's columns, normalised; `as_of` is the business date. A cell has at most one verdict of
    each severity: the first rule it breaks. Raises BugError, without any value, where the columns
    are not the schema's.
    """
    contract = contract_of(rules.RULES, as_of, settings)
    try:
        ranked = pl.concat([_NONE, *_verdicts(contract, rows)]).sort("row", "rank")
        return ranked.unique(
            ["row", "column", "severity"], keep="first", maintain_order=True
        ).select(*VERDICT)
    except Exception as error:  # noqa: BLE001  polars' and pandera's own may hold cells: ours is raised below
        problem = (
            "pandera and the rules disagree"
            if isinstance(error, _DisagreeError)
            else type(error).__name__
        )
    raise BugError(place="validate", kind=problem)


def _verdicts(contract: Contract, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield verdicts with their ranks; rows whose shape a screen names are validated by the rules
    behind it.
    """
    for name, mask in _failed(contract.schema, rows).items():
        if name != SCREEN:
            yield _by_rule(rows.filter(mask), contract.by_severity[name])
        elif contract.screened is not None:
            yield from _verdicts(contract.screened, rows.filter(mask))


@lru_cache(8)
def contract_of(table: Sequence[rules.Rule], as_of: date, settings: RuleSettings) -> Contract:
    """Make the pandera schema of the table: the columns in order, and one composite check for each
    severity.

    Rules with a screen have a schema of their own, asked of the rows with the shape without which
    none can be broken.
    """
    ranked = [
        (rank, rule) for rank, rule in enumerate(table) if rule.severity_by(settings) in SEVERITIES
    ]
    behind = [(rank, rule) for rank, rule in ranked if rule.screen]
    cells = {name: pa.Column(pl.String, nullable=True) for name in columns()}
    plain = _contract(cells, [one for one in ranked if one not in behind], as_of, settings, behind)
    return plain._replace(screened=_contract({}, behind, as_of, settings)) if behind else plain


Ranked = Sequence[tuple[int, rules.Rule]]


def _contract(
    cells: dict[str, pa.Column],
    ranked: Ranked,
    as_of: date,
    settings: RuleSettings,
    behind: Ranked = (),
) -> Contract:
    """Make a schema of these columns, none where they were judged already, and of the checks of
    these rules.
    """
    asked: dict[str, SeverityRules] = {}
    shapes = [
        rules.unlike(name, *(one.screen for _, one in behind if one.column == name))
        for name in columns()
    ]
    checks = [_check(SCREEN, shapes)] if behind else []
    for severity in SEVERITIES:
        mine = [(rank, rule) for rank, rule in ranked if rule.severity_by(settings) == severity]
        holds = {rule.code: rule.expression(as_of, settings) for _, rule in mine}
        reported = [(rule.column, rule.code, severity, rank) for rank, rule in mine]
        named = tuple(one.alias(code) for code, one in holds.items())
        asked[severity] = named, pl.DataFrame(reported, _NONE.drop("row").schema, orient="row")
        if mine:
            checks.append(
                _check(
                    severity, [holds[rule.code] for _, rule in mine if rule.narrows not in holds]
                )
            )
    return Contract(
        pa.DataFrameSchema(cells, checks=checks, strict=bool(cells), ordered=True), asked
    )


def _check(name: str, holds: Sequence[pl.Expr]) -> pa.Check:
    every = pl.all_horizontal(holds)
    # Without failure cases: pandera would keep the values of cells that fail.
    return pa.Check(lambda data: data.lazyframe.select(every), name=name, n_failure_cases=0)


def _failed(schema: pa.DataFrameSchema, rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Return, for each check with failures, which rows fail it; _DisagreeError where the columns
    are wrong.
    """
    failed: dict[str, pl.Series] = {}
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        try:
            schema.validate(
                rows.select(name for name in columns() if name in rows.columns), lazy=True
            )
        except SchemaErrors as errors:
            for error in errors.schema_errors:
                name = getattr(error.check, "name", None)
                if name not in (*SEVERITIES, SCREEN) or not isinstance(
                    error.check_output, pl.DataFrame
                ):
                    raise _DisagreeError from None
                failed[name] = ~error.check_output.to_series()
    return failed


def _by_rule(rows: pl.DataFrame, asked: SeverityRules) -> pl.DataFrame:
    """Return row, rank, column, code, severity of every rule that these rows break; _DisagreeError
    for none.
    """
    holds, reported = asked
    rule, at = np.nonzero(~rows.select(holds).to_numpy().T)
    if len(np.unique(at)) != rows.height:
        raise _DisagreeError
    return reported[rule].insert_column(0, rows["row"][at])
