"""One value where nearly all should differ is found by its share, and never shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.submissions.gates import OneValueError
from flows.submissions.one_value import columns_of_one_value
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas import portal
from schemas.manifest import Layout, SourceColumn
from tests.night import issuer, local_bench, portal_csv
from tests.submissions.test_drift import extract

NO_LAYOUT = Layout(columns={}, size=1)
ONE_VALUE = {
    "CVV": (portal.CVV, "000"),
    "hash": (portal.CVV_HASH, "RVri38d913ViwG3Ik6SdhHlak+T4bqLpIAaUDIcOwEQ="),
    "cuid": (portal.CUID, "C-1"),
    "card number": (portal.PAN, "4111111111111111"),
    "first name": (portal.FIRST_NAME, "Ann"),
    "last name": (portal.LAST_NAME, "Smith"),
    "name on card": (portal.NAME_ON_CARD, "Ann Smith"),
    "street": (portal.ADDRESS1, "1 Oak St"),
    "phone": (portal.PHONE, "617-555-0100"),
    "e-mail": (portal.EMAIL, "ann@example.com"),
}


def column(name: str, values: Sequence[str | None]) -> pl.DataFrame:
    return pl.DataFrame({name: values}, schema={name: pl.String})


def varied(rows: int) -> list[str]:
    return [f"{number:03}" for number in range(rows)]


def found(rows: pl.DataFrame, layout: Layout = NO_LAYOUT, **settings: Any) -> list[str]:
    return list(columns_of_one_value(rows, layout, issuer(**settings)))


@pytest.mark.parametrize("name", ONE_VALUE)
def test_a_column_of_one_value_is_named_with_share_and_count_and_without_the_value(
    name: str,
) -> None:
    column_name, value = ONE_VALUE[name]

    sentences = found(column(column_name, [value] * 60))

    limit = f"{portal.COLUMNS[column_name].most_equal:.0%}"
    assert [f"{column_name} has the same value in 60 of 60 cells, limit {limit}"] == sentences


@pytest.mark.parametrize(
    ("values", "is_named"),
    [
        (["000"] * 57 + varied(3), True),
        (["000", "999"] * 30, True),
        (["000"] * 13 + varied(60)[13:], True),
        (["000"] * 12 + varied(60)[12:], False),
        (varied(60), False),
        (["000"] * 19, False),
        (["000"] * 19 + [None] * 60, False),
        (["000"] * 20, True),
    ],
    ids=[
        "95 %",
        "two values",
        "above",
        "at the limit",
        "all differ",
        "few",
        "few filled",
        "enough",
    ],
)
def test_a_cvv_may_be_that_of_a_fifth_of_twenty_cells_or_more(
    values: list[str], *, is_named: bool
) -> None:
    sentences = found(column(portal.CVV, values))

    assert is_named == bool(sentences)


def test_two_names_alone_are_too_few_and_a_name_that_a_third_has_is_not() -> None:
    names = [*"abcdefghij"]

    two = found(column(portal.LAST_NAME, ["Kim", "Lee"] * 30))
    usual = found(column(portal.LAST_NAME, (["Nguyen"] * 5 + names) * 10))

    assert (1, 0) == (len(two), len(usual))


@pytest.mark.parametrize(("full_portfolio", "named"), [(True, 1), (False, 0)])
def test_months_are_alike_in_a_night_of_new_cards_and_not_in_a_portfolio(
    named: int, *, full_portfolio: bool
) -> None:
    sentences = found(column(portal.MONTH, ["12"] * 60), full_portfolio=full_portfolio)

    assert named == len(sentences)


@pytest.mark.parametrize("name", [portal.CITY, portal.POSTAL_CODE, portal.YEAR, portal.NICKNAME])
def test_cardholders_of_one_place_or_year_are_no_doubt(name: str) -> None:
    assert [] == found(column(name, ["1"] * 60))


def test_a_setting_decides_for_its_column_alone() -> None:
    rows = column(portal.PHONE, ["1"] * 60).hstack(column(portal.EMAIL, ["a"] * 60))

    sentences = found(rows, limits={"max_one_value": {portal.PHONE: 1.0, portal.CITY: 0.1}})

    assert [portal.EMAIL] == [sentence.split()[0] for sentence in sentences]


def test_a_text_that_the_settings_give_to_every_row_is_meant() -> None:
    rows = column(portal.PHONE, ["1"] * 60)
    layouts = [
        Layout(columns={portal.PHONE: SourceColumn(names=names)}, size=1)
        for names in ((), ("TEL",))
    ]

    sentences = [found(rows, layout) for layout in layouts]

    assert [0, 1] == [len(each) for each in sentences]


def test_an_extract_of_one_cvv_is_refused_until_the_gate_is_opened_which_says_so(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    rows = extract(60).with_columns(
        pl.lit("000").alias(portal.CVV), pl.lit(None, pl.String).alias(portal.CVV_HASH)
    )
    name = bench.drop_bytes(portal_csv(rows))
    sentence = f"{portal.CVV} has the same value in 60 of 60 cells, limit 20%"

    with pytest.raises(OneValueError, match=sentence) as refused:
        bench.submit(name)
    checked = rehearse(bench.context, Request(name))
    done = bench.submit(name, opened=["one-value"])

    assert sentence in str(checked.refused)
    assert "000" not in str(refused.value)
    assert (f"bank/extracts/{name}: {sentence}; it is sent as it is",) == done.remarks


def test_a_phone_that_stands_for_none_is_no_value(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    rows = extract(60).with_columns(pl.lit("N/A").alias(portal.PHONE))

    done = bench.submit(bench.drop_bytes(portal_csv(rows)))

    assert () == done.remarks
