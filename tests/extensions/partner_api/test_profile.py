"""A partner that names and shapes things in its own way, as far as the interface leaves it open: a
setting for each, and nothing changes without one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.partner_api.profile import INTERFACE, Profile
from flows.extensions.partner_api.responses import job_of, link_of
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.translation import elements, meaning_of
from tests.extensions.partner_api.test_responses import (
    ENVELOPE,
    NAMES,
    PLAUSIBLE,
    REQUEST,
    STATUS,
    body,
    messages_of,
)

OWN = Profile.model_validate(
    {
        "names": {
            "link": {
                "record": ["result.link"],
                "id": ["linkId"],
                "url": ["href"],
                "cardholder_long_token": ["longToken"],
                "expiration_date": ["validUntil"],
                "opened_on": ["firstOpenedAt"],
                "card_id": ["cardRef"],
                "cardholder_id": ["holder.ref"],
                "cuid": ["holder.externalId"],
            },
            "job": {
                "record": ["result"],
                "id": ["jobId"],
                "status": ["state"],
                "termination_type": ["outcome"],
                "percent_complete": ["progress.total"],
                "auth_percent_complete": ["progress.login"],
                "job_timeout": [],
                "job_timeout_ms": ["remaining"],
                "merchant_site": ["site.host"],
                "credential_requests": ["pending"],
            },
            "message": {
                "list": ["result.entries"],
                "type": ["kind"],
                "job_id": ["job.id"],
                "message": ["body"],
                "envelope_id": ["envelope"],
                "account_link": ["fields"],
                "key_name": ["name"],
                "label": ["caption"],
                "secret": ["masked"],
            },
        },
        "words": {
            "status": {"linked": "UPDATING"},
            "termination_type": {"All done!": "BILLABLE"},
        },
    }
)
PENDING = {
    "kind": "push_message",
    "job": {"id": 7},
    "envelope": ENVELOPE,
    "fields": [{"name": "code", "caption": "Code", "masked": False}],
    "body": {"state": "PENDING", "remaining": 120_000},
}


def test_a_link_record_of_another_shape_is_read_by_its_fields() -> None:
    holder = {"ref": 5, "externalId": "c-1"}
    record = {"linkId": 9, "href": "https://l.example.com/9", "firstOpenedAt": None}

    link = link_of(body({"result": {"link": {**record, "holder": holder, "cardRef": 4}}}), OWN)

    assert link is not None
    assert ("9", "https://l.example.com/9", False) == (link.id, link.url, link.opened)
    assert ("5", "c-1", "4") == (link.cardholder_id, link.cuid, link.card_id)


def test_a_job_record_of_another_shape_is_read_with_its_words_and_units() -> None:
    record = {
        "jobId": 7,
        "id": "of the envelope",
        "state": "Linked",
        "outcome": "ALL DONE",
        "progress": {"total": 60, "login": 100},
        "remaining": "358000",
        "site": {"host": "shop.example.com"},
        "pending": [PENDING],
    }

    job = job_of(body({"result": record}), OWN)

    assert job is not None
    assert ("7", "UPDATING", "BILLABLE") == (job.id, job.status, job.termination_type)
    assert (60, 100, 358) == (job.percent_complete, job.auth_percent_complete, job.job_timeout)
    assert ("shop.example.com", ENVELOPE) == (job.merchant_site, job.requests[0].envelope_id)


def test_messages_of_another_shape_are_read_and_the_rest_is_counted() -> None:
    heartbeat = {"kind": "beat", "job": {"id": 7}, "body": {"state": "AUTH"}}

    told = messages_of(body({"result": {"entries": [heartbeat, PENDING, {"x": 1}]}}), OWN)

    (request,) = told.requests
    assert ["AUTH"] == [status.message.status for status in told.statuses]
    assert ("push_message", 120, 1) == (request.kind, request.message.job_timeout, told.unread)
    assert [("code", "Code", False)] == [
        (prompt.key_name, prompt.label, prompt.secret) for prompt in request.account_link
    ]


def test_a_name_of_the_interface_that_means_something_else_there_is_not_taken_for_it() -> None:
    told = messages_of(body({"result": {"entries": [{**STATUS, "job": {"id": 9}}]}}), OWN)

    (status,) = told.statuses
    assert ("9", None) == (status.job_id, status.message.status)


@given(st.lists(st.sampled_from([STATUS, REQUEST]) | st.dictionaries(NAMES, PLAUSIBLE)))
def test_the_interfaces_own_profile_changes_no_message(messages: list[dict[str, Any]]) -> None:
    plain = json.loads(body(messages))

    assert plain == [
        {name: element[name] for name in message} | _type_of(message)
        for message, element in zip(plain, elements(plain, INTERFACE), strict=True)
    ]


def _type_of(message: dict[str, Any]) -> dict[str, Any]:
    return {name: message[name] for name in ("type",) if name in message}


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("Card Placed Successfully", "BILLABLE"),
        ("CARD_PLACED-SUCCESSFULLY.", "BILLABLE"),
        ("Card misplaced", "Card misplaced"),
    ],
)
def test_a_word_means_what_the_settings_say_whatever_its_case_and_points(
    word: str, meaning: str
) -> None:
    assert meaning == meaning_of(word, INTERFACE.words.report)


URL = "https://links.example.com/start?k=KEY&lang=en"


@pytest.mark.parametrize(
    ("settings", "link_id"),
    [
        ({}, "start"),
        ({"link_id": "?k"}, "KEY"),
        ({"link_id": r"[?&]k=(?P<id>\w+)"}, "KEY"),
        ({"link_id": "cuid"}, "c-1"),
        ({"link_id": "record"}, None),
        ({"link_id": "?x"}, None),
    ],
)
def test_a_links_id_comes_from_where_the_settings_say(
    settings: dict[str, str], link_id: str | None
) -> None:
    service = ServiceSettings.model_validate(
        {"base_url": "https://service.example.com", **settings}
    )

    assert link_id == service.id_of(URL, "c-1")


@pytest.mark.parametrize(
    "path", ["/links/9", "links/{id}", "/links/{id}/{id}", "/li nks/{id}", "https://x/{id}"]
)
def test_a_path_has_the_id_once_and_is_below_the_address(path: str) -> None:
    with pytest.raises(ValueError, match=r"path\.link"):
        ServiceSettings.model_validate(
            {"base_url": "https://service.example.com", "names": {"path.link": path}}
        )


@pytest.mark.parametrize("moment", [1_795_541_182_017, 1_795_541_182, "2026-11-24T17:26:22Z"])
def test_a_moment_may_be_a_number_of_seconds_or_milliseconds(moment: object) -> None:
    link = link_of(body({"id": "l-1", "expires_at": moment, "opened_at": moment}))

    assert link is not None
    assert ("2026-11-24T17:26:22Z", True) == (link.expires_raw, link.opened)


@pytest.mark.parametrize(("state", "opened"), [("Sent", False), ("OPENED", True)])
def test_that_a_link_was_opened_may_be_said_by_a_state(state: str, opened: bool) -> None:
    names = {"link": {"opened_on": ["state"]}}
    words = {"opened": ["opened", "verified"]}
    profile = Profile.model_validate({"names": names, "words": words})

    link = link_of(body({"id": "l-1", "state": state}), profile)

    assert link is not None
    assert opened == link.opened
