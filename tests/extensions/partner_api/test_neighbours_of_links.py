"""Limits and precedence of following links: the limit and its neighbours, the first and the last, by
the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.extensions.partner_api import funnel, job_records, link_command, link_plan
from flows.extensions.partner_api.causes import LOST_MESSAGES, NEVER_ASKED
from flows.extensions.partner_api.funnel import OTHERS, SITES, cells, facts
from flows.extensions.partner_api.job_records import Job, Placement
from flows.extensions.partner_api.link_plan import RowName, RowOutcome
from flows.extensions.partner_api.linking import ManyLinks
from flows.extensions.partner_api.probe import ReadRecord
from flows.extensions.partner_api.profile import INTERFACE
from flows.extensions.partner_api.service_objects import CardLink
from schemas.records import LINKED
from tests.extensions.partner_api.test_funnel import NOTHING, row, standing
from tests.memory_bench import memory_bench
from tests.night import DAY

NEIGHBOURS = tuple(DAY + timedelta(days=days) for days in (-1, 0, 1))


# The funnel
# --------------------------------------------------------------------------------------------------

FAILED = {"opened": True, "running": False, "termination_type": "PROCESS_FAILURE"}


def told(*rows: dict[str, Any], ages: Sequence[int] = ()) -> dict[str, Any]:
    """Return the funnel of rows with these ages of their links, youngest where none are named."""
    ages = ages or [0] * len(rows)
    return facts(cells([standing(rows).with_columns(age=pl.Series(ages, dtype=pl.UInt8))]))


def shown(counted: dict[str, Any]) -> tuple[list[str], list[str], list[int]]:
    """Return the kinds, the sites and the ages that a funnel counts somebody of."""
    return (
        [line["kind"] for line in counted["failed"]],
        [line["site"] for line in counted["sites"]],
        [age for age, line in enumerate(counted["ages"]) if line["linked"]],
    )


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_rows_of_a_cardholder_the_one_that_came_furthest_is_told(order: int) -> None:
    further = {"termination_type": "USER_DATA_FAILURE", "authenticated": True}
    rows = [
        row("a", **FAILED, merchant_site="a"),
        row("a", **{**FAILED, **further}, merchant_site="b"),
    ]

    assert (["USER_DATA_FAILURE"], ["b"], [2]) == shown(told(*rows[::order], ages=[1, 2][::order]))


@pytest.mark.parametrize("order", [1, -1])
def test_of_rows_that_came_as_far_the_first_kind_site_and_age_are_told(order: int) -> None:
    other = {"termination_type": "USER_DATA_FAILURE"}
    by_kind = [row("a", **FAILED, merchant_site="b"), row("a", **{**FAILED, **other})]
    by_site = [row("a", **FAILED, merchant_site=site) for site in ("b", "a")]
    by_age = [row("a", **FAILED, merchant_site="b")] * 2

    funnels = [
        told(*rows[::order], ages=ages[::order])
        for rows, ages in ((by_kind, [2, 1]), (by_site, [1, 2]), (by_age, [2, 1]))
    ]

    assert [
        (["PROCESS_FAILURE"], ["b"], [2]),
        (["PROCESS_FAILURE"], ["a"], [2]),
        (["PROCESS_FAILURE"], ["b"], [1]),
    ] == list(map(shown, funnels))


def test_sites_come_by_their_cardholders_and_of_equally_many_the_first_by_name_first() -> None:
    rows = [row(site, **FAILED, merchant_site=site) for site in "cab"]

    more = row("d", **FAILED, merchant_site="b")

    assert ["b", "a", "c"] == shown(told(*rows, more))[1]


def test_who_authenticated_came_to_a_site_and_who_only_opened_did_not() -> None:
    opened = row("a", opened=True, merchant_site="a")
    authenticated = row("b", opened=True, authenticated=True, merchant_site="b")

    assert ["b"] == shown(told(opened, authenticated))[1]


@pytest.mark.parametrize(("sites", "has_others"), [(SITES, False), (SITES + 1, True)])
def test_so_many_sites_have_a_line_of_their_own(sites: int, has_others: bool) -> None:
    rows = [row(f"{at}", **FAILED, merchant_site=f"site-{at:03d}") for at in range(sites)]

    assert has_others == (OTHERS in shown(told(*rows))[1])


@pytest.mark.parametrize(
    ("opened", "known_by"), [(True, {"service": 1}), (False, {"transaction reports": 1})]
)
def test_that_a_stage_was_reached_is_known_by_who_says_so_the_service_first(
    opened: bool, known_by: dict[str, int]
) -> None:
    reports = {"a": {**NOTHING, "opened": True}}

    stages = facts(cells([standing([row("a", opened=opened)], reports)]))["stages"]

    assert known_by == stages[3]["known_by"]


@pytest.mark.parametrize("order", [1, -1])
def test_who_has_a_card_placed_by_one_link_is_not_under_way_by_another(order: int) -> None:
    placed = row("a", opened=True, running=False, termination_type="BILLABLE")
    running = row("a", opened=True, running=True)

    counted = told(*[placed, running][::order])

    assert (0, 1) == (counted["under_way"], counted["stages"][5]["cardholders"])


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_causes_why_it_is_not_known_the_first_is_told(order: int) -> None:
    rows = [row("a", opened_cause=cause) for cause in ("cause.a", "cause.b")]

    [unknown] = told(*rows[::order])["stages"][3]["unknown"]

    assert "cause.a" == unknown["cause"]


# What is known of a link
# --------------------------------------------------------------------------------------------------


def test_answers_that_were_lost_stay_lost_when_messages_are_read_anew() -> None:
    unread = [{"type": "job_status", "message": {"status": "AUTH"}}]

    missed = [
        job_records.read_anew(Placement("run", 1, lost=lost, unread=1), contents, INTERFACE).missed
        for lost, contents in ((2, []), (2, [unread]), (0, [unread]), (0, []))
    ]

    assert [2, 3, 1, 0] == missed


@pytest.mark.parametrize(("known", "is_due"), [("7", False), ("8", True)])
def test_only_jobs_that_nobody_knew_make_a_row_due(known: str, is_due: bool) -> None:
    placement = Placement("run", 1, jobs=(Job(known, "AUTH"),))
    content = [{"type": "job_status", "job_id": "7", "message": {"status": "AUTH"}}]

    anew = job_records.read_anew(placement, [content], INTERFACE)

    assert is_due == (anew.jobs_trouble is not None)


def test_why_jobs_are_not_known_is_a_lost_answer_only_where_one_was_lost() -> None:
    nothing = dict.fromkeys(("trouble", "jobs_trouble", "running"))
    rows = pl.DataFrame({"lost": [0, 1, 0], "unread": [0, 0, 1], **nothing}).cast(
        {"trouble": pl.String, "jobs_trouble": pl.String, "running": pl.Boolean}
    )

    causes = rows.select(funnel.causes())["ended_cause"]

    assert [NEVER_ASKED, LOST_MESSAGES, LOST_MESSAGES] == causes.to_list()


@pytest.mark.parametrize(("days", "words"), [(-1, "1 day ago"), (0, "in 0 days"), (1, "in 1 day")])
def test_a_record_says_in_how_many_days_its_link_expires(days: int, words: str) -> None:
    day = DAY + timedelta(days=days)
    record = ReadRecord(CardLink(id="l-1"), day, None, {})

    assert f"on {day}, {words}" == record.words(DAY)["expires"]


# Single links
# --------------------------------------------------------------------------------------------------


def test_a_row_is_linked_up_to_the_day_on_which_its_single_link_expires() -> None:
    attempts = [
        SimpleNamespace(state=LINKED, answered=SimpleNamespace(expires_on=day))
        for day in NEIGHBOURS
    ]
    context = memory_bench().context

    earlier = [link_plan._earlier(context, cast(Any, attempt), False) for attempt in attempts]

    assert [False, True, True] == [outcome is not None for outcome in earlier]


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_rows_without_a_link_are_listed(more: int) -> None:
    outcomes = {
        RowName("run-1", number): RowOutcome("refused")
        for number in range(link_command.LISTED + more)
    }

    lines = [*link_command._others(ManyLinks(outcomes))]

    assert bool(more) == ("and 1 more; --json has them all" in lines)
    assert 2 + more == len(lines)


def test_a_cuid_names_the_row_of_the_last_attempt_of_each_of_its_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["cuid", "last_4", "twin", "run", "row"]
    rows = [("a", "1", 0, "old", 1), ("a", "2", 0, "old", 2), ("a", "1", 0, "new", 3)]
    attempts = pl.DataFrame(rows, names, orient="row")
    monkeypatch.setattr(link_plan, "read_book", lambda *_: SimpleNamespace(attempts=attempts))

    rows_of_cuids = link_plan._last_rows(memory_bench().context, {"a"})

    assert {"a": [RowName("old", 2), RowName("new", 3)]} == rows_of_cuids
