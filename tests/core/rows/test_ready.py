"""Rows that are ready as they come out just as the whole way would have brought them, and only they go the fast one."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.core.extract.blocks import REFUSED, Block
from flows.core.rows import refine
from flows.core.rows.ready import Parted, Ready
from flows.core.rows.refine import Refined
from schemas import portal
from schemas.portal import columns
from schemas.rules import Rules
from tests.builders import portal_rows
from tests.ready_rows import AS_OF, CHANGES, HASH, refiner_of


def refined(rows: pl.DataFrame, order: Sequence[str] = columns(), rules: Rules | None = None) -> Refined:
    """Return what becomes of the rows of an extract in the portal's own columns."""
    refiner = refiner_of(order, rules or Rules())
    block = Block(
        rows.with_columns(pl.when(pl.col(columns()) != "").then(pl.col(columns()))), pl.DataFrame(schema=REFUSED)
    )
    with pytest.MonkeyPatch.context() as parting:
        parting.setattr(refine, "SMALL", 0)  # as if there were many rows
        return refiner.refine(refiner.sift(block))


def test_a_batch_as_high_as_the_first_block_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block is normalised for its repairs, and not again where nothing of it is ready."""
    monkeypatch.setattr(refine, "SMALL", 0)
    rows = portal_rows({portal.FIRST_NAME: " Ada"}, {}, {}, {portal.FIRST_NAME: "Zoë "})
    refiner = refiner_of(columns(), Rules())
    blocks = [Block(part, pl.DataFrame(schema=REFUSED)) for part in (rows[:2], rows[2:])]

    (batch,) = refine.gathered(map(refiner.sift, blocks))
    done = refiner.refine(batch)

    assert 2 == batch.rest.height
    assert [1, 2, 3, 4] == done.good["row"].to_list()
    assert ["Ada", "Ada", "Ada", "Zoë"] == [line.split(",")[17] for line in done.good["text"]]


def refined_the_whole_way(patch: pytest.MonkeyPatch, rows: pl.DataFrame, rules: Rules | None = None) -> Refined:
    """Return what becomes of rows where none is taken for ready."""
    part = Ready.part
    with patch.context() as all_slow:
        all_slow.setattr(Ready, "part", lambda self, mapped: Parted(part(self, mapped.clear()).ready, mapped))
        return refined(rows, rules=rules)


def ready(rows: pl.DataFrame, rules: Rules | None = None) -> list[int]:
    """Return the numbers of the rows that are ready."""
    return Ready(columns(), AS_OF, rules or Rules()).part(rows).ready["row"].to_list()


@settings(max_examples=400)
@given(st.lists(CHANGES, min_size=1, max_size=8))
def test_the_fast_way_brings_what_the_whole_way_brings(changes: list[Mapping[str, str | None]]) -> None:
    rows = portal_rows(*changes, {})

    fast = refined(rows)

    with pytest.MonkeyPatch.context() as patch:
        slow = refined_the_whole_way(patch, rows)
    assert slow.good.equals(fast.good.select(slow.good.columns))
    assert slow.others.sort("row").equals(fast.others.sort("row"))


@pytest.mark.parametrize("name", [portal.ADDRESS1, portal.NAME_ON_CARD, portal.NICKNAME, portal.CUID, portal.EMAIL])
@pytest.mark.parametrize("form", ["{}", "a{}", "{}b", "a{}b", "a {}", 'a,"{}'])
def test_no_letter_makes_a_difference(monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> None:
    rows = portal_rows(*({name: form.format(chr(code))} for code in range(1, 0x250)))

    fast, slow = refined(rows), refined_the_whole_way(monkeypatch, rows)

    assert slow.good.equals(fast.good.select(slow.good.columns))
    assert slow.others.sort("row").equals(fast.others.sort("row"))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {portal.CVV: None, portal.CVV_HASH: HASH},
        {portal.CVV_HASH: HASH},
        {portal.NAME_ON_CARD: None, portal.FIRST_NAME: "Björk", portal.LAST_NAME: "Guðmundsdóttir"},
        {portal.ADDRESS1: "12½ Main St", portal.ADDRESS2: "Suite 300, Floor 3"},
        {portal.LAST_NAME: 'Lee "Lucky" Long'},
        {portal.COUNTRY: "Canada", portal.SUBNATIONAL: "Quebec", portal.POSTAL_CODE: "h2x1y4"},
        {portal.PAN: "4242 4242 4242 4242", portal.MONTH: "1", portal.YEAR: "2029", portal.IS_PRIMARY: "yes"},
    ],
)
def test_what_extracts_are_full_of_is_ready(change: Mapping[str, str | None]) -> None:
    assert [1] == ready(portal_rows(change))


@pytest.mark.parametrize(
    "change",
    [
        {portal.LAST_NAME: "NULL"},
        {portal.FIRST_NAME: " Ada"},
        {portal.CUID: None},
        {portal.CUID: "4242-4242-4242-4242"},
        {portal.PAN: "4242424242424241"},
        {portal.YEAR: "26", portal.MONTH: "12"},
        {portal.CVV: "124", portal.CVV_HASH: HASH},
        {portal.POSTAL_CODE: "75001"},
        {portal.NAME_ON_CARD: "4 U"},
        {portal.NAME_ON_CARD: '",,,"'},
    ],
)
def test_what_needs_a_look_goes_the_whole_way(change: Mapping[str, str | None]) -> None:
    assert [] == ready(portal_rows(change))


@pytest.mark.parametrize("word", ["Ada", "c-1", "TRUE", "Boston", 'Lee "L" Long', "a, b"])
def test_a_word_the_issuer_calls_a_placeholder_is_never_ready(word: str) -> None:
    rules = Rules(placeholders=(word,))
    rows = portal_rows({portal.LAST_NAME: word if word[0] in "La" else "Byron"})

    assert [] == ready(rows, rules)


def test_lines_are_written_in_the_order_of_the_portals_header() -> None:
    order = tuple(reversed(columns()))

    lines = refined(portal_rows({portal.ADDRESS2: "Suite 3, Floor 3"}, {portal.FIRST_NAME: " Ada"}), order).good["text"]

    read = list(csv.DictReader(lines.to_list(), fieldnames=order))
    assert [("c-1", "Suite 3, Floor 3", "Ada"), ("c-2", "", "Ada")] == [
        (row[portal.CUID], row[portal.ADDRESS2], row[portal.FIRST_NAME]) for row in read
    ]
