"""Lines of the portal's own form are sent on as they stand, and come out just as the whole way would have sent them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from typing import Literal, get_args

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.core.extract import reader
from flows.core.extract.reader import read_extract
from flows.core.rows import refine
from flows.core.rows.refine import Choice, Refined
from flows.core.rows.repairs import Decided
from schemas import portal
from schemas.portal import columns
from schemas.rules import Rules
from schemas.source import SourceSettings
from tests.builders import portal_rows
from tests.ready_rows import CHANGES, HASH, refiner_of

Quoting = Literal[0, 1]  # csv.QUOTE_MINIMAL, csv.QUOTE_ALL
REPEATED = {portal.CUID: "c-9", portal.PAN: "4111111111111111"}
ENDS = st.sampled_from([b"\n", b"\r\n"])


def extract_of(rows: pl.DataFrame, order: Sequence[str] = columns(), quoting: Sequence[Quoting] = ()) -> bytes:
    """Return the rows as an extract; `quoting` is how the first ones are quoted."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(order)
    for at, row in enumerate(rows.select(order).fill_null("").rows()):
        how: Quoting = quoting[at] if at < len(quoting) else csv.QUOTE_MINIMAL
        csv.writer(text, lineterminator="\n", quoting=how).writerow(row)
    return text.getvalue().encode()


def refined(
    data: bytes, *, plainly: bool, order: Sequence[str] = columns(), rules: Rules | None = None, block: int = 1000
) -> tuple[Refined, int]:
    """Return what becomes of an extract's rows, by the fast way or the whole one, and how many lines were plain."""
    refiner = refiner_of(order, rules or Rules(), Choice(decided=Decided()))
    extract = read_extract(BytesIO(data), SourceSettings(), "a.csv", block=block)
    plain = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refine, "SMALL", 1 << 40)
        patch.setattr(reader, "USUAL", 0)
        if plainly:
            extract.expect(refiner.plain(extract.header))
        done = []
        for found in extract:
            plain += found.plain.height if found.plain is not None else 0
            done.append(refiner.refine(refiner.sift(found)))
    return Refined(*map(pl.concat, zip(*done, strict=True))), plain


def agree(data: bytes, order: Sequence[str] = columns(), rules: Rules | None = None, block: int = 1000) -> int:
    """Hold both ways to the same rows, records and lines; return how many lines were plain."""
    fast, plain = refined(data, plainly=True, order=order, rules=rules, block=block)
    slow, none = refined(data, plainly=False, order=order, rules=rules, block=block)
    assert 0 == none
    assert slow.good.equals(fast.good.select(slow.good.columns))
    assert slow.others.sort("row").equals(fast.others.sort("row"))
    return plain


@settings(max_examples=200)
@given(st.lists(CHANGES, min_size=1, max_size=8), st.lists(st.sampled_from(get_args(Quoting))), ENDS)
def test_plain_lines_bring_what_the_whole_way_brings(
    changes: list[Mapping[str, str | None]], quoting: list[Quoting], end: bytes
) -> None:
    rows = portal_rows(*changes, {}, REPEATED, REPEATED, {**REPEATED, portal.CITY: " Boston"})

    agree(extract_of(rows, quoting=quoting).replace(b"\n", end))


@settings(max_examples=60)
@given(st.permutations(columns()), st.lists(CHANGES, min_size=1, max_size=4), st.booleans())
def test_the_portals_columns_may_come_in_any_order(
    order: list[str], changes: list[Mapping[str, str | None]], fill: bool
) -> None:
    named = {portal.NAME_ON_CARD: "Ada L", portal.FIRST_NAME: 'A "B" C', portal.LAST_NAME: "x, jr"}
    rows = portal_rows(*changes, {}, named, {**named, portal.NAME_ON_CARD: None})

    agree(extract_of(rows, order), order, Rules(fill_name_on_card=fill))


