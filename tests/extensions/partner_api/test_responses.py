"""Whatever the service answers is read: nothing is raised, nothing known is lost, open sets stay
open.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.partner_api.profile import INTERFACE, Profile
from flows.extensions.partner_api.responses import (
    document_of,
    job_of,
    link_of,
    messages_in,
    refusal_of,
    text_in,
)
from flows.extensions.partner_api.service_objects import CredentialRequest, JobMessage, Messages
from flows.extensions.partner_api.translation import elements

ENVELOPE = "0b1f8d3e-5c1b-4a57-9a39-2f8f5f0c7f11"
STATUS = {
    "type": "job_status",
    "job_id": 7,
    "message": {
        "status": "AUTH",
        "percent_complete": 10,
        "auth_percent_complete": 40,
        "job_timeout": 290,
        "status_message": "Signing in.",
    },
}
REQUEST = {
    "type": "credential_request",
    "job_id": 7,
    "envelope_id": ENVELOPE,
    "account_link": [
        {"key_name": "username", "label": "User name", "secret": False},
        {"key_name": "password", "label": "Password", "secret": True},
    ],
    "message": {"status": "PENDING", "job_timeout": 120},
}
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "type",
        "job_id",
        "message",
        "status",
        "envelope_id",
        "account_link",
        "key_name",
        "label",
        "secret",
        "messages",
        "credential_requests",
        "percent_complete",
        "job_timeout",
        "termination_type",
        "id",
        "card",
        "cardholder",
        "url",
    ]
)
PLAUSIBLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 1 << 70)
    | st.floats()
    | st.text(alphabet=st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


def messages_of(raw: bytes, profile: Profile = INTERFACE) -> Messages:
    """Return the messages in a body, as a client reads them."""
    return messages_in(elements(document_of(raw), profile))


@pytest.mark.parametrize(
    "envelope",
    [
        [STATUS, REQUEST],
        {"messages": [STATUS, REQUEST]},
        {"messages": [STATUS], "credential_requests": [REQUEST]},
        {"data": {"items": [STATUS, REQUEST]}},
    ],
)
def test_an_envelope_may_be_a_list_or_hold_one(envelope: object) -> None:
    told = messages_of(body(envelope))

    assert [one.message.status for one in told.statuses] == ["AUTH"]
    assert [one.envelope_id for one in told.requests] == [ENVELOPE]
    assert told.unread == 0


@pytest.mark.parametrize("single", [STATUS, REQUEST])
def test_a_single_message_needs_no_envelope(single: dict[str, Any]) -> None:
    told = messages_of(body(single))

    assert len(told.statuses) + len(told.requests) == 1


@pytest.mark.parametrize(
    "shape",
    [
        REQUEST,
        {**REQUEST, "request_type": "tfa_request", "type": None},
        {key: value for key, value in REQUEST.items() if key != "message"}
        | {"status": "PENDING", "job_timeout": 120},
        {"job_id": "7", "message": {**REQUEST, "status": "PENDING", "job_timeout": "120"}},
    ],
)
def test_a_request_is_read_in_each_of_its_shapes(shape: dict[str, Any]) -> None:
    (request,) = messages_of(body([shape])).requests

    assert request.job_id == "7"
    assert [one.key_name for one in request.account_link] == ["username", "password"]
    assert request.message.blocked
    assert request.message.job_timeout == 120


def test_a_value_is_secret_unless_the_service_says_it_is_not() -> None:
    fields = [
        {"key_name": "a"},
        {"key_name": "b", "secret": "odd"},
        {"key_name": "c", "secret": False},
        {"label": "d"},
    ]

    (request,) = messages_of(body([{**REQUEST, "account_link": fields}])).requests

    assert [(one.key_name, one.secret) for one in request.account_link] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]


@pytest.mark.parametrize("envelope", ["", "é", "two\nlines", None, []])
def test_a_request_that_could_not_be_answered_is_counted_and_not_asked(envelope: object) -> None:
    told = messages_of(
        body([{**REQUEST, "envelope_id": envelope, "message": None, "job_id": None}])
    )

    assert told.requests == ()
    assert len(told.statuses) + told.unread == 1


def test_statuses_and_ends_nobody_knows_are_kept_as_they_are() -> None:
    message = {
        "status": "BRAND_NEW",
        "termination_type": "NEVER_STARTED",
        "percent_complete": "12.5",
        "extra": [1],
    }

    (status,) = messages_of(body([{**STATUS, "message": message}])).statuses

    assert (status.message.status, status.message.termination_type) == (
        "BRAND_NEW",
        "NEVER_STARTED",
    )
    assert status.message.percent_complete == 12
    assert status.message.ended


def test_a_job_record_takes_its_id_over_to_its_requests() -> None:
    bare = {key: value for key, value in REQUEST.items() if key not in ("job_id", "message")}

    job = job_of(
        body({"id": 7, "cardholder_id": "3", "status": "PENDING", "credential_requests": [bare]})
    )

    assert job is not None
    assert (job.id, job.cardholder_id) == ("7", "3")
    assert [(one.job_id, one.envelope_id) for one in job.requests] == [("7", ENVELOPE)]


def test_what_the_service_says_to_the_user_is_in_no_repr() -> None:
    told = messages_of(body([STATUS, REQUEST]))

    assert [word for word in ("Signing in", "User name", "Password") if word in repr(told)] == []


def test_a_link_is_told_without_its_url_and_token() -> None:
    link = link_of(
        body({"id": 9, "url": "https://links.example.com/l/hush", "cardholder_long_token": "hush"})
    )

    assert link is not None
    assert link.id == "9"
    assert "hush" not in repr(link)


def test_a_refusal_always_has_a_code() -> None:
    refusals = [
        refusal_of(one) for one in (b"", b"\xff\xfe", b"[]", b'{"_errors": ["pan is required"]}')
    ]

    assert [one.codes.count(".") for one in refusals] == [2, 2, 2, 2]
    assert refusals[-1].codes == "card.pan.missing"


def test_the_first_name_that_is_there_gives_a_key() -> None:
    found = text_in(body({"key": "second", "access_key": "first"}), ("access_key", "key"))

    assert found == "first"


@given(JUNK | PLAUSIBLE)
def test_nothing_the_service_can_say_raises(document: object) -> None:
    raw = body(document)

    told = messages_of(raw)

    assert all(isinstance(one, JobMessage) for one in told.statuses)
    assert all(isinstance(one, CredentialRequest) and one.envelope_id for one in told.requests)
    job_of(raw)
    link_of(raw)
    text_in(raw, ("access_key",))
    repr(told).encode()  # no half surrogates


@given(st.binary(max_size=200))
def test_nothing_that_is_no_json_raises(raw: bytes) -> None:
    told = messages_of(raw)

    assert refusal_of(raw).codes
    assert told.unread >= 0
    job_of(raw)
    link_of(raw)


@given(st.lists(st.sampled_from([STATUS, REQUEST, {}, 7, {"other": 1}]), max_size=8))
def test_every_element_of_an_envelope_is_accounted_for(elements: list[object]) -> None:
    told = messages_of(body(elements))

    assert len(told.statuses) == elements.count(STATUS)
    assert len(told.requests) == elements.count(REQUEST)
    assert len(told.statuses) + len(told.requests) + told.unread == len(elements)


@given(st.dictionaries(st.sampled_from(["sort", "x_new", "links", "merchant"]), JUNK, max_size=3))
def test_fields_nobody_knows_change_nothing(more: dict[str, Any]) -> None:
    plain, grown = (
        messages_of(body([STATUS, REQUEST])),
        messages_of(body([{**more, **STATUS}, {**more, **REQUEST}])),
    )

    assert plain == grown
