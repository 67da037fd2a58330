"""The funnel: each cardholder once, by the best state; held against a recount in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from io import BytesIO
from typing import Any

import openpyxl
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.partner_api.funnel import (
    ENDS,
    LINK_AGES,
    OTHERS,
    SITES,
    add,
    age_of,
    cells,
    facts,
    funnel_stages,
)
from flows.reports.page import run_page
from flows.reports.workbook import run_workbook
from schemas.partner_api.link_placements import STAGES
from tests.facts import facts as run_facts

KINDS = (None, "BILLABLE", "USER_DATA_FAILURE", "NEVER_STARTED")
NOTHING: dict[str, Any] = dict.fromkeys(ENDS)
ends = st.fixed_dictionaries(
    {
        "opened": st.booleans(),
        "authenticated": st.booleans(),
        "running": st.booleans(),
        "termination_type": st.sampled_from(KINDS),
        "merchant_site": st.sampled_from((None, "shop", "video")),
    }
)
people = st.lists(
    st.fixed_dictionaries(
        {
            "cuid": st.sampled_from((None, "a", "b", "c", "d")),
            "fate": st.sampled_from(("submitted", "submitted", "rejected")),
            "state": st.sampled_from(("linked", "linked", "error", "awaiting")),
            "told": ends | st.just(NOTHING),
        }
    ),
    max_size=12,
)


def standing(
    rows: Sequence[dict[str, Any]], reports: dict[str, dict[str, Any]] | None = None
) -> pl.DataFrame:
    """Return the standings of rows numbered from 1, with an age."""
    numbers = {"row": pl.Series(range(1, len(rows) + 1), dtype=pl.UInt32)}
    records = pl.DataFrame(
        {
            **numbers,
            "cuid": pl.Series([row["cuid"] for row in rows], dtype=pl.String),
            "fate": pl.Series([row["fate"] for row in rows], dtype=pl.String),
        }
    ).with_columns(pl.lit("run").alias("run"))
    states = pl.DataFrame(
        {**numbers, "state": pl.Series([row["state"] for row in rows], dtype=pl.String)}
    )
    sent = records.filter(fate="submitted").select("row")
    by_row = pl.DataFrame([row["told"] for row in rows], schema=ENDS).with_columns(**numbers)
    by_cuid = pl.DataFrame(
        [{"cuid": cuid, **told} for cuid, told in (reports or {}).items()],
        schema={"cuid": pl.String, **ENDS},
    )
    return funnel_stages(
        records, states.join(sent, on="row", how="semi"), by_row, by_cuid
    ).with_columns(pl.lit(0, pl.UInt8).alias("age"))


def recount(rows: Sequence[dict[str, Any]]) -> tuple[list[int], dict[str, int], int]:
    """Count cardholders by hand: how many came to each stage, failed by kind, and are under way."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row["cuid"] or f"row {place}", []).append(row)
    reached = [0] * len(STAGES)
    failed: dict[str, int] = {}
    running = 0
    for group in groups.values():
        sent = [row for row in group if row["fate"] == "submitted"]
        ends = [row["told"] for row in sent if row["state"] == "linked"]
        stage = max(map(stage_of, ends), default=int(bool(sent)))
        for place in range(stage + 1):
            reached[place] += 1
        moving = any(end["running"] and end["termination_type"] != "BILLABLE" for end in ends)
        kinds = {end["termination_type"] for end in ends} - {None, "BILLABLE"}
        running += moving and stage < 5
        if kinds and stage < 5 and not moving:
            failed["any"] = failed.get("any", 0) + 1
    return reached, failed, running


def stage_of(end: dict[str, Any]) -> int:
    """Return the stage that a linked row came to."""
    if end["termination_type"] == "BILLABLE":
        return 5
    if end["authenticated"]:
        return 4
    return 3 if end["opened"] else 2


@given(people)
def test_every_cardholder_counts_once_by_the_best_state(rows: list[dict[str, Any]]) -> None:
    told = facts(cells([standing(rows)]))

    reached, failed, running = recount(rows)
    assert reached == [one["cardholders"] for one in told["stages"]]
    assert sum(failed.values()) == sum(one["cardholders"] for one in told["failed"])
    assert running == told["under_way"]


@given(people)
def test_counting_in_shares_of_cardholders_gives_the_same_as_counting_at_once(
    rows: list[dict[str, Any]],
) -> None:
    whole = standing(rows)
    shares = [cells([whole.filter(pl.col("holder") % 3 == share)]) for share in range(3)]

    assert facts(cells([whole])) == facts(add(shares))


