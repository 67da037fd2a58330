"""The funnel: each cardholder once, by the best state; held against a recount in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from io import BytesIO
from typing import Any, NamedTuple

import openpyxl
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.partner_api.causes import NEVER_ASKED
from flows.extensions.partner_api.funnel import (
    CAUSES,
    ENDS,
    LINK_AGES,
    OTHERS,
    SITES,
    age_of,
    cells,
    facts,
)
from flows.extensions.partner_api.funnel import standing as standing_of
from flows.reports.page import run_page
from flows.reports.workbook import run_workbook
from tests.facts import facts as run_facts

KINDS = (None, "BILLABLE", "USER_DATA_FAILURE", "NEVER_STARTED")
NOTHING: dict[str, Any] = dict.fromkeys((*ENDS, *CAUSES))
REFUSED = "service.answer.refused.403"
known_or_not = st.sampled_from((True, False, None))
ends = st.fixed_dictionaries(
    {
        "opened": known_or_not,
        "authenticated": known_or_not,
        "running": known_or_not,
        "termination_type": st.sampled_from(KINDS),
        "merchant_site": st.sampled_from((None, "shop", "video")),
        **dict.fromkeys(CAUSES, st.sampled_from((None, NEVER_ASKED, REFUSED))),
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
    by_row = pl.DataFrame([row["told"] for row in rows], schema={**ENDS, **CAUSES}).with_columns(
        **numbers
    )
    by_cuid = pl.DataFrame(
        [
            {"cuid": cuid, **{name: told[name] for name in ENDS}}
            for cuid, told in (reports or {}).items()
        ],
        schema={"cuid": pl.String, **ENDS},
    ).with_columns(status="termination_type")
    of_sent = states.join(sent, on="row", how="semi")
    return standing_of(records.join(of_sent, on="row", how="left"), by_row, by_cuid, 0)


class Recount(NamedTuple):
    """Cardholders by hand: who came to each stage, of how many that is known, and of how many it is
    not; who failed, and who is under way.
    """

    reached: list[int]
    known: list[int]
    unknown: list[int]
    failed: int
    running: int


def recount(rows: Sequence[dict[str, Any]]) -> Recount:
    """Count cardholders by hand."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row["cuid"] or f"row {place}", []).append(row)
    count = Recount([0] * 6, [0] * 6, [0] * 6, 0, 0)
    failed = running = 0
    for group in groups.values():
        sent = [row for row in group if row["fate"] == "submitted"]
        ends = [row["told"] for row in sent if row["state"] == "linked"]
        stage = max(map(stage_of, ends), default=int(bool(sent)))
        moving = stage < 5 and any(end["running"] and not has_placed(end) for end in ends)
        known = [True, True, *known_stages(sent, ends, stage)]
        known[5] = known[5] or moving
        among = [True, True, stage >= 1, *[stage >= 2] * 3]
        for place in range(6):
            count.reached[place] += stage >= place
            count.known[place] += among[place] and known[place]
            count.unknown[place] += among[place] and not known[place]
        kinds = {end["termination_type"] for end in ends} - {None, "BILLABLE"}
        running += moving
        failed += bool(kinds) and stage < 5 and known[5] and not moving
    return count._replace(failed=failed, running=running)


def known_stages(
    sent: Sequence[dict[str, Any]], ends: Sequence[dict[str, Any]], stage: int
) -> list[bool]:
    """Return whether it is known that a cardholder was linked, opened it, authenticated, and has it
    placed: it was reached, or every row says that it was not.
    """
    said = [
        all(row["state"] != "awaiting" for row in sent),
        all(stage_of(end) >= 3 or end["opened"] is not None for end in ends),
        all(stage_of(end) >= 4 or end["authenticated"] is not None for end in ends),
        all(end["running"] is not None or end["termination_type"] for end in ends),
    ]
    return [stage >= place or none for place, none in enumerate(said, start=2)]


def has_placed(end: dict[str, Any]) -> bool:
    return bool(end["termination_type"] == "BILLABLE")


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

    count = recount(rows)
    assert count.reached == [one["cardholders"] or 0 for one in told["stages"]]
    assert count.failed == sum(one["cardholders"] for one in told["failed"])
    assert count.running == (told["under_way"] or 0)


@given(people)
def test_every_cardholder_of_a_stage_is_known_or_has_a_cause(rows: list[dict[str, Any]]) -> None:
    stages = facts(cells([standing(rows)]))["stages"]

    count = recount(rows)
    assert count.known == [one["known"] for one in stages]
    assert count.unknown == [
        sum(cause["cardholders"] for cause in one["unknown"]) for one in stages
    ]
    assert [sum(one["known_by"].values()) for one in stages[2:]] == count.known[2:]


@given(people)
def test_a_stage_of_which_nothing_is_known_has_no_number_and_no_share(
    rows: list[dict[str, Any]],
) -> None:
    stages = facts(cells([standing(rows)]))["stages"]

    unknown = [one["unknown"] != [] and one["known"] == 0 for one in stages]
    assert unknown == [one["cardholders"] is None for one in stages]
    assert [one["share"] for one in stages] == [
        one["cardholders"] / one["known"] if one["known"] else None for one in stages
    ]


