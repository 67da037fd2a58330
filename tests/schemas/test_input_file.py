"""The pandera schema of the input file: recognisable, and the same as what validates every row."""

from __future__ import annotations

import doctest
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from io import BytesIO
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandera.errors import SchemaErrors, SchemaWarning

from flows.extensions.simulator.extract import write_sample
from flows.submissions.normalise import normalise
from flows.submissions.validate import validate
from schemas import input_file as module
from schemas import rules
from schemas.input_file import input_file
from schemas.issuer import RuleSettings
from schemas.portal import CITY, COLUMNS, PAN, columns
from schemas.rule import SEVERITY_SETTINGS, Rule
from schemas.rules import RULES
from tests.builders import portal_rows, quick, share_of
from tests.submissions.made_up import made_up, table

DAY = date(2026, 11, 20)
USUAL = RuleSettings()
OF_SETTINGS = {
    way: RuleSettings.model_validate(dict.fromkeys(SEVERITY_SETTINGS, way))
    for way in ("reject", "warn", "off")
} | {"usual": USUAL, "other": RuleSettings(placeholders=("-",), max_length={CITY: 4})}

Cells = Mapping[str, str | None]


class Verdict(NamedTuple):
    """What is said of one cell."""

    row: int
    column: str
    code: str
    severity: str


def verdicts_of_schema(rows: pl.DataFrame, by: RuleSettings) -> list[Verdict]:
    """Return what the schema's checks say one by one: of each cell the first reject and the first
    warning of the table.
    """
    places = {rule.code: place for place, rule in enumerate(rules.RULES)}
    broken = sorted(_broken(rows, by), key=lambda verdict: (verdict.row, places[verdict.code]))
    first: dict[tuple[int, str, str], Verdict] = {}
    for verdict in broken:
        first.setdefault((verdict.row, verdict.column, verdict.severity), verdict)
    return list(first.values())


def _broken(rows: pl.DataFrame, by: RuleSettings) -> Iterator[Verdict]:
    cells = rows.select(columns())
    for name, column in input_file(DAY, by).columns.items():
        for check in column.checks:
            fails = ~check(cells.lazy(), name).check_output.collect().to_series()
            severity = "warn" if check.raise_warning else "reject"
            for row in rows.filter(fails)["row"]:
                yield Verdict(row, name, check.name, severity)


@pytest.mark.parametrize("by", quick(2, list(OF_SETTINGS.values())), ids=OF_SETTINGS)
def test_schema_and_validation_say_the_same_of_every_rules_example(by: RuleSettings) -> None:
    rows = portal_rows({}, *(rule.example for rule in RULES))

    verdicts = validate(rows, DAY, by)

    assert verdicts_of_schema(rows, by) == verdicts.rows()


ODD_CELLS = st.dictionaries(
    st.sampled_from(columns()), st.none() | st.text(max_size=20), max_size=3
)
BROKEN = st.lists(st.sampled_from(RULES), max_size=4)


@settings(max_examples=share_of(0.4))
@given(st.lists(st.tuples(BROKEN, ODD_CELLS), max_size=12), st.sampled_from([*OF_SETTINGS]))
def test_schema_and_validation_say_the_same_of_rows_that_break_several_rules(
    spoiled: list[tuple[list[Rule], Cells]], way: str
) -> None:
    rows = portal_rows(*(_cells(broken, odd) for broken, odd in spoiled))

    verdicts = validate(rows, DAY, OF_SETTINGS[way])

    assert verdicts_of_schema(rows, OF_SETTINGS[way]) == verdicts.rows()


def _cells(broken: Iterable[Rule], odd: Cells) -> Cells:
    cells: dict[str, str | None] = {}
    for rule in broken:
        cells |= rule.example
    return cells | dict(odd)


@pytest.mark.parametrize("seed", quick(2, range(4)))
def test_schema_and_validation_say_the_same_of_an_extract_and_of_rules_made_up(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = generated(3_000, seed)
    monkeypatch.setattr(rules, "RULES", table(made_up(seed), seed))

    verdicts = validate(rows, DAY, USUAL)

    assert verdicts.height > 300
    assert verdicts_of_schema(rows, USUAL) == verdicts.rows()


def generated(count: int, seed: int) -> pl.DataFrame:
    """Return generated rows of which a fifth are spoiled."""
    out = BytesIO()
    write_sample(out, count, bad=0.2, seed=seed, as_of=DAY)
    cells = pl.read_csv(out.getvalue(), infer_schema=False)
    return normalise(cells.with_row_index("row", 1), USUAL)


def test_the_schema_raises_what_rejects_warns_of_what_warns_and_keeps_no_cell() -> None:
    rows = portal_rows({}, *(rule.example for rule in RULES)).select(columns())
    ways = {rule.code: rule.severity_by(USUAL) for rule in RULES}
    schema = input_file(DAY, USUAL)

    with pytest.warns(SchemaWarning) as warned, pytest.raises(SchemaErrors) as raised:
        schema.validate(rows, lazy=True)

    errors = raised.value
    codes = [error.check.name for error in errors.schema_errors]
    texts = [str(warning.message) for warning in warned]
    assert sorted(code for code, way in ways.items() if way == "reject") == sorted(codes)
    assert sum(way == "warn" for way in ways.values()) == len(texts)
    assert errors.failure_cases.is_empty()
    assert "4242" not in " ".join([str(errors), *texts])


def test_good_rows_pass_the_schema_and_come_back() -> None:
    rows = portal_rows({}, {}).select(columns())

    passed = input_file(DAY, USUAL).validate(rows, lazy=True)

    assert passed.equals(rows)


def test_the_schema_has_the_columns_of_the_interface_and_a_check_for_each_rule() -> None:
    schema = input_file(DAY, OF_SETTINGS["reject"])

    assert columns() == tuple(schema.columns)
    assert [column.hint for column in COLUMNS.values()] == [
        column.description for column in schema.columns.values()
    ]
    assert {(rule.column, rule.code) for rule in RULES} == {
        (name, check.name) for name, column in schema.columns.items() for check in column.checks
    }
    hints = {check.name: check.description for check in schema.columns[PAN].checks}
    assert hints["card.pan.luhn"] == "16 digits with the right check digit"


def test_the_example_in_its_docstring_runs() -> None:
    failed, tried = doctest.testmod(module)

    assert (0, True) == (failed, tried > 5)
