"""The portal's input file (interface.md 2.6, 2.10, 8) as a pandera schema.

It has the columns of `schemas.portal`, in order, and on each a check for every rule of
`schemas.rules` that is reported there, named after the rule's code. It depends on the business
date, since cards expire, and on the issuer's `[rules]`, which may loosen some rules:

>>> from datetime import date
>>> import polars as pl
>>> from pandera.errors import SchemaErrors
>>> from schemas.issuer import RuleSettings
>>> from schemas.portal import COUNTRY, COLUMNS, PAN
>>> schema = input_file(date(2026, 11, 20), RuleSettings(cvv_missing="off", name_on_card="off"))
>>> [check.name for check in schema.columns[PAN].checks]
['card.pan.placeholder', 'card.pan.missing', 'card.pan.masked', 'card.pan.format', 'card.pan.luhn']
>>> row = dict.fromkeys(COLUMNS) | {PAN: "4242424242424241", COUNTRY: "France"}
>>> rows = pl.DataFrame(row, schema=dict.fromkeys(COLUMNS, pl.String))
>>> try:
...     schema.validate(rows, lazy=True)
... except SchemaErrors as failed:
...     codes = [error.check.name for error in failed.schema_errors]
>>> [code for code in codes if code.startswith(("card.pan", "address.country"))]
['card.pan.luhn', 'address.country.unknown']

Cells are normalised: trimmed, in the portal's spelling, null where there is nothing.
`flows.submissions.validate` asks the same rules of every row that is sent, faster.
"""

from collections.abc import Mapping, Sequence
from datetime import date

import pandera.polars as pa
import polars as pl

from schemas import rules
from schemas.issuer import RuleSettings
from schemas.portal import COLUMNS
from schemas.reasons import reason
from schemas.rule import rules_in_force


def input_file(as_of: date, settings: RuleSettings) -> pa.DataFrameSchema:
    """Return the schema of the file on a business date, by an issuer's settings.

    A rule that only warns is a check that raises a warning. Every cell may be null for pandera:
    that a required one is missing breaks a rule, which has a code and a hint. Neither errors nor
    warnings hold a cell.
    """
    checks: dict[str, list[pa.Check]] = {name: [] for name in COLUMNS}
    for active in rules_in_force(rules.RULES, as_of, settings):
        check = check_of(
            active.rule.code,
            active.holds,
            description=str(reason(active.rule.code).hint),
            raise_warning=active.severity == "warn",
        )
        checks[active.rule.column].append(check)
    return pa.DataFrameSchema(text_columns(checks), name="input_file", strict=True, ordered=True)


def text_columns(checks: Mapping[str, Sequence[pa.Check]]) -> dict[str, pa.Column]:
    """Return the columns of the file, in order, with these checks."""
    return {
        name: pa.Column(
            pl.String,
            list(checks.get(name, ())),
            nullable=True,
            description=column.hint,
            metadata={"required": column.required},
        )
        for name, column in COLUMNS.items()
    }


def check_of(
    name: str, holds: pl.Expr, *, description: str = "", raise_warning: bool = False
) -> pa.Check:
    """Return the check that an expression, which may look at all columns, is true for every row."""
    return pa.Check(
        lambda data: data.lazyframe.select(holds),
        name=name,
        description=description,
        raise_warning=raise_warning,
        n_failure_cases=0,  # pandera would keep the values of cells that fail
    )
