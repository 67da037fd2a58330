"""What is told of jobs, put together: in any order, any number of times, with statuses nobody has
heard of.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.extensions.partner_api.job_records import Job, best, code, job, kept, merged
from flows.extensions.partner_api.service_objects import RunStatus

STATUSES = ("PENDING", "AUTH", "UPDATING", "SUCCESSFUL", "TIMEOUT_TFA", "SOMETHING_NEW")
ENDS = (None, None, "BILLABLE", "USER_DATA_FAILURE", "NEVER_STARTED", "A_SIXTH_TYPE")
jobs = st.builds(
    Job,
    st.sampled_from(("1", "2", "3")),
    st.sampled_from(STATUSES),
    st.sampled_from(ENDS),
    st.sampled_from((True, False, None)),
    st.none() | st.integers(0, 100),
    st.sampled_from((None, "shop.example.com", "video.example.com")),
    st.booleans(),
)
told = st.lists(jobs, max_size=8)


def one(status: str, **more: Any) -> Job:
    found = job("7", RunStatus.model_validate({"status": status, **more}))
    assert found is not None
    return found


@settings(deadline=None)
@given(told, st.randoms())
def test_what_is_told_of_jobs_is_the_same_in_any_order(found: list[Job], luck: Any) -> None:
    mixed = luck.sample(found, len(found))

    assert merged(found) == merged(mixed)
    assert best(merged(found)) == best(merged(mixed))


@settings(deadline=None)
@given(told, told)
def test_what_is_told_twice_or_in_pieces_says_nothing_more(
    first: list[Job], second: list[Job]
) -> None:
    whole = merged([*first, *second])

    assert whole == merged([*merged(first), *merged(second), *first])


@settings(deadline=None)
@given(told)
def test_no_job_is_forgotten_and_no_end_is_taken_back(found: list[Job]) -> None:
    known = {job.job_id: job for job in merged(found)}

    assert {job.job_id for job in found} == known.keys()
    assert {job.job_id for job in found if not job.running} == {
        key for key, job in known.items() if not job.running
    }
    assert {job.job_id for job in found if job.authenticated} == {
        key for key, job in known.items() if job.authenticated
    }


def test_a_job_has_authenticated_from_updating_on_or_when_that_phase_is_whole() -> None:
    found = [
        one("AUTH"),
        one("UPDATING"),
        one("SOMETHING_NEW", auth_percent_complete=100),
        one("PENDING"),
    ]

    assert [False, True, True, False] == [job.authenticated for job in found]


def test_a_job_that_does_not_say_how_far_it_is_is_not_at_nought() -> None:
    found = one("SOMETHING_NEW")

    assert (None, None) == (found.authenticated, found.percent)


def test_a_fifth_termination_type_ends_a_job_and_keeps_its_name() -> None:
    found = one("NEVER_STARTED", termination_type="NEVER_STARTED")

    assert ("NEVER_STARTED", False, False) == (found.termination_type, found.running, found.placed)


@pytest.mark.parametrize("text", ["", None, "4242424242424242", "status of Ada", "<b>", "X" * 41])
def test_what_is_no_name_of_a_status_is_other(text: str | None) -> None:
    assert code(text) == "OTHER"


def test_placed_comes_before_running_and_running_before_failed() -> None:
    failed, running = Job("1", "X", "PROCESS_FAILURE", authenticated=True), Job("2", "AUTH")
    placed = Job("0", "SUCCESSFUL", "BILLABLE", authenticated=True)

    assert [placed, running] == [best([failed, placed, running]), best([failed, running])]


def test_what_is_kept_of_messages_has_no_text_for_people_no_envelope_and_no_card_number() -> None:
    body = [
        {
            "type": "tfa",
            "job_id": 7,
            "envelope_id": "guid",
            "account_link": [{"label": "code sent to Ada"}],
            "message": {"status": "PENDING", "status_message": "Dear Ada"},
            "odd": ["4242424242424242", 4242424242424242],
        },
    ]

    found = json.dumps(kept(json.dumps(body).encode()))

    assert '"job_id": 7' in found
    assert [word for word in ("guid", "Ada", "424242424242") if word in found] == []


@pytest.mark.parametrize("envelope", ["[]", "{}", '{"items": []}', '{"data": {"items": []}}'])
def test_an_envelope_without_anything_in_it_is_no_message(envelope: str) -> None:
    assert [] == kept(envelope.encode())


STATES = {
    "type": "job_status",
    "job_id": 7012345,
    "cardholder_id": "8b5555555555554444f3b1518c3d215d",
    "message": {
        "status": "SOMETHING_NEW",
        "percent_complete": 100,
        "auth_percent_complete": 55,
        "job_timeout": 300,
        "termination_type": "NEVER_STARTED",
    },
    "merchant_site": "shop.example.com",
    "final": True,
}
SECRETS = {
    "cvv": 592,
    "securityCode": "592",
    "note": "code was 592",
    "amount": 4242424242424242.0,
    "number": 4242424242424242,
    "id": "4242424242424242",
    "status": "4242 4242 4242 4242",
    "percent_complete": 4242424242424242,
    "job_timeout": "4242424242424242",
    "merchant_site": "4242424242424242.example.com",
    "digest": hashlib.sha256(b"4242424242424242").hexdigest(),
    "4242424242424242": None,
    "link": "https://links.example.com/l/personal",
    "mail": "ada@example.com",
    "nested": [[{"deep": "5555555555554444"}]],
}


def test_the_states_of_jobs_are_kept_as_they_are() -> None:
    assert [STATES] == kept(json.dumps([STATES]).encode())


def test_of_everything_else_in_messages_only_what_is_harmless_is_kept() -> None:
    stored = json.dumps(kept(json.dumps({**SECRETS, "job_id": 7}).encode()))

    assert '"job_id": 7' in stored
    leaks = ["592", "4242", "5555", "4.2", SECRETS["digest"], "personal", "ada"]
    assert [] == [leak for leak in leaks if str(leak) in stored]


def test_a_body_that_is_no_json_is_kept_as_what_is_harmless_of_it() -> None:
    assert ["card [16 digits] at [link]"] == kept(
        b"card 4242424242424242 at https://links.example.com/l/personal"
    )


@settings(deadline=None)
@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_body_is_kept_as_something_that_json_can_hold(body: bytes) -> None:
    assert isinstance(json.dumps(kept(body)), str)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9), st.lists, max_leaves=9
    )
)
def test_a_body_of_any_json_is_kept(document: Any) -> None:
    assert isinstance(kept(json.dumps(document).encode()), list)
