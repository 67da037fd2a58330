"""Duplicates: a repeat is found wherever it stands, the first of its kind is sent, memory stays
small.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.submissions.chunk_csv import lines
from flows.submissions.duplicates import BLOCK, Table, verdicts_on_duplicates, with_keys
from schemas.issuer import RuleSettings
from schemas.portal import CITY, CUID, PAN, columns
from tests.builders import portal_rows, share_of

DEFAULT = RuleSettings()
VISA, MASTER = "4242424242424242", "5555555555554444"


def block(*changes: Mapping[str, str | None], made: bool = False) -> pl.DataFrame:
    rows = portal_rows(*changes)
    return rows.with_columns(cuid_made=pl.lit(made), text=lines(rows, columns()))


def read_markers(seen: Table, rows: pl.DataFrame, rules: RuleSettings = DEFAULT) -> pl.DataFrame:
    """Return the verdicts on the rows of a block."""
    return verdicts_on_duplicates(seen, with_keys(rows), rules)


def test_an_exact_repeat_a_repeated_card_and_a_shared_card_are_told_apart() -> None:
    rows = block(
        {CUID: "a"}, {CUID: "a"}, {CUID: "a", CITY: "Salem"}, {CUID: "b"}, {CUID: "a", PAN: MASTER}
    )

    marks = read_markers(Table(0), rows)

    assert [
        (2, "", "row.content.repeated", "reject"),
        (3, PAN, "card.pan.repeated", "reject"),
        (4, PAN, "card.pan.other_cuid", "warn"),
    ] == marks.rows()


def test_a_repeat_is_found_in_a_later_block() -> None:
    seen = Table(0)
    first = read_markers(seen, block({CUID: "a"}, {CUID: "b", PAN: MASTER}))

    second = read_markers(seen, block({CUID: "x"}, {CUID: "b", PAN: MASTER}))

    assert 0 == first.height
    assert ["card.pan.other_cuid", "row.content.repeated"] == second["code"].to_list()


def test_rows_whose_cuid_we_made_repeat_by_their_content() -> None:
    rows = block({CUID: "cl-1"}, {CUID: "cl-2"}, {CUID: "cl-3", CITY: "Salem"}, made=True)

    marks = read_markers(Table(0), rows)

    assert [(2, "row.content.repeated"), (3, "card.pan.repeated")] == marks.select(
        "row", "code"
    ).rows()


@pytest.mark.parametrize(
    ("severity", "expected"), [("reject", ["reject"]), ("warn", ["warn"]), ("off", [])]
)
def test_a_setting_decides_about_a_card_under_another_cuid(
    severity: str, expected: list[str]
) -> None:
    rules = RuleSettings.model_validate({"other_cuid": severity})

    marks = read_markers(Table(0), block({CUID: "a"}, {CUID: "b"}), rules)

    assert expected == marks["severity"].to_list()


def test_a_block_without_rows_marks_nothing() -> None:
    marks = read_markers(Table(0), block())

    assert {
        "row": pl.UInt32,
        "column": pl.String,
        "code": pl.String,
        "severity": pl.String,
    } == dict(marks.schema)
    assert 0 == marks.height


@settings(max_examples=share_of(1), deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([VISA, MASTER]), st.sampled_from("xy")),
        max_size=25,
    ),
    cut=st.integers(0, 25),
)
def test_marks_are_what_a_plain_set_says_however_the_blocks_are_cut(
    rows: list[tuple[str, str, str]], cut: int
) -> None:
    frame = block(*({CUID: cuid, PAN: pan, CITY: city} for cuid, pan, city in rows))
    seen = Table(0)

    marks = pl.concat([read_markers(seen, frame[:cut]), read_markers(seen, frame[cut:])])

    assert by_hand(rows) == marks.select("row", "code").rows()


def by_hand(rows: list[tuple[str, str, str]]) -> list[tuple[int, str]]:
    """Mark rows with dictionaries; a repeat's content is held against the first row of its cuid and
    card.
    """
    first: dict[tuple[str, str], str] = {}
    marks = []
    for at, (cuid, pan, city) in enumerate(rows, 1):
        if (cuid, pan) in first:
            marks.append(
                (at, "row.content.repeated" if first[cuid, pan] == city else "card.pan.repeated")
            )
        elif any(pan == known for _, known in first):
            marks.append((at, "card.pan.other_cuid"))
        first.setdefault((cuid, pan), city)
    return marks


def keys_of(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.random.default_rng(seed).integers(1 << 16, 1 << 63, count, dtype=np.uint64)


def test_a_table_that_grows_forgets_nothing() -> None:
    table = Table(10)
    keys, tags = keys_of(3 * BLOCK, 1), np.arange(3 * BLOCK, dtype=np.uint32)

    fresh = [
        table.add(keys[at : at + BLOCK], tags[at : at + BLOCK]).repeated.sum()
        for at in range(0, len(keys), BLOCK)
    ]
    again = table.add(keys, tags)

    assert [0, 0, 0] == fresh
    assert again.repeated.all()
    assert again.same.all()


def test_a_hundred_thousand_cuids_on_one_card_are_told_apart() -> None:
    table = Table(BLOCK)
    keys, tags = np.full(BLOCK, 1 << 40, np.uint64), np.arange(BLOCK, dtype=np.uint32)

    fresh, again = table.add(keys, tags), table.add(keys, tags)

    assert BLOCK - 1 == fresh.other.sum()
    assert 0 == fresh.repeated.sum()
    assert again.repeated.all()


def test_a_table_made_for_its_rows_takes_sixteen_bytes_a_row() -> None:
    table = Table(2 * BLOCK)

    for seed in range(2):
        table.add(keys_of(BLOCK, seed), np.full(BLOCK, seed, np.uint32))

    assert table._keys.nbytes + table._tags.nbytes <= 16 * 2 * BLOCK
