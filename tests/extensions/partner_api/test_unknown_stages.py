"""What a check does not learn stays unknown with its cause, is due again at once, and is no zero."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from flows.errors import CardlinkError
from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.link_check import LinkCheck, check_links
from flows.extensions.partner_api.service import (
    AnswerLostError,
    ServiceBusyError,
    ServiceRefusedError,
    StrangeAnswerError,
    UnauthorisedError,
)
from flows.extensions.partner_api.words import coverage, line_of
from flows.reports.across import reconcile_runs
from flows.runs.keys import reconciliation
from tests.builders import quick
from tests.extensions.partner_api.test_look import (
    Partner,
    know_all,
    looked,
    night,
    settings,
    status,
)
from tests.night import BANK, NOON, Bench

FORBIDDEN = ServiceRefusedError(place="the service", status=403, reason="")
STAGES = ("opened", "authenticated", "placed")


def failing(question: str, error: CardlinkError) -> Callable[[str], None]:
    """Return what raises an error at a question: link, messages or job."""

    def before(asked: str) -> None:
        if asked == question:
            raise error

    return before


def check(bench: Bench, run: str, partner: Partner) -> LinkCheck:
    return check_links(bench.context, partner, settings(bench), [bench.stored(run)])


def lines(done: LinkCheck) -> list[str]:
    return [line_of(source) for source in coverage(done.questions)]


def causes(bench: Bench, run: str) -> dict[str, str]:
    """Return why each stage of a run is not known, and nothing of those that are."""
    stages = follow_links(bench.context, None, run)["funnel"]["stages"]
    return {
        stage["stage"]: ", ".join(cause["cause"] for cause in stage["unknown"])
        for stage in stages
        if stage["unknown"]
    }


@pytest.mark.parametrize(
    ("error", "cause"),
    quick(
        1,
        [
            (FORBIDDEN, "service.answer.refused.403"),
            (ServiceBusyError(place="the link", kind="HTTP 503"), "service.answer.unavailable.503"),
            (StrangeAnswerError(place="the link", problem="none"), "service.answer.unreadable"),
            (
                ServiceBusyError(place="the link", kind="ReadTimeout"),
                "service.answer.unavailable.ReadTimeout",
            ),
        ],
    ),
)
def test_a_link_that_is_not_answered_is_unknown_by_its_cause_and_due_at_once(
    tmp_path: Path, error: CardlinkError, cause: str
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner(before=failing("link", error))
    know_all(partner, linked)
    first = check(bench, run, partner)
    unknown = causes(bench, run)
    partner.before = lambda _: None

    done = check(bench, run, partner)

    assert (12, 12) == (first.asked, first.unanswered)
    assert dict.fromkeys(STAGES, cause) == unknown
    assert (12, 0, {}) == (done.asked, done.unanswered, causes(bench, run))


def test_the_coverage_of_a_check_names_who_was_asked_and_who_refused(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner(before=failing("messages", FORBIDDEN))
    know_all(partner, linked)

    done = check(bench, run, partner)

    assert [
        "link records: asked 12, answered 12",
        "messages: asked 12, answered 0: refused 403",
    ] == lines(done)
    assert dict.fromkeys(STAGES[1:], "service.answer.refused.403") == causes(bench, run)


@pytest.mark.usefixtures("one_at_a_time")
def test_credentials_that_are_rejected_end_the_check_and_the_rows_asked_say_so(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path, rows=40)
    partner = Partner(
        before=failing("link", UnauthorisedError(place="the link", status=401, reason=""))
    )
    know_all(partner, linked)

    done = check(bench, run, partner)

    told = looked(bench, run)["trouble"].drop_nulls().to_list()
    assert (1, "service.answer.refused.401") == (done.asked, done.stopped)
    assert ["service.answer.refused.401"] == told


def test_what_was_known_before_a_refusal_stays_known_and_its_row_is_due_at_once(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    check(bench, run, partner)
    partner.before = failing("link", FORBIDDEN)
    later = replace(bench, now=lambda: NOON + timedelta(hours=7))
    refused = check(later, run, partner)
    again = check(later, run, partner)

    funnel = follow_links(later.context, None, run)["funnel"]

    assert (12, 12) == (refused.unanswered, again.asked)
    assert [12] * 6 == [stage["known"] for stage in funnel["stages"]]
    assert [{"cause": "service.answer.refused.403", "links": 12}] == funnel["unanswered"]
    assert NOON.isoformat() == funnel["seen"]


@pytest.mark.slow
def test_jobs_that_nobody_asked_for_are_due_once_the_setting_is_corrected(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path, follow_cardholders=False)
    partner = Partner()
    know_all(partner, linked)
    check(bench, run, partner)
    before = causes(bench, run)
    spoken = settings(bench).model_copy(update={"follow_cardholders": True})

    check_links(bench.context, partner, spoken, [bench.stored(run)])

    assert dict.fromkeys(STAGES[1:], "never.asked") == before
    assert {} == causes(bench, run)


def test_a_record_that_does_not_say_whether_its_link_was_opened_says_nothing(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path, follow_cardholders=False)
    partner = Partner()
    know_all(partner, linked)
    for record in partner.links.values():
        del record["opened_on"]

    first, second = check(bench, run, partner), check(bench, run, partner)

    assert ["link records: asked 12, answered 0: the link record does not say"] == lines(first)
    assert (12, 12) == (first.unanswered, second.asked)
    assert "link.opened.missing" == causes(bench, run)["opened"]


def test_a_record_that_does_not_say_so_is_not_asked_again_at_once_where_its_jobs_are_known(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    for record in partner.links.values():
        del record["opened_on"]
    check(bench, run, partner)

    done = check(bench, run, partner)

    assert {"opened": "link.opened.missing"} == causes(bench, run)
    assert 0 == done.asked


def test_a_record_without_a_cardholder_leaves_the_jobs_unknown(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    for link_id in linked["link_id"]:
        partner.links[link_id] = {"id": link_id, "opened_on": None}

    done = check(bench, run, partner)

    assert "messages: asked 0, answered 0: no cardholder in the link record" in lines(done)
    assert dict.fromkeys(STAGES[1:], "link.cardholder.missing") == causes(bench, run)


def test_a_record_that_names_another_cardholder_says_nothing_of_the_row(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    for link_id, cuid in linked.select("link_id", "cuid").iter_rows():
        partner.links[link_id]["card"]["cardholder"]["cuid"] = cuid
    partner.links[linked["link_id"][0]] = partner.links[linked["link_id"][1]]

    done = check(bench, run, partner)

    assert "link records: asked 12, answered 11: the record of another cardholder" in lines(done)
    assert "link.record.other" == causes(bench, run)["opened"]


def test_words_of_jobs_that_nobody_knows_are_counted_by_their_names(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    states = [{"status": "WAITING_ROOM"}, {"status": "X", "termination_type": "A_SIXTH_TYPE"}]
    for row, job in zip(linked["row"], states, strict=False):
        job_id = str(row)
        partner.messages[f"h-{row}"] = [status(job_id, "AUTH")]
        partner.jobs[job_id] = {"id": job_id, **job}

    facts = follow_links(bench.context, partner)

    assert [
        {"word_of": "status", "word": "WAITING_ROOM", "jobs": 1},
        {"word_of": "termination_type", "word": "A_SIXTH_TYPE", "jobs": 1},
    ] == facts["doubts"]
    assert facts["runs"] == [run]
    assert 1 == facts["funnel"]["under_way"]


def test_a_url_without_an_id_is_no_question_and_due_once_the_setting_is_corrected(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path, link_id="^nothing(?P<id>x)$")
    partner = Partner()
    know_all(partner, linked)
    first = check(bench, run, partner)
    spoken = settings(bench).model_copy(update={"link_id": "/(?P<id>[^/]+)$"})

    done = check_links(bench.context, partner, spoken, [bench.stored(run)])

    assert ["link records: asked 0, answered 0: no id in the link's URL"] == lines(first)
    assert (12, 0) == (done.asked, done.unanswered)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    quick(
        1,
        [b"<html>", b'{"error": "no"}', b'[{"type": "job_status", "message": {"status": "AUTH"}}]'],
    ),
)
def test_messages_that_nobody_can_read_leave_the_jobs_unknown_although_the_next_are_none(
    tmp_path: Path, body: bytes
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Unreadable(body)
    know_all(partner, linked)
    first = check(bench, run, partner)
    unread = causes(bench, run)
    partner.body = b"[]"
    check(bench, run, partner)

    second = causes(bench, run)

    assert "messages: asked 12, answered 0: unreadable" in lines(first)
    assert dict.fromkeys(STAGES[1:], "service.answer.unreadable") == unread
    assert dict.fromkeys(STAGES[1:], "messages.lost") == second


class Unreadable(Partner):
    """A partner that answers every question about messages with one body."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def cardholder_messages(self, cardholder_id: str) -> bytes:
        return self.body


