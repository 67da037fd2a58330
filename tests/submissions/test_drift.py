"""A night whose columns differ from those of the nights before it is named, and no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from flows.extensions.simulator.extract import write_sample
from flows.runs.identity import canonical
from flows.runs.stored_runs import Night
from flows.submissions.drift import departures
from flows.submissions.gates import DriftError
from flows.submissions.rehearsal import rehearse
from flows.submissions.row_counts import unusual_lines
from flows.submissions.sample import SAMPLED, Sample
from flows.submissions.submit import Request
from schemas.manifest import Profile
from schemas.portal import (
    ADDRESS1,
    CITY,
    CUID,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    LAST_NAME,
    MONTH,
    NICKNAME,
    PAN,
    PHONE,
    YEAR,
)
from tests.late import told
from tests.night import DAY, Bench, issuer, local_bench, portal_csv

LIMIT = 0.1


@cache
def extract(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return the mapped rows of a generated extract, a few of them bad."""
    out = BytesIO()
    write_sample(out, rows, as_of=DAY, bad=seed % 4 / 100, seed=seed)
    cells = pl.read_csv(out.getvalue(), infer_schema=False).with_row_index("row", 1)
    return cells.select(
        pl.col("row").cast(pl.UInt32), pl.col("row").alias("line"), pl.exclude("row")
    )


def profile(rows: pl.DataFrame, block: int = 20_000) -> Profile:
    """Return the profile of rows that come in blocks."""
    sample = Sample()
    for piece in rows.iter_slices(block):
        sample.add(piece)
    return sample.profile()


@cache
def usual(rows: int = 1000) -> tuple[Night, ...]:
    """Return ten usual nights of that size."""
    return tuple(
        Night(DAY + timedelta(seed), rows, profile(extract(rows, seed))) for seed in range(10, 20)
    )


def half(column: str) -> list[pl.Expr]:
    return [pl.when(pl.col("row") % 2 == 0).then(column).alias(column)]


def exchanged(one: str, other: str) -> list[pl.Expr]:
    return [pl.col(one).alias(other), pl.col(other).alias(one)]


def odd(rows: int = 1000) -> Profile:
    """Return the profile of a night without e-mail addresses in half of its rows."""
    return profile(extract(rows, 20).with_columns(half(EMAIL)))


@pytest.mark.parametrize(
    "rows",
    [200, pytest.param(2000, marks=pytest.mark.slow), pytest.param(20_000, marks=pytest.mark.slow)],
)
def test_thirty_usual_nights_of_half_to_one_and_a_half_the_size_raise_nothing(rows: int) -> None:
    nights: list[Night] = []

    found = []
    for at in range(30):
        size = rows * (10 + (at * 7) % 11 - 5) // 10
        now = profile(extract(size, 10 + at))
        found += departures(now, nights[-14:], LIMIT)
        nights.append(Night(DAY + timedelta(at), size, now))

    assert found == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (half(EMAIL), {EMAIL: "filled in 50% of the rows, usually 100%"}),
        (half(NICKNAME), {NICKNAME: "filled in 1[5-9]% of the rows, usually 3[2-5]%"}),
        (
            exchanged(FIRST_NAME, LAST_NAME),
            {FIRST_NAME: ".*longer than", LAST_NAME: ".*longer than"},
        ),
        (exchanged(CITY, ADDRESS1), {CITY: "", ADDRESS1: ""}),
        (
            exchanged(MONTH, YEAR),
            {
                MONTH: "spread over about [45] values, usually 12",
                YEAR: "spread over about 12 values",
            },
        ),
        (
            exchanged(CUID, PHONE),
            {CUID: "100% .* form 9-9-9 .* usually 0%", PHONE: "0% .* form 9-9-9 .* usually 100%"},
        ),
        (
            [pl.concat_str(pl.lit("20"), YEAR).alias(YEAR)],
            {YEAR: "100% .* longer than [23] characters, usually 0%"},
        ),
        ([pl.col(PHONE).str.replace_all("-", ".")], {PHONE: r".* form 9[.-]9[.-]9 "}),
        (
            [
                pl.when(pl.col("row") % 10 < 3)
                .then("555555" + pl.col(PAN).str.slice(6))
                .otherwise(PAN)
                .alias(PAN)
            ],
            {
                PAN: "3[01]% of the cards begin with 555555, usually 0%"
                "|70% of the cards begin with 400000"
            },
        ),
        (
            [pl.concat_str(LAST_NAME, pl.lit("berg"), LAST_NAME).alias(LAST_NAME)],
            {LAST_NAME: ".*% .* longer than"},
        ),
        ([pl.lit("Boston").alias(CITY)], {CITY: "spread over about 1 values, usually 36"}),
        ([], {}),
    ],
)
def test_a_night_that_departs_says_which_column_and_how(
    change: list[pl.Expr], named: dict[str, str]
) -> None:
    rows = extract(1000, 20).with_columns(change)

    found = departures(profile(rows), usual(), LIMIT)

    assert {one.partition(": ")[0] for one in found} == named.keys()
    assert all(
        re.match(named[column], how) for column, _, how in (one.partition(": ") for one in found)
    )


def test_a_few_rows_prove_nothing() -> None:
    few = profile(extract(12, 20).with_columns(half(EMAIL)))

    found = departures(few, usual(), LIMIT)

    assert found == []


def test_nights_of_two_kinds_are_both_usual() -> None:
    kinds = [Night(DAY, 1000, odd()) if at % 7 > 4 else usual()[at % 10] for at in range(14)]

    found = [departures(one, kinds, LIMIT) for one in (odd(), profile(extract(1000, 20)))]

    assert found == [[], []]


