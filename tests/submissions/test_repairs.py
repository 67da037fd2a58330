"""Repairs: decided on the evidence of all rows, counted, and prevented by one row that speaks
against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.extracts.mapping import plan_mapping
from flows.extracts.reader import Block
from flows.submissions.repairs import Evidence, ExcelDamageError, repair
from flows.submissions.row_scope import RowScope
from flows.submissions.rows import Route
from flows.submissions.validate import validate
from schemas.issuer import Repairs, RuleSettings
from schemas.manifest import SourceIdentity
from schemas.portal import (
    ADDRESS2,
    COUNTRY,
    CUID,
    CVV,
    MONTH,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)
from tests.builders import portal_rows
from tests.night import DAY, issuer, local_bench, portal_csv

ALL, NAME = Repairs(), "night.csv"
TEXAN = {SUBNATIONAL: "TX", POSTAL_CODE: "75001"}


def decide(rows: pl.DataFrame, repairs: Repairs = ALL) -> frozenset[str]:
    evidence = Evidence(repairs, NAME)
    evidence.add(rows)
    return evidence.decide()


def test_a_sound_block_needs_no_repair() -> None:
    rows = portal_rows(*[{}] * 30)

    decided = decide(rows)

    assert frozenset() == decided
    assert (0, {}) == (rows.height - repair(rows, decided)[0].height, repair(rows, decided)[1])


def test_zips_that_lost_their_zeros_get_them_back_and_are_counted() -> None:
    rows = portal_rows(
        {POSTAL_CODE: "2108"}, TEXAN, {SUBNATIONAL: "PR", POSTAL_CODE: "601"}, {POSTAL_CODE: None}
    )

    decided = decide(rows)
    remediated, counts = repair(rows, decided)

    assert {"zip_zeros"} == decided
    assert ["02108", "75001", "00601", None] == remediated[POSTAL_CODE].to_list()
    assert {"zip_zeros": 2} == counts


@pytest.mark.parametrize(
    "other",
    [{POSTAL_CODE: "02139"}, {SUBNATIONAL: "TX", POSTAL_CODE: "7500"}],
    ids=["a zero was kept", "elsewhere"],
)
def test_short_zips_stay_where_the_column_does_not_show_it_lost_zeros(
    other: Mapping[str, str | None],
) -> None:
    rows = portal_rows({POSTAL_CODE: "2108"}, other)

    decided = decide(rows)

    assert "zip_zeros" not in decided


def test_a_canadian_postal_code_is_no_evidence_and_is_not_touched() -> None:
    rows = portal_rows(
        {POSTAL_CODE: "2108"}, {COUNTRY: "CA", SUBNATIONAL: "ON", POSTAL_CODE: "123"}
    )

    remediated, counts = repair(rows, decide(rows))

    assert ["02108", "123"] == remediated[POSTAL_CODE].to_list()
    assert {"zip_zeros": 1} == counts


def test_cvvs_that_lost_their_zeros_get_them_back() -> None:
    rows = portal_rows(*[{CVV: "123"}] * 20, {CVV: "7"}, {CVV: "42"})

    remediated, counts = repair(rows, decide(rows))

    assert ["007", "042"] == remediated[CVV].to_list()[-2:]
    assert {"cvv_zeros": 2} == counts


@pytest.mark.parametrize(
    ("whole", "short", "is_repaired"),
    [(18, 1, False), (19, 1, True), (15, 5, True), (14, 6, False)],
)
def test_of_twenty_cvvs_fewer_than_three_in_ten_may_be_short(
    whole: int, short: int, is_repaired: bool
) -> None:
    rows = portal_rows(*[{CVV: "123"}] * whole, *[{CVV: "7"}] * short)

    assert is_repaired == ("cvv_zeros" in decide(rows))


@pytest.mark.parametrize(("of_state", "is_repaired"), [(20, True), (19, True), (18, False)])
def test_of_twenty_short_zips_one_may_be_of_a_state_that_has_none_with_a_zero(
    of_state: int, is_repaired: bool
) -> None:
    elsewhere = [{SUBNATIONAL: "TX", POSTAL_CODE: "7500"}] * (20 - of_state)
    rows = portal_rows(*[{POSTAL_CODE: "2108"}] * of_state, *elsewhere)

    assert is_repaired == ("zip_zeros" in decide(rows))


def test_nineteen_card_numbers_that_end_in_0_are_no_damage() -> None:
    assert frozenset() == decide(portal_rows(*[{PAN: "4242424242424240"}] * 19))


@pytest.mark.parametrize(
    "cvvs",
    [["123"] * 20 + ["007", "7"], ["123"] * 3 + ["7"], ["7"] * 25],
    ids=["a zero was kept", "too few to tell", "too many are short"],
)
def test_short_cvvs_stay_without_evidence(cvvs: list[str]) -> None:
    rows = portal_rows(*({CVV: cvv} for cvv in cvvs))

    decided = decide(rows)

    assert "cvv_zeros" not in decided


def test_yymm_read_as_mmyy_is_turned_where_only_that_fits_every_value() -> None:
    rows = portal_rows(
        {MONTH: "29", YEAR: "11"}, {MONTH: "12", YEAR: "05"}, {MONTH: None, YEAR: None}
    )

    remediated, counts = repair(rows, decide(rows))

    assert [("29", "11"), ("12", "05"), (None, None)] == remediated.select(YEAR, MONTH).rows()
    assert {"expiration_order": 2} == counts


def test_an_expiration_that_fits_as_read_or_not_at_all_stays() -> None:
    fits_both, fits_none = (
        portal_rows({MONTH: "10", YEAR: "11"}),
        portal_rows({MONTH: "13", YEAR: "29"}),
    )

    decided = ["expiration_order" in decide(rows) for rows in (fits_both, fits_none)]

    assert [False, False] == decided


@pytest.mark.parametrize(
    ("damaged", "against"),
    [
        ({POSTAL_CODE: "2108"}, {POSTAL_CODE: "02139"}),
        ({CVV: "7"}, {CVV: "007"}),
        ({MONTH: "29", YEAR: "11"}, {MONTH: "11", YEAR: "29"}),
    ],
)
def test_one_row_anywhere_that_speaks_against_a_repair_prevents_it(
    damaged: Mapping[str, str | None], against: Mapping[str, str | None]
) -> None:
    usual = dict(damaged) if MONTH in damaged else TEXAN
    rows = portal_rows(*[usual] * 20, damaged)
    last = portal_rows(*[usual] * 20, damaged, against)

    decided = decide(rows), decide(last)

    assert (1, frozenset()) == (len(decided[0]), decided[1])


@pytest.mark.parametrize(
    "pans",
    [["4.24E+15", "4242424242424242"], ["4,24242E+15"], ["4242424242424240"] * 20],
    ids=["scientific", "decimal comma", "sixteenth digits gone"],
)
def test_damage_by_a_spreadsheet_refuses_the_extract_and_shows_no_number(pans: list[str]) -> None:
    rows = portal_rows(*({PAN: pan} for pan in pans))

    with pytest.raises(ExcelDamageError) as caught:
        decide(rows)

    assert "424" not in str(caught.value)
    assert "cvv_zeros" not in decide(rows, Repairs(refuse_excel=False))


def test_a_number_in_scientific_notation_is_named_by_its_line() -> None:
    rows = portal_rows({PAN: "4242424242424242"}, {PAN: "4.24E+15"})

    with pytest.raises(ExcelDamageError, match=rf"first on line {rows['line'][1]}\)"):
        decide(rows)


def test_a_repair_that_is_switched_off_is_not_made_and_its_rows_are_refused() -> None:
    rows = portal_rows({POSTAL_CODE: "2108"})

    remediated, _ = repair(rows, decide(rows, Repairs(zip_zeros=False)))

    assert ["2108"] == remediated[POSTAL_CODE].to_list()


def test_mended_rows_pass_the_checks() -> None:
    rows = portal_rows(*[{POSTAL_CODE: "2108", CVV: "123"}] * 20, {POSTAL_CODE: "2108", CVV: "7"})

    remediated, _ = repair(rows, decide(rows))

    assert 0 == validate(remediated, date(2026, 11, 20), RuleSettings()).height


KINDS: tuple[Mapping[str, str | None], ...] = (
    {},
    {POSTAL_CODE: "2108"},
    {POSTAL_CODE: "2108", CVV: "7"},
    {SUBNATIONAL: "TX", POSTAL_CODE: "7500"},
    TEXAN,
    {**TEXAN, MONTH: "29", YEAR: "11"},
    {**TEXAN, MONTH: "12", YEAR: "11"},
    {**TEXAN, MONTH: "29", YEAR: "12", POSTAL_CODE: "75001"},
)


@settings(max_examples=10)
@given(
    st.sets(st.integers(0, len(KINDS) - 1), min_size=1, max_size=3),
    st.integers(20, 30),
    st.integers(1, 29),
    st.randoms(),
)
def test_neither_the_order_of_rows_nor_blocks_change_what_becomes_of_a_row(
    kinds: set[int], rows: int, cut: int, chance: Random
) -> None:
    people = portal_rows(*(KINDS[chance.choice(sorted(kinds))] for _ in range(rows)))
    mixed = people.sample(fraction=1.0, shuffle=True, seed=chance.randrange(1000))

    whole, parts = sent([people]), sent([mixed[:cut], mixed[cut:]])

    assert whole == parts


def sent(blocks: list[pl.DataFrame]) -> tuple[dict[str, str | None], dict[str, int]]:
    """Take blocks along the route; return each row's line in a chunk, None where it is refused, and
    the repairs.
    """
    read = [
        Block(block, pl.DataFrame(schema={"row": pl.UInt32, "line": pl.UInt32, "code": pl.String}))
        for block in blocks
    ]
    source = SourceIdentity(key=NAME, version="", size=0, sha256="0" * 64, newlines=0)
    mapping = plan_mapping(columns(), issuer(), NAME, {})
    route = Route(issuer(), mapping, DAY, source, RowScope(), columns(), lambda: iter(read))
    found: dict[str, str | None] = {}
    for block in read:
        validated = route.validate(route.normalise(block))
        found |= dict.fromkeys(validated.block.rows[CUID])
        found |= dict(route.process(validated)[0].select(CUID, "text").iter_rows())
    return found, dict(route.repairs)


@pytest.mark.slow
def test_a_later_block_shows_that_zips_lost_their_zeros_and_the_extract_is_read_a_second_time(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, rules={"max_length": {ADDRESS2: 20_000}})
    large = portal_rows(*({**TEXAN, CUID: f"c{at}", ADDRESS2: "x y " * 4000} for at in range(300)))
    last = portal_rows(*({CUID: f"d{at}", POSTAL_CODE: "2108"} for at in range(3)))

    manifest = bench.submit(bench.drop_bytes(portal_csv(pl.concat([large, last])))).manifest

    assert (303, {"zip_zeros": 3}) == (manifest.counts.submitted, manifest.repairs)