@given(people, st.randoms())
def test_the_order_of_rows_and_frames_changes_nothing(
    rows: list[dict[str, Any]], luck: Any
) -> None:
    whole = standing(rows)
    pieces = [whole.slice(at, 1) for at in range(whole.height)]
    luck.shuffle(pieces)

    assert facts(cells([whole])) == facts(cells(pieces))


@given(people)
def test_each_stage_holds_all_that_come_after_it(rows: list[dict[str, Any]]) -> None:
    counts = [one["cardholders"] for one in facts(cells([standing(rows)]))["stages"]]

    assert sorted(counts, reverse=True) == counts


def row(cuid: str, **told: Any) -> dict[str, Any]:
    return {"cuid": cuid, "fate": "submitted", "state": "linked", "told": {**NOTHING, **told}}


def test_a_transaction_report_counts_like_a_job_and_an_end_over_what_it_says_is_running() -> None:
    rows = [row("a"), row("b", opened=True, termination_type="PROCESS_FAILURE"), row("c")]
    running = {**NOTHING, "opened": True, "running": True}
    reports = {
        "a": {**running, "running": False, "termination_type": "BILLABLE"},
        "b": running,
        "x": running,
    }

    told = facts(cells([standing(rows, reports)]))

    assert [3, 3, 3, 2, 1, 1] == [one["cardholders"] for one in told["stages"]]
    assert ([{"kind": "PROCESS_FAILURE", "cardholders": 1, "share": 1 / 3}], 0) == (
        told["failed"],
        told["under_way"],
    )


def test_a_report_of_a_cardholder_without_a_link_moves_nothing() -> None:
    waiting = {**row("a"), "state": "awaiting"}

    told = facts(cells([standing([waiting], {"a": {**NOTHING, "termination_type": "BILLABLE"}})]))

    assert [1, 1, 0, 0, 0, 0] == [one["cardholders"] for one in told["stages"]]


def test_many_merchant_sites_fold_into_one_line() -> None:
    rows = [
        row(str(at), termination_type="BILLABLE", merchant_site=f"site-{at:03d}")
        for at in range(SITES + 5)
    ]

    sites = facts(cells([standing(rows)]))["sites"]

    assert (SITES + 1, OTHERS, 5) == (len(sites), sites[-1]["site"], sites[-1]["placed"])


@pytest.mark.parametrize(
    ("days", "age"), [(0, 0), (6, 0), (7, 1), (14, 2), (30, 3), (61, 3), (62, 4)]
)
def test_a_link_is_as_old_as_its_runs_business_date(days: int, age: int) -> None:
    today = date(2026, 11, 20)

    assert LINK_AGES[age] == LINK_AGES[age_of(today - timedelta(days=days), today)]


def test_no_rows_have_an_empty_funnel() -> None:
    told = facts(cells([]))

    assert ([0] * 6, [], []) == (
        [one["cardholders"] for one in told["stages"]],
        told["failed"],
        told["sites"],
    )


def told_on_a_page(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the facts and chunks of a run whose funnel is that of these rows."""
    summary, chunks = run_facts()
    funnel = {**facts(cells([standing(rows)])), "seen": "2026-11-20T09:00:00+00:00", "unasked": 7}
    return {**summary, "funnel": funnel}, chunks


def test_the_page_shows_the_funnel_where_there_is_one() -> None:
    rows = [
        row("a", opened=True, termination_type="NEVER_STARTED", merchant_site="<b>shop</b>"),
        row("b"),
    ]

    with_one, without = run_page(*told_on_a_page(rows)), run_page(*run_facts())

    assert "From link to placed card" not in without
    assert "failed: <code>NEVER_STARTED</code>" in with_one
    assert "&lt;b&gt;shop&lt;/b&gt;" in with_one
    assert "7 links not checked yet" in with_one


def test_the_workbook_has_a_sheet_of_the_funnel_with_the_same_numbers() -> None:
    summary, chunks = told_on_a_page(
        [row("a", opened=True, termination_type="BILLABLE", merchant_site="shop"), row("b")]
    )

    book = openpyxl.load_workbook(BytesIO(run_workbook(summary, chunks)))

    lines = [tuple(cell.value for cell in line) for line in book["Funnel"].iter_rows(min_row=2)]
    assert ("stage", "", "placed", 1) in [
        (by, which or "", reached, count) for by, which, reached, count in lines
    ]
    assert ("merchant site", "shop", "placed", 1) in lines
