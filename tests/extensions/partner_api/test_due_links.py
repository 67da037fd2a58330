"""Which links a check queries: those that move first, those at which nothing happens seldom."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.job_records import Job, Placement
from flows.extensions.partner_api.link_check import (
    MOST_REQUESTS,
    Turn,
    check_links,
    due_links,
    followed_links,
)
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.words import queries
from flows.runs.stored_run import StoredRun
from tests.extensions.partner_api.test_look import Partner, know_all, night, settings, status
from tests.night import NOON, Bench

HOUR = timedelta(hours=1)
NOBODY_ELSE: dict[str, Any] = {"opened": False, "running": False, "open_jobs": 0}


def stored(bench: Bench, run: str) -> tuple[StoredRun, pl.DataFrame]:
    """Return a run and its links, as a check reads them."""
    followed = bench.stored(run)
    return followed, followed_links(followed)


def due_rows(
    bench: Bench, run: str, known: dict[int, dict[str, Any]], now: datetime, **service: Any
) -> list[int]:
    """Return the rows that are due, most urgent first, of those that something is known of."""
    followed, links = stored(bench, run)
    records = [
        {**record, **NOBODY_ELSE, **known[record["row"]]}
        for record in links.to_dicts()
        if record["row"] in known
    ]
    frame = pl.DataFrame(records, schema=links.schema)
    turn = Turn(ServiceSettings(base_url="http://127.0.0.1:1", **service), now)
    return due_links(followed, frame, turn)["row"].to_list()


@pytest.mark.parametrize(
    ("quiet_days", "waited_hours", "is_due"),
    [
        (0.1, 5, False),
        (0.1, 6, True),
        (3, 20, False),
        (3, 24, True),
        (9, 71, False),
        (40, 72, True),
    ],
)
def test_a_link_is_queried_the_less_often_the_longer_nothing_happens_at_it(
    tmp_path: Path, quiet_days: float, waited_hours: float, is_due: bool
) -> None:
    bench, run, _ = night(tmp_path)
    now = NOON + timedelta(days=45)
    known = {
        1: {"moved_at": now - timedelta(days=quiet_days), "seen_at": now - waited_hours * HOUR}
    }

    assert is_due == bool(due_rows(bench, run, known, now))


def test_running_jobs_come_first_then_links_never_queried_then_those_that_waited_longest(
    tmp_path: Path,
) -> None:
    bench, run, _ = night(tmp_path)
    now = NOON + timedelta(days=30)
    quiet = {"moved_at": now - timedelta(days=20)}
    known: dict[int, dict[str, Any]] = {
        1: {**quiet, "seen_at": now - 80 * HOUR},
        2: {**quiet, "seen_at": now - 400 * HOUR},
        3: {"seen_at": None, "running": None, "opened": None},
        4: {"seen_at": now - 7 * HOUR, "moved_at": now - 7 * HOUR, "running": True},
        5: {"seen_at": now - 7 * HOUR, "moved_at": now - 7 * HOUR},
    }

    assert [4, 3, 2, 5, 1] == due_rows(bench, run, known, now)


def test_a_check_queries_what_its_time_allows_and_the_next_one_the_others(tmp_path: Path) -> None:
    bench, _, linked = night(tmp_path, requests_per_second=2, look_minutes=0.11)
    partner = Partner()
    know_all(partner, linked)

    first = follow_links(bench.context, partner)
    second = follow_links(bench.context, partner)

    assert [6, 6] == [facts["looked"]["asked"] for facts in (first, second)]
    limits = "0.11 minutes at 2 requests a second ([service] look_minutes, requests_per_second)"
    left = {"looked": {**first["looked"], "waiting": 61}}
    stopped = {"stopped": "service.answer.refused.401"}
    assert [
        f"6 links that are due wait for the next check of {limits}",
        f"61 links that are due wait for about 11 more checks of {limits}",
    ] == [
        line
        for facts in (first, {**first, **left}, {**first, **left, **stopped})
        for line in queries(bench.issuer.table(ServiceSettings), facts)
        if "wait" in line
    ]
    assert 0 == second["funnel"]["unasked"]


@pytest.mark.parametrize("rate", [0.5, 2, 10, 50])
def test_the_batch_that_is_under_way_when_the_planned_time_is_over_ends_within_the_time(
    rate: float,
) -> None:
    service = ServiceSettings(base_url="http://127.0.0.1:1", requests_per_second=rate)

    turn = Turn(service, NOON)

    last_batch = turn.batch * MOST_REQUESTS / rate
    assert turn.planned_seconds + last_batch <= service.look_minutes * 60
    assert turn.planned_requests + turn.batch * MOST_REQUESTS <= turn.most_requests


def test_each_job_that_runs_or_was_never_read_is_a_request_more(tmp_path: Path) -> None:
    bench, run, _ = night(tmp_path)
    followed, links = stored(bench, run)
    ended = Job("1", "TIMEOUT_TFA", "PROCESS_FAILURE", recorded=True)
    running = Job("2", "AUTH", recorded=True)
    jobs = [(), (ended,), (ended, running), (ended._replace(recorded=False), running)]
    opened = Placement(run, 1, cardholder_id="h", opened=True)
    records = [
        {**link, "cardholder_id": "h", "opened": True, "open_jobs": known["open_jobs"]}
        for link, of_link in zip(links.to_dicts(), jobs, strict=False)
        for known in [opened.with_jobs(of_link).record()]
    ]

    frame = pl.DataFrame(records, schema=links.schema)
    due = due_links(followed, frame, Turn(settings(bench), NOON, recheck=True))

    # the messages, and the jobs
    assert [1, 1, 2, 3] == due.sort("row")["requests"].to_list()


def test_a_check_sends_no_more_requests_than_its_time_allows_where_many_links_were_opened(
    tmp_path: Path,
) -> None:
    bench, _, linked = night(tmp_path, rows=70, requests_per_second=2, look_minutes=0.5)
    partner = Partner()
    know_all(partner, linked)
    for row, link_id in linked.select("row", "link_id").iter_rows():
        partner.links[link_id]["opened_on"] = "2026-12-10"
        partner.messages[f"h-{row}"] = [status(str(row), "AUTH")]
        partner.jobs[str(row)] = {"id": row, "status": "AUTH"}

    check = follow_links(bench.context, partner)["looked"]

    assert partner.asked.total() <= 60
    assert (19, 51) == (check["asked"], check["waiting"])


def test_a_check_that_somebody_asks_for_has_no_limit(tmp_path: Path) -> None:
    bench, _, linked = night(tmp_path, requests_per_second=1, look_minutes=0.1)
    partner = Partner()
    know_all(partner, linked)

    facts = follow_links(bench.context, partner, recheck=True)

    assert 12 == facts["looked"]["asked"]


@pytest.mark.slow
def test_a_check_whose_time_is_over_begins_with_no_more_links(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path, rows=70, look_minutes=1e-5, requests_per_second=1e8)
    partner = Partner()
    know_all(partner, linked)

    check = check_links(bench.context, partner, settings(bench), [bench.stored(run)])

    assert (64, 6) == (check.asked, check.waiting)


def test_of_a_link_that_is_not_opened_only_the_record_is_read_and_once_a_week_the_messages(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    asked = []
    for days in (0, 4, 8):
        partner.asked.clear()
        later = replace(bench, now=lambda: NOON + timedelta(days=days))  # noqa: B023 - used at once
        check_links(later.context, partner, settings(bench), [bench.stored(run)])
        asked.append(Counter(partner.asked))

    both = Counter(link=12, messages=12)
    assert [both, Counter(link=12), both] == asked


def test_a_link_that_moved_is_queried_soon_again(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    row, link_id = linked.select("row", "link_id").row(0)
    check_links(bench.context, partner, settings(bench), [bench.stored(run)])
    partner.links[link_id]["opened_on"] = "2026-12-10"
    partner.messages[f"h-{row}"] = [status("7", "TIMEOUT_TFA", termination_type="PROCESS_FAILURE")]
    partner.jobs["7"] = {"id": 7, "status": "TIMEOUT_TFA", "termination_type": "PROCESS_FAILURE"}
    asked = []
    for hours in (480, 487):
        partner.asked.clear()
        later = replace(bench, now=lambda: NOON + hours * HOUR)  # noqa: B023 - used at once
        check_links(later.context, partner, settings(bench), [bench.stored(run)])
        asked.append((partner.asked["link"], partner.asked["messages"], partner.asked["job"]))

    # opened, so its record says nothing new any more
    assert [(12, 12, 1), (0, 1, 0)] == asked
