"""The transaction report: read by name, every row once, the same in any order and however often it
is fed.
"""

from __future__ import annotations

import csv
import gzip
import io
from datetime import date
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.extensions.partner_api.link_stages import REPORT, settled
from flows.extensions.partner_api.transaction_reports import read_transactions

HEADER = "cuid,status,completed_on\n"
ROWS = "c-1,SUCCESSFUL,2026-11-20\nc-2,PENDING,\n"
STATUSES = (
    "SUCCESSFUL",
    "BILLABLE",
    "PENDING",
    "UPDATING",
    "USER_DATA_FAILURE",
    "NEVER_STARTED",
    "Something new",
)
rows = st.lists(
    st.tuples(
        st.sampled_from(("c-1", "c-2", "c-3")),
        st.sampled_from(STATUSES),
        st.sampled_from(("", "2026-11-20")),
    ),
    max_size=8,
)


def read(text: str | bytes) -> pl.DataFrame:
    return read_transactions(text if isinstance(text, bytes) else text.encode(), "t.csv").rows


def written(found: list[tuple[str, str, str]]) -> pl.DataFrame:
    out = io.StringIO()
    csv.writer(out).writerows([("cuid", "status", "completed_on"), *found])
    return read(out.getvalue())


def test_a_report_is_read_as_it_stands() -> None:
    found = read(HEADER + ROWS)

    assert [(1, "c-1", "BILLABLE", False, True), (2, "c-2", None, True, False)] == found.select(
        "position", "cuid", "termination_type", "running", "authenticated"
    ).rows()
    assert [date(2026, 11, 20), None] == found["completed_on"].to_list()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + (HEADER + ROWS).encode(),
        (HEADER + ROWS).encode("utf-16"),
        gzip.compress((HEADER + ROWS).encode(), mtime=0),
        (HEADER + ROWS).replace(",", ";").encode(),
        (HEADER + ROWS).replace("\n", "\r\n").encode(),
        b"# of yesterday\n\n" + (HEADER + ROWS).encode(),
        b"Completed On,Extra,Status,CUID\n"
        b"2026-11-20T00:00:00.000Z,x,Successful,c-1\n"
        b",y,pending,c-2\n",
        b"cuid,status,completed_on\nc-1,BILLABLE,1795132800000\nc-2,PENDING\n",
        b"cuid,status,completed_on,\nc-1,SUCCESSFUL,11/20/2026,\nc-2,PENDING,,\n",
    ],
)
def test_any_dialect_order_and_date_says_the_same(content: bytes) -> None:
    assert read(HEADER + ROWS).drop("status").equals(read(content).drop("status"))


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "file.content.empty"), (b"a,b\n1,2\n", "file.header.unknown")]
)
def test_what_is_no_report_is_told_as_such(content: bytes, problem: str) -> None:
    found = read_transactions(content, "t.csv")

    assert ((problem,), 0) == (found.problems, found.rows.height)


@pytest.mark.parametrize(
    "line", ["c-1,SUCCESSFUL,2026-11-20,more", '"c-1,SUCCESSFUL,2026-11-20', ",SUCCESSFUL,"]
)
def test_a_row_whose_cells_do_not_fit_stays_without_a_cuid(line: str) -> None:
    assert [(1, None), (2, "c-2")] == read(f"{HEADER}{line}\nc-2,PENDING,\n").select(
        "position", "cuid"
    ).rows()


def test_a_cuid_cut_off_at_the_end_of_a_file_is_nobodys() -> None:
    assert [None] == read("status,cuid,completed_on\nSUCCESSFUL,c-1")["cuid"].to_list()


def test_a_status_says_what_it_says_and_no_more() -> None:
    found = settled(
        [
            read(
                f"{HEADER}c-1,SUCCESSFUL,\nc-2,PENDING,\nc-3,PROCESS_FAILURE,\nc-4,SOMETHING_NEW,\n"
                "c-5,Shipped to the site,2026-11-20\nc-6,TIMEOUT_TFA,2026-11-20\n"
            )
        ]
    )

    assert [
        ("c-1", True, False),
        ("c-2", False, True),
        ("c-3", None, False),
        ("c-4", None, None),
        ("c-5", None, None),
        ("c-6", False, False),
    ] == found.select("cuid", "authenticated", "running").rows()


def test_a_card_placed_in_words_is_placed_and_an_unknown_word_keeps_its_name() -> None:
    found = read(
        "cuid,status,completed_on,merchant_site_hostname\n"
        "c-1,Card Placed Successfully,2026-11-20,shop.example.com\n"
        "c-2,Shipped to the site,2026-11-20,\n"
    )

    assert [
        ("BILLABLE", "BILLABLE", "shop.example.com"),
        ("SHIPPED_TO_THE_SITE", None, None),
    ] == found.select("status", "termination_type", "merchant_site").rows()


def test_a_status_that_looks_like_a_card_number_is_not_kept() -> None:
    found = read(f"{HEADER}c-1,4242 4242 4242 4242,\n")

    assert ["OTHER"] == found["status"].to_list()


@settings(deadline=None)
@given(st.lists(rows, max_size=4), st.randoms())
def test_reports_fed_twice_and_in_any_order_say_the_same(
    files: list[list[tuple[str, str, str]]], luck: Any
) -> None:
    frames = [written(found) for found in files]
    again = luck.sample(frames + frames, 2 * len(frames))

    assert settled(frames).equals(settled(again))


@settings(deadline=None)
@given(rows)
def test_every_cuid_of_a_report_is_settled_once_and_placed_where_any_row_says_so(
    found: list[tuple[str, str, str]],
) -> None:
    one = settled([written(found)])

    placed = {cuid for cuid, status, _ in found if status in ("SUCCESSFUL", "BILLABLE")}
    assert sorted({cuid for cuid, _, _ in found}) == one["cuid"].to_list()
    assert placed == set(one.filter(termination_type="BILLABLE")["cuid"])
    assert pl.Schema(REPORT) == one.schema


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n,"), max_size=60))
def test_no_line_of_a_report_is_dropped_whatever_it_holds(cell: str) -> None:
    found = read(f"{HEADER}{cell},X,\nc-2,PENDING,\n")

    assert [1, 2] == found["position"].to_list()
    assert "c-2" == found["cuid"][1]
