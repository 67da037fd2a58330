"""A placement job by itself, driven by any clock: what holds at every moment of every job."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.simulator.service.jobs import Job, Pace
from flows.extensions.simulator.service.sites import ACK, SITES, WRONG, Site
from tests.service import NOON

SECONDS = st.integers(1, 60)
JOBS = st.builds(
    lambda site, auth, update, heartbeat: Job(
        1, 1, 1, 1, SITES[site], NOON, Pace(auth, update, heartbeat)
    ),
    *(st.sampled_from(sorted(SITES)), SECONDS, SECONDS, SECONDS),
)
STEPS = st.lists(st.sampled_from(["known", WRONG, "pass over"]), max_size=40)


def answers(job: Job, value: str) -> dict[str, str]:
    assert job.request
    return dict.fromkeys([field.key_name for field in job.request.ask.fields], value) | {
        "tfa_message": ACK
    }


@given(JOBS, st.booleans(), STEPS)
def test_a_job_waits_exactly_while_it_is_pending_and_its_percentages_never_fall(
    job: Job, with_credentials: bool, steps: list[str]
) -> None:
    seen = [job.begin(with_credentials=with_credentials)]

    for value in steps:
        if job.request and value != "pass over":
            seen.append(
                job.answer(job.request.envelope_id, answers(job, value), job.last_updated_on)
            )
        elif job.due:
            job.step(job.due)
            seen.append(job.snapshot(job.last_updated_on))
        assert bool(job.request) == job.status.startswith("PENDING")

    assert [one.percent_complete for one in seen] == sorted(one.percent_complete for one in seen)
    assert [one.auth_percent_complete for one in seen] == sorted(
        one.auth_percent_complete for one in seen
    )
    assert {True} == {0 <= one.percent_complete <= 100 and one.job_timeout >= 0 for one in seen}


@given(JOBS, st.booleans(), STEPS)
def test_every_job_ends_with_a_termination_type_and_in_bounded_time(
    job: Job, with_credentials: bool, steps: list[str]
) -> None:
    job.begin(with_credentials=with_credentials)
    values = iter(steps)

    while job.due:
        value = next(values, "pass over")
        if job.request and value != "pass over":
            job.answer(job.request.envelope_id, answers(job, value), job.last_updated_on)
        else:
            job.step(job.due)

    questions = len(job.site.asks) * job.pace.tries
    assert job.termination_type
    assert job.last_updated_on <= NOON + timedelta(
        seconds=job.pace.timeout + questions * job.pace.added
    )


@given(JOBS)
def test_time_is_added_once_for_each_question_and_never_otherwise(job: Job) -> None:
    job.begin()
    asked, due, told = set[str](), list[float](), list[float]()

    while job.due:
        if job.request:
            asked.add(job.request.envelope_id)
        spent = (job.last_updated_on - NOON).total_seconds()
        due.append(job.pace.timeout + len(asked) * job.pace.added)
        told.append(spent + job.snapshot(job.last_updated_on).job_timeout)
        if job.request:
            job.answer(job.request.envelope_id, answers(job, "known"), job.last_updated_on)
        else:
            job.step(job.due)

    assert due == told


def test_every_kind_of_end_has_a_site_and_each_site_a_name_of_its_own() -> None:
    sites: list[Site] = list(SITES.values())

    ends = {site.end.termination_type for site in sites}

    assert {
        "BILLABLE",
        "USER_DATA_FAILURE",
        "SITE_INTERACTION_FAILURE",
        "PROCESS_FAILURE",
        "NEVER_STARTED",
    } == ends
    assert [site.name for site in sites] == list(SITES)