@pytest.mark.parametrize(
    ("usual_comments", "comments", "is_unusual"),
    [((1, 1, 1), 2, True), ((1, 3, 2), 5, False), ((1, 3, 2), 6, True), ((1, 1), 9, False)],
)
def test_more_lines_set_aside_than_in_the_nights_before_are_named(
    usual_comments: tuple[int, ...], comments: int, *, is_unusual: bool
) -> None:
    nights = [Night(DAY, 9, None, set_aside={"comment": lines}) for lines in usual_comments]

    found = [*unusual_lines({"header": 0, "comment": comments}, nights)]

    least, most = min(usual_comments), max(usual_comments)
    sentence = f"comment lines: {comments}, usually {least} to {most}"
    assert ([sentence] if is_unusual else []) == found


def test_one_odd_night_hides_no_other_and_what_stays_becomes_usual() -> None:
    strange = Night(DAY, 1000, odd())

    found = [departures(odd(), [*usual(), *[strange] * times], LIMIT) for times in range(3)]

    assert [bool(one) for one in found] == [True, True, False]


def test_nights_of_earlier_versions_are_unknown_and_five_others_are_enough() -> None:
    unknown = [one._replace(profile=None) for one in usual()]

    known = [[*unknown, *usual()[:number]] for number in (0, 4, 5)]

    found = [departures(odd(), nights, LIMIT) for nights in known]

    assert [False, False, True] == [bool(sentences) for sentences in found]
    assert departures(None, usual(), LIMIT) == []


@pytest.mark.parametrize("block", [300, 100_000])
def test_a_profile_is_the_same_however_the_extract_is_cut_into_blocks(block: int) -> None:
    rows = extract(5000)

    found = profile(rows, block)

    assert found == profile(rows, 2600)
    assert SAMPLED / 2 <= found.rows <= SAMPLED
    assert found.columns[CITY].distinct == pytest.approx(36, rel=0.1)
    assert found.columns[CUID].distinct == pytest.approx(5000, rel=0.01)


def test_a_profile_holds_no_cell() -> None:
    rows = extract(300).with_columns(exchanged(NICKNAME, PAN))
    cells = {
        cell for column in rows.drop("row", "line") for cell in column.drop_nulls() if len(cell) > 3
    }

    found = profile(rows)

    text = canonical(found).decode()
    assert [cell for cell in cells if cell in text] == []
    assert {
        sign
        for one in found.columns.values()
        for form in one.forms
        for sign in form
        if sign.isalnum()
    } == set("A9X")
    assert found.bins == found.columns[CVV].forms == found.columns[CVV_HASH].forms == {}


def drop(bench: Bench, night: int, rows: pl.DataFrame) -> str:
    """Drop the extract of a night."""
    return bench.drop_bytes(portal_csv(rows), f"bank-202611{night:02d}.csv")


def settled(bench: Bench) -> Bench:
    """Submit five usual nights."""
    for night in range(1, 6):
        bench.submit(drop(bench, night, extract(80, night)))
    return bench


def drifted(bench: Bench) -> Sequence[tuple[str, bool]]:
    """Watch; return what opened and closed."""
    changes = told(bench.context)
    return [(one.text, is_late) for one, is_late in changes if one.kind == "unusual extracts"]


@pytest.mark.slow
def test_a_night_that_departs_is_told_and_closes_with_the_next_usual_one(tmp_path: Path) -> None:
    bench = settled(local_bench(tmp_path))
    how = f"departs from the extracts before it: {EMAIL}: filled in 50% of the rows, usually 100%"

    quiet = drifted(bench)
    done = bench.submit(drop(bench, 6, extract(80, 6).with_columns(half(EMAIL))))
    opened = drifted(bench)
    bench.submit(drop(bench, 7, extract(80, 7)))
    closed = drifted(bench)

    assert quiet == []
    assert done.remarks == (f"bank/extracts/bank-20261106.csv {how}",)
    assert opened == [(f"{done.manifest.run} {how}", True)]
    assert closed[-1] == (f"{done.manifest.run} {how}", False)


@pytest.mark.slow
def test_a_night_whose_rows_are_taken_for_comments_is_told(tmp_path: Path) -> None:
    bench = replace(local_bench(tmp_path), issuer=issuer(source={"comment": "CUSTOMER"}))
    settled(bench)
    header, row, *others = portal_csv(extract(80, 6)).splitlines(keepends=True)
    night = b"".join([header, b"CUSTOMER-", row, *others])

    done = bench.submit(bench.drop_bytes(night, "bank-20261106.csv"))

    how = "departs from the extracts before it: comment lines: 1, usually 0 to 0"
    assert (f"bank/extracts/bank-20261106.csv {how}",) == done.remarks
    assert [(f"{done.manifest.run} {how}", True)] == drifted(bench)
    assert {"header": 1, "comment": 1} == done.manifest.counts.set_aside


@pytest.mark.slow
def test_a_night_that_departs_is_refused_by_setting_until_the_gate_is_opened(
    tmp_path: Path,
) -> None:
    limits = {"max_reject_rate": 0.5, "drift": "refuse"}
    bench = settled(replace(local_bench(tmp_path), issuer=issuer(limits=limits)))
    name = drop(bench, 6, extract(80, 6).with_columns(half(EMAIL)))

    rehearsed = rehearse(bench.context, Request(name))
    with pytest.raises(DriftError) as refused:
        bench.submit(name)
    committed = bench.submit(name, opened=["drift"])

    assert str(rehearsed.refused) == str(refused.value)
    assert f"{EMAIL}: filled in 50% of the rows, usually 100%. Nothing was committed." in str(
        refused.value
    )
    assert not committed.already
    assert drifted(bench) == []