@pytest.mark.parametrize("name", [portal.ADDRESS1, portal.NAME_ON_CARD, portal.FIRST_NAME, portal.CUID, portal.EMAIL])
@pytest.mark.parametrize("form", ["{}", "a{}", "a{}b", "a {}", 'a,"{}'])
def test_no_letter_makes_a_difference(name: str, form: str) -> None:
    rows = portal_rows(*({name: form.format(chr(code))} for code in range(1, 0x250) if chr(code) not in "\n\r\x1a"))

    agree(extract_of(rows), block=1 << 20)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {portal.CVV: None, portal.CVV_HASH: HASH},
        {portal.CVV_HASH: HASH},
        {portal.NAME_ON_CARD: None, portal.FIRST_NAME: "Björk", portal.LAST_NAME: "Guðmundsdóttir, Jr."},
        {portal.NAME_ON_CARD: None, portal.LAST_NAME: 'Lee "Lucky" Long'},
        {portal.ADDRESS1: "12½ Main St", portal.ADDRESS2: "Suite 300, Floor 3"},
        {portal.NICKNAME: ', "x"'},
    ],
)
def test_what_extracts_are_full_of_is_plain(change: Mapping[str, str | None]) -> None:
    data = extract_of(portal_rows(change))

    assert 1 == agree(data)
    assert [1] == refined(data, plainly=True)[0].good["row"].to_list()


@pytest.mark.parametrize(
    "line",
    [
        'c-1,4242424242424242,29,03,,,123,,,"1 Main St",,Boston,MA,US,02108,,,Ada,Byron,TRUE',  # quoted without need
        'c-1,4242424242424242,29,03,,,"123",,,1 Main St,,Boston,MA,US,02108,,,Ada,Byron,TRUE',
        "c-1,4242424242424242,29,03,,,123,,,1 Main St ,,Boston,MA,US,02108,,,Ada,Byron,TRUE",
        "c-1,4242424242424242,29,03,,,123,,,1 Main St,,Boston,MA,US,02108,,,Ada,4 U,TRUE",  # no name for a card
        '"c-1",4242424242424242,29,03,,,123,,,1 Main St,,Boston,MA,US,02108,,,Ada,Byron,TRUE',
    ],
)
def test_what_is_written_otherwise_is_not_plain(line: str) -> None:
    assert 1 == agree(extract_of(portal_rows({portal.CUID: "c-9"})) + line.encode() + b"\n")


def test_a_plain_line_the_settings_call_a_comment_is_none() -> None:
    data = extract_of(portal_rows({portal.CUID: "#1"}, {}))
    refiner = refiner_of(columns(), Rules(), Choice(decided=Decided()))
    extract = read_extract(BytesIO(data), SourceSettings(comment="#"), "a.csv")
    extract.expect(refiner.plain(extract.header))

    (block,) = extract

    assert block.plain is not None
    assert ["c-2"] == block.plain[portal.CUID].to_list()
    assert 1 == extract.counts.comments


def test_nothing_is_expected_after_a_block_of_other_lines() -> None:
    header, usual = extract_of(portal_rows(*[{}] * 40)).split(b"\n", 1)
    other = usual.replace(b",US,", b",USA,")
    refiner = refiner_of(columns(), Rules(), Choice(decided=Decided()))
    extract = read_extract(BytesIO(header + b"\n" + usual + other + usual), SourceSettings(), "a", block=1000)
    extract.expect(refiner.plain(extract.header))

    found = [0 if block.plain is None else block.plain.height for block in extract]

    assert 40 == sum(found)


def test_a_cvv_the_issuer_calls_a_placeholder_leaves_no_line_plain() -> None:
    refiner = refiner_of(columns(), Rules(placeholders=("999",)), Choice(decided=Decided()))

    assert refiner.plain(columns()) is None


@pytest.mark.parametrize("choice", [Choice(), Choice(decided=Decided(zip_zeros=True)), Choice(keep_cvv=True)])
def test_nothing_is_expected_where_columns_are_repaired_or_every_cell_is_wanted(choice: Choice) -> None:
    assert refiner_of(columns(), Rules(), choice).plain(columns()) is None


def test_nothing_is_expected_under_other_headers() -> None:
    refiner = refiner_of(columns(), Rules(), Choice(decided=Decided()))

    assert refiner.plain(columns()) is not None
    assert refiner.plain([*columns()[1:], columns()[0]]) is None
