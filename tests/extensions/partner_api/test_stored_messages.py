"""Messages that could not be read are kept, and read anew with other settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.extensions.partner_api.job_records import Job, Placement, kept, read_anew, with_messages
from flows.extensions.partner_api.profile import INTERFACE, Profile

NOTHING = Placement("run", 1)
PARTNER = Profile.model_validate(
    {
        "names": {
            "message": {"job_id": ["job.ref"], "message": ["body"]},
            "job": {"status": ["state"]},
        }
    }
)


def stored(*elements: dict[str, Any]) -> list[Any]:
    """Return what is stored of a body with these messages."""
    return kept(json.dumps(elements).encode())


def test_messages_under_names_of_the_partners_own_are_read_once_the_settings_name_them() -> None:
    content = stored({"seq": 1, "job": {"ref": "J-77"}, "body": {"state": "AUTH"}})
    unread = with_messages(NOTHING, content, INTERFACE)

    read = read_anew(unread, [content], PARTNER)

    assert ((), 1) == (unread.jobs, unread.missed)
    assert (["J-77"], 0) == ([job.job_id for job in read.jobs], read.missed)
    assert read.jobs_trouble is not None  # so that it is due for the record of the job


def test_an_answer_that_was_lost_stays_missed_whatever_the_settings_are() -> None:
    content = stored({"job_id": 7, "message": {"status": "AUTH"}})
    lost = with_messages(NOTHING._replace(lost=1), content, INTERFACE)

    assert (1, 1) == (lost.missed, read_anew(lost, [content], PARTNER).missed)


def test_a_word_that_the_settings_explain_later_counts_for_the_jobs_that_are_known() -> None:
    ended = NOTHING.with_jobs([Job("7", "FINISHED", "DONE", recorded=True)])
    words = Profile.model_validate({"words": {"termination_type": {"Done": "BILLABLE"}}})

    (job,) = read_anew(ended, [], words).jobs

    assert job.placed


@pytest.mark.parametrize(
    ("message", "kept_id"),
    [
        ({"jobRef": "J-77"}, {"jobRef": "J-77"}),
        ({"job": {"number": 5_000_001}}, {"job": {"number": 5_000_001}}),
        ({"jobRef": "4242424242424242"}, {"jobRef": "[16 digits]"}),
    ],
)
def test_the_id_of_a_job_is_kept_under_other_names_and_a_card_number_never(
    message: dict[str, Any], kept_id: dict[str, Any]
) -> None:
    assert [kept_id] == kept(json.dumps([message]).encode())
