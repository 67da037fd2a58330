"""Limits and precedence of what a service says of jobs and reports, and of what is shown of them: the
limit and its neighbours, the first and the last, in memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from flows.extensions.partner_api import terminal, transaction_reports
from flows.extensions.partner_api.follow_job import LONGEST_TIMEOUT, JobProgress, follow
from flows.extensions.partner_api.job_records import Job, job, kept, merged
from flows.extensions.partner_api.probe import guessed
from flows.extensions.partner_api.profile import INTERFACE
from flows.extensions.partner_api.service_objects import JobMessage, JobRecord, Messages, RunStatus
from flows.extensions.partner_api.transaction_reports import read_transactions
from flows.extensions.partner_api.translation import elements, link_in_our_words
from flows.results.decisions import SHOWN
from tests.extensions.partner_api.test_follow_job import END, Passing, Person, StoredOutcomes
from tests.memory_bench import memory_bench
from tests.night import BANK

# What a service says
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "read"),
    [
        (10**9 - 1, 10**9 - 1),
        (10**9, "2001-09-09T01:46:40Z"),
        (4 * 10**9 - 1, "2096-10-02T07:06:39Z"),
        (4 * 10**9, 4 * 10**9),
        (10**12, "2001-09-09T01:46:40Z"),
        (4 * 10**12 - 1, "2096-10-02T07:06:39Z"),
        (4 * 10**12, 4 * 10**12),
    ],
)
def test_a_number_is_a_moment_from_2001_to_2096(moment: int, read: object) -> None:
    link = link_in_our_words({"expiration_date": moment}, INTERFACE)

    assert read == link["expiration_date"]


@pytest.mark.parametrize(("wrappers", "is_read"), [(2, True), (3, True), (4, False)])
def test_messages_are_found_inside_three_wrappers(wrappers: int, is_read: bool) -> None:
    envelope: object = [{"type": "job_status"}]
    for _ in range(wrappers):
        envelope = {"items": envelope}

    assert is_read == ({"type": "job_status"} in elements(envelope, INTERFACE))


@pytest.mark.parametrize(
    ("percent", "kept", "has_authenticated"),
    [(-1, 0, False), (0, 0, False), (99, 99, False), (100, 100, True), (101, 100, True)],
)
def test_a_job_is_between_nought_and_all_of_its_percents(
    percent: int, kept: int, has_authenticated: bool
) -> None:
    standing = RunStatus(status="NEW", percent_complete=percent, auth_percent_complete=percent)

    state = job("7", standing)

    assert state is not None
    assert (kept, has_authenticated) == (state.percent, state.authenticated)


def test_of_two_sites_of_a_job_the_last_by_name_is_kept_whatever_came_first() -> None:
    states = [Job("7", "AUTH", merchant_site=site) for site in ("b.example.com", "a.example.com")]

    kept_sites = [merged(order)[0].merchant_site for order in (states, states[::-1])]

    assert ["b.example.com"] * 2 == kept_sites


@pytest.mark.parametrize(("seconds", "is_doubted"), [(LONGEST_TIMEOUT, False), (7201, True)])
def test_a_job_may_have_two_hours_left(seconds: int, is_doubted: bool) -> None:
    person = Person()

    JobProgress(person, Passing().clock).update(RunStatus(status="AUTH", job_timeout=seconds))

    assert is_doubted == bool(person.notes)


def test_of_two_places_of_a_field_the_one_nearer_the_top_is_guessed() -> None:
    document = {"last": {"step": {"status": "AUTH"}}, "now": {"status": "AUTH"}}

    guess = guessed("job", document, {"last.step.status": "text", "now.status": "text"}, INTERFACE)

    assert 'job.status = ["now.status"]  # guessed' in guess.lines
    assert "job.status: is it now.status or last.step.status?" in guess.doubts


@pytest.mark.parametrize(
    ("seconds", "stored"), [(99_999, 99_999), (100_000, "[6 digits]"), (-100_000, "-[6 digits]")]
)
def test_a_number_of_five_digits_may_be_an_amount(seconds: int, stored: object) -> None:
    assert [{"job_timeout": stored}] == kept(json.dumps([{"job_timeout": seconds}]).encode())


@pytest.mark.parametrize(("added", "warnings"), [(4, 1), (5, 2), (6, 2)])
def test_a_person_is_warned_again_where_five_seconds_were_added(added: int, warnings: int) -> None:
    person = Person()
    progress = JobProgress(person, Passing().clock)

    for seconds in (30, 30 + added):
        progress.update(RunStatus(status="AUTH", job_timeout=seconds))
        progress.warn()

    assert warnings == len(person.warnings)


class Silent(StoredOutcomes):
    """A job that ends unseen: no message says so, only its record from the second time on."""

    def __init__(self) -> None:
        super().__init__(Messages())
        self.polls: list[str] = []

    def job(self, job_id: str) -> JobRecord:
        end = {"status": "GONE", "termination_type": "PROCESS_FAILURE"}
        state = end if self.polls else {"status": "AUTH"}
        self.polls.append("record")
        return JobRecord.model_validate({"id": job_id, **state})

    def messages(self, job_id: str) -> Messages:
        self.polls.append("messages")
        return super().messages(job_id)


def test_a_record_is_read_after_five_polls_without_a_message() -> None:
    followed = Silent()

    follow(followed, "7", Person(), Passing().clock)

    assert ["record", *["messages"] * 5, "record"] == followed.polls


@pytest.mark.parametrize(
    ("statuses", "answers"), [(["PENDING_TFA", "AUTH"], 0), (["AUTH", "PENDING_TFA"], 1)]
)
def test_what_a_job_waits_for_is_asked_for_by_its_last_status(
    statuses: Sequence[str], answers: int
) -> None:
    messages = [
        JobMessage.model_validate({"job_id": 7, "message": {"status": status}})
        for status in statuses
    ]
    told = StoredOutcomes(Messages(tuple(messages)), END)

    follow(told, "7", Person(), Passing().clock)

    assert answers == len(told.answers)


# Transaction reports
# --------------------------------------------------------------------------------------------------


def test_a_report_needs_no_column_but_cuid_and_status() -> None:
    report = read_transactions(b"cuid,status\nc-1,SUCCESSFUL\n", "t.csv")

    assert ((), ["c-1"]) == (report.problems, report.rows["cuid"].to_list())


@pytest.mark.parametrize(("spare", "problems"), [(-1, 1), (0, 0), (1, 0)])
def test_a_report_may_be_as_large_as_its_limit(
    monkeypatch: pytest.MonkeyPatch, spare: int, problems: int
) -> None:
    content = b"cuid,status\n"
    bench = memory_bench()
    store = bench.store
    store.create("bank/transactions/", b"")  # the mark of a folder is no report
    store.create("bank/transactions/t.csv", content)
    monkeypatch.setattr(transaction_reports, "LIMIT", len(content) + spare)

    reports = transaction_reports.ingest_transactions(bench.context.adapters, BANK, [], INTERFACE)

    assert (1, problems) == (reports.files, len(reports.breaks))


def test_a_break_names_the_first_of_the_rows_that_nobody_knows() -> None:
    lines = "".join(f"c-{number},SUCCESSFUL\n" for number in range(SHOWN + 2))
    bench = memory_bench()
    bench.store.create("bank/transactions/t.csv", b"cuid,status\n" + lines.encode())

    [break_] = transaction_reports.ingest_transactions(
        bench.context.adapters, BANK, [], INTERFACE
    ).breaks

    assert "rows 1, 2, 3" in break_.place
    assert str(SHOWN + 1) not in break_.place


# At the terminal
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("percent", "shown_percent"), [(-1, 0), (0, 0), (100, 100), (101, 100)])
def test_a_phase_is_shown_between_nought_and_all_of_its_percents(
    percent: int, shown_percent: int
) -> None:
    assert f"whole job {shown_percent}%" == terminal._percent("whole job", percent)