@pytest.mark.slow
def test_messages_whose_answer_was_lost_leave_the_jobs_unknown(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path, rows=4)
    lost = AnswerLostError(place="messages", kind="ReadTimeout", advice="")
    partner = Partner(before=failing("messages", lost))
    know_all(partner, linked)
    check(bench, run, partner)
    partner.before = lambda _: None
    check(bench, run, partner)

    assert dict.fromkeys(STAGES[1:], "messages.lost") == causes(bench, run)


def test_messages_in_an_envelope_of_their_own_are_counted(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Unreadable(json.dumps({"messages": [status("7", "UPDATING")]}).encode())
    know_all(partner, linked)

    check(bench, run, partner)

    assert looked(bench, run)["authenticated"].all()


def test_a_job_whose_record_is_refused_is_known_as_far_as_its_messages_say(tmp_path: Path) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner(before=failing("job", FORBIDDEN))
    know_all(partner, linked)
    row = linked["row"][0]
    partner.messages[f"h-{row}"] = [status("7", "UPDATING")]

    done = check(bench, run, partner)

    known = looked(bench, run).filter(row=row)
    assert "job records: asked 1, answered 0: refused 403" in lines(done)
    assert [(True, True, True, "service.answer.refused.403")] == known.select(
        "opened", "authenticated", "running", "jobs_trouble"
    ).rows()


def test_a_job_that_does_not_say_whether_it_authenticated_is_not_counted_as_one_that_did_not(
    tmp_path: Path,
) -> None:
    bench, run, linked = night(tmp_path)
    partner = Partner()
    know_all(partner, linked)
    row = linked["row"][0]
    partner.messages[f"h-{row}"] = [status("7", "DUPLICATE_CARD")]
    partner.jobs["7"] = {"id": 7, "status": "DUPLICATE_CARD", "termination_type": "PROCESS_FAILURE"}

    check(bench, run, partner)

    assert {"authenticated": "job.authentication.missing"} == causes(bench, run)


# What is made of it beside the funnel.


@pytest.mark.slow
def test_the_page_across_runs_has_no_number_for_what_is_not_known(tmp_path: Path) -> None:
    bench, _, linked = night(tmp_path)
    partner = Partner(before=failing("messages", FORBIDDEN))
    know_all(partner, linked)
    follow_links(bench.context, partner)

    reconcile_runs(bench.context)

    page = bench.content(f"{reconciliation(BANK)}report.html").decode()
    assert page.count("<td>not known: refused 403</td>") == 4


def test_a_stage_of_which_nothing_is_known_is_absent_from_the_metrics(tmp_path: Path) -> None:
    bench, _, linked = night(tmp_path)
    partner = Partner(before=failing("messages", FORBIDDEN))
    know_all(partner, linked)
    follow_links(bench.context, partner)

    metrics = write_metrics(bench.context)

    assert 'cardlink_cardholders_reached{issuer="bank",stage="opened"} 0.0\n' in metrics
    assert 'cardlink_cardholders_reached{issuer="bank",stage="placed"}' not in metrics
    assert 'cardlink_cardholders_unknown{issuer="bank",stage="placed"} 12.0\n' in metrics