@given(people)
def test_counting_in_shares_of_cardholders_gives_the_same_as_counting_at_once(
    rows: list[dict[str, Any]],
) -> None:
    whole = standing(rows)
    shares = [cells([whole.filter(pl.col("holder") % 3 == share)]) for share in range(3)]

    assert facts(cells([whole])) == facts(pl.concat(shares))


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
    stages = facts(cells([standing(rows)]))["stages"]

    counts = [one["cardholders"] or 0 for one in stages]
    assert sorted(counts, reverse=True) == counts


def test_of_a_partly_known_stage_the_share_is_of_what_is_known() -> None:
    known = [row(f"known-{at}", opened=at < 12) for at in range(30)]
    refused = [row(f"refused-{at}", opened_cause=REFUSED) for at in range(8)]

    opened = facts(cells([standing([*known, *refused, row("x"), row("y")])]))["stages"][3]

    assert (12, 30, 12 / 30) == (opened["cardholders"], opened["known"], opened["share"])
    assert [(REFUSED, 8), (NEVER_ASKED, 2)] == [
        (one["cause"], one["cardholders"]) for one in opened["unknown"]
    ]


def test_a_row_that_awaits_its_result_is_not_known_to_have_no_link() -> None:
    rows = [{**row("a"), "state": "awaiting"}, {**row("b"), "fate": "rejected", "state": None}]

    linked = facts(cells([standing(rows)]))["stages"][2]

    assert (None, 0, None) == (linked["cardholders"], linked["known"], linked["share"])
    assert [{"cause": "result.awaiting", "cardholders": 1}] == linked["unknown"]


def test_what_reports_say_counts_where_the_service_refused() -> None:
    refused = dict.fromkeys(CAUSES, REFUSED)
    placed = {**dict.fromkeys(ENDS), "opened": True, "running": False}
    reports = {"a": {**placed, "termination_type": "BILLABLE"}}

    told = facts(cells([standing([row("a", **refused), row("b", **refused)], reports)]))

    assert [{"transaction reports": 1}] * 3 == [one["known_by"] for one in told["stages"][3:]]
    assert [[{"cause": REFUSED, "cardholders": 1}]] * 3 == [
        one["unknown"] for one in told["stages"][3:]
    ]


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
    assert ([{"kind": "PROCESS_FAILURE", "cardholders": 1, "share": 1 / 2}], 0) == (
        told["failed"],
        told["under_way"],
    )


def test_a_report_of_a_cardholder_without_a_link_moves_nothing() -> None:
    waiting = {**row("a"), "state": "awaiting"}

    told = facts(cells([standing([waiting], {"a": {**NOTHING, "termination_type": "BILLABLE"}})]))

    assert [1, 1, None, 0, 0, 0] == [one["cardholders"] for one in told["stages"]]


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
    counted = facts(cells([standing(rows)]))
    queried = {"seen": "2026-11-20T09:00:00+00:00", "unasked": 7, "unanswered": []}
    return {**summary, "funnel": {**counted, **queried}}, chunks


def test_the_page_shows_the_funnel_where_there_is_one() -> None:
    rows = [
        row("a", opened=True, termination_type="NEVER_STARTED", merchant_site="<b>shop</b>"),
        row("b"),
    ]

    with_one, without = run_page(*told_on_a_page(rows)), run_page(*run_facts())

    assert "From link to placed card" not in without
    assert "failed: NEVER_STARTED" in with_one
    assert "&lt;b&gt;shop&lt;/b&gt;" in with_one
    assert "7 links not checked yet" in with_one


def lines_of(book: openpyxl.Workbook, sheet: str) -> list[tuple[object, ...]]:
    """Return the rows of a sheet below its head."""
    return [tuple(cell.value for cell in line) for line in book[sheet].iter_rows(min_row=2)]


def test_the_workbook_has_a_sheet_of_the_funnel_with_the_same_numbers() -> None:
    summary, chunks = told_on_a_page(
        [row("a", opened=True, termination_type="BILLABLE", merchant_site="shop"), row("b")]
    )

    book = openpyxl.load_workbook(BytesIO(run_workbook(summary, chunks)))

    placed = "1 of 1 known (100%), 1 unknown: never asked"
    assert ("placed", 1, placed, "service") in lines_of(book, "From link to placed card")
    assert [("shop", 1, 1, 1, 1, 0)] == lines_of(book, "By merchant site")


def test_a_stage_of_which_nothing_is_known_says_why_on_the_page_and_in_the_workbook() -> None:
    refused = dict.fromkeys(CAUSES, REFUSED)
    rows = [row("a", **refused), row("b", **refused), row("c", opened_cause="link.opened.missing")]
    summary, chunks = told_on_a_page(rows)

    page = run_page(summary, chunks)
    book = openpyxl.load_workbook(BytesIO(run_workbook(summary, chunks)))

    opened = "not known: refused 403 (2), the link record does not say (1)"
    assert ("opened", "", opened, "") in lines_of(book, "From link to placed card")
    assert f'<td>opened</td><td class="n"></td><td>{opened}</td>' in page
    assert "0%" not in page[page.index("From link to placed card") :].replace("100%", "")
