"""Normalising: what extracts write becomes what the portal takes, and stays so."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.submissions.normalise import normalise
from schemas.issuer import RuleSettings
from schemas.portal import (
    ADDRESS1,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)
from tests.builders import portal_rows, share_of

CANADIAN = {COUNTRY: "CA", SUBNATIONAL: "ON", POSTAL_CODE: "M5V 2T6"}


def normalised(
    change: Mapping[str, str | None], rules: RuleSettings | None = None
) -> dict[str, str | None]:
    """Return the 20 cells of one good row with `change`, normalised."""
    return normalise(portal_rows(change), rules or RuleSettings()).row(0, named=True)


@pytest.mark.parametrize(
    ("column", "written", "expected"),
    [
        (PAN, "4242 4242 4242 4242", "4242424242424242"),
        (PAN, "4242-4242\u20114242\u00a04242", "4242424242424242"),
        (MONTH, "7", "07"),
        (MONTH, "12", "12"),
        (YEAR, "2029", "29"),
        (YEAR, "1929", "1929"),
        (COUNTRY, "u.s.a.", "US"),
        (COUNTRY, "United  States", "US"),
        (COUNTRY, "usa", "US"),
        (COUNTRY, "Atlantis", "Atlantis"),
        (COUNTRY, "PR", "US"),
        (COUNTRY, "pri", "US"),
        (COUNTRY, "630", "US"),
        (COUNTRY, "Guam", "US"),
        (COUNTRY, "U.S. Virgin Islands", "US"),
        (COUNTRY, "FM", "US"),
        (COUNTRY, "VG", "VG"),
        (LAST_NAME, "O&#39;Brien", "O'Brien"),
        (LAST_NAME, "O&amp;#39;Brien", "O'Brien"),
        (LAST_NAME, "Mu&ntilde;oz", "Muñoz"),
        (LAST_NAME, "AT&T; &unknown; &copy", "AT&T; &unknown; &copy"),
        (ADDRESS1, "3 Oak Street &amp; 2nd", "3 Oak Street & 2nd"),
        (ADDRESS1, "3 Oak Street &#x26; 2nd", "3 Oak Street & 2nd"),
        (ADDRESS1, "3 Oak Street&#10;Unit 4&nbsp;", "3 Oak Street Unit 4"),
        (IS_PRIMARY, "yes", "TRUE"),
        (IS_PRIMARY, "0", "FALSE"),
        (IS_PRIMARY, "perhaps", "perhaps"),
        (SUBNATIONAL, "massachusetts", "MA"),
        (SUBNATIONAL, "N.Y.", "NY"),
        (SUBNATIONAL, "District of Columbia", "DC"),
        (POSTAL_CODE, "02108-1234", "02108"),
        (POSTAL_CODE, "021081234", "02108"),
        (POSTAL_CODE, "2108", "2108"),
        (FIRST_NAME, "Zoe\u0301", "Zo\u00e9"),
        (CITY, "\ufeff Boston\u200b\u00a0", "Boston"),
        (ADDRESS1, "1 Main St\r\nUnit 4", "1 Main St Unit 4"),
        (ADDRESS1, "1 Main\u2028St", "1 Main St"),
        (ADDRESS1, " \t\u200b", None),
        (EMAIL, "N/A", None),
        (LAST_NAME, "NULL", "NULL"),
        (CVV, " 007 ", "007"),
    ],
)
def test_a_spelling_of_extracts_becomes_the_one_of_the_portal(
    column: str, written: str, expected: str | None
) -> None:
    actual = normalised({column: written})[column]

    assert expected == actual


@pytest.mark.parametrize(
    ("column", "written", "expected"),
    [
        (POSTAL_CODE, "m5v2t6", "M5V 2T6"),
        (POSTAL_CODE, "M5V-2T6", "M5V 2T6"),
        (SUBNATIONAL, "Québec", "QC"),
        (SUBNATIONAL, "P.E.I.", "PE"),
        (SUBNATIONAL, "ont", "ON"),
        (COUNTRY, "canada", "CA"),
    ],
)
def test_canadian_spellings_are_known(column: str, written: str, expected: str) -> None:
    actual = normalised(CANADIAN | {column: written})[column]

    assert expected == actual


def test_a_cuid_is_trimmed_and_never_rewritten() -> None:
    written = "  00012-e\u0301 \u200b"

    actual = normalised({CUID: written})[CUID]

    assert "00012-e\u0301" == actual


def test_zip_plus_4_stays_where_the_issuer_wants_it() -> None:
    rules = RuleSettings(keep_zip_plus_4=True)

    actual = [
        normalised({POSTAL_CODE: written}, rules)[POSTAL_CODE]
        for written in ("02108-1234", "021081234")
    ]

    assert ["02108-1234", "02108-1234"] == actual


def test_an_absent_name_on_card_is_made_of_first_and_last_name() -> None:
    absent = {NAME_ON_CARD: None, FIRST_NAME: " Ada ", LAST_NAME: "Byron"}

    actual = [
        normalised(absent, RuleSettings(fill_name_on_card=fill))[NAME_ON_CARD]
        for fill in (True, False)
    ]

    assert ["Ada Byron", None] == actual


def test_absent_cells_stay_absent_and_empty_ones_become_so() -> None:
    nothing = portal_rows(dict.fromkeys(columns()), dict.fromkeys(columns(), ""))

    actual = normalise(nothing, RuleSettings())

    assert 2 * len(columns()) == sum(actual.select(columns()).null_count().row(0))


def test_a_block_without_rows_stays_one() -> None:
    nothing = portal_rows()

    actual = normalise(nothing, RuleSettings())

    assert nothing.schema == actual.schema
    assert 0 == actual.height


SPELLINGS = st.sampled_from(
    [
        "US",
        "usa",
        "u. s.",
        "Canada",
        "QC",
        "québec",
        "n.y.",
        "02108 1234",
        "h3z2y7",
        "2029",
        "7",
        "yes",
        "NULL",
        "--",
        "\ufeff",
        "",
    ]
)
CELLS = (
    st.none()
    | SPELLINGS
    | st.text(max_size=8)
    | st.text(alphabet=" \u00a0\u200b\u2000\u2028\u0301\te0-.", max_size=6)
)


@settings(max_examples=share_of(1), deadline=None)
@given(
    rows=st.lists(
        st.lists(CELLS, min_size=len(columns()), max_size=len(columns())), min_size=1, max_size=2
    ),
    rules=st.builds(RuleSettings, fill_name_on_card=st.booleans(), keep_zip_plus_4=st.booleans()),
)
def test_normalising_twice_is_normalising_once_and_leaves_no_line_break(
    rows: list[list[str | None]], rules: RuleSettings
) -> None:
    frame = portal_rows(*(dict(zip(columns(), cells, strict=True)) for cells in rows))

    once = normalise(frame, rules)

    assert once.equals(normalise(once, rules))
    assert frame.schema == once.schema
    rewritten = once.select(pl.exclude("row", "line", CUID, CVV, "service_card.cvv_hash"))
    assert not any(one.str.contains(r"[\p{Cc}\x{2028}\x{2029}]").any() for one in rewritten)


@settings(max_examples=share_of(1), deadline=None)
@given(
    st.lists(
        st.lists(CELLS, min_size=len(columns()), max_size=len(columns())), min_size=1, max_size=3
    )
)
def test_a_cell_becomes_the_same_in_a_tidy_column_and_beside_another_script(
    rows: list[list[str | None]],
) -> None:
    changes = [dict(zip(columns(), cells, strict=True)) for cells in rows]
    cyrillic = dict.fromkeys(columns(), "Я")  # such a column is looked at cell by cell

    alone, beside = (
        normalise(portal_rows(*some), RuleSettings()) for some in (changes, [*changes, cyrillic])
    )

    assert alone.equals(beside.head(len(rows)))
