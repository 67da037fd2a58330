"""What messages hold, by whichever way they come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.arrivals.events import ObjectEvent, events_of

KEY = "cards/first-bank/extracts/new year.csv"
EVENT = ObjectEvent("bucket", KEY, "0055AED6DCD90281E5")


def by_s3(
    name: str = "ObjectCreated:Put", key: str = "cards/first-bank/extracts/new+year.csv"
) -> Any:
    stored = {"key": key, "size": 4, "sequencer": EVENT.sequencer}
    return {
        "Records": [
            {"eventName": name, "s3": {"bucket": {"name": "bucket"}, "object": stored}},
        ]
    }


def by_event_bridge(kind: str = "Object Created") -> Any:
    stored = {"key": KEY, "sequencer": EVENT.sequencer}
    return {
        "source": "aws.s3",
        "detail-type": kind,
        "detail": {"bucket": {"name": "bucket"}, "object": stored},
    }


def by_sns(content: Any) -> Any:
    return {"Type": "Notification", "TopicArn": "arn", "Message": json.dumps(content)}


@pytest.mark.parametrize(
    "content",
    [by_s3(), by_event_bridge(), by_sns(by_s3()), by_sns(by_event_bridge())],
    ids=["S3", "EventBridge", "S3 by SNS", "EventBridge by SNS"],
)
def test_an_event_is_the_same_by_whichever_way_it_comes(content: Any) -> None:
    assert [EVENT] == events_of(json.dumps(content))


@pytest.mark.parametrize(
    "content",
    [
        by_s3("ObjectRemoved:Delete"),
        by_s3("s3:LifecycleExpiration:Delete"),
        by_event_bridge("Object Deleted"),
    ],
)
def test_a_removal_is_known_as_one(content: Any) -> None:
    assert [EVENT._replace(is_removal=True)] == events_of(json.dumps(content))


@pytest.mark.parametrize("kind", ["Object Created", "Object Tags Added"])
def test_a_verdict_that_is_tagged_later_is_an_event_too(kind: str) -> None:
    assert [EVENT] == events_of(json.dumps(by_event_bridge(kind)))


def test_the_test_event_of_a_new_notification_is_about_no_object() -> None:
    body = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"})

    assert [ObjectEvent("bucket", "")] == events_of(body)


@pytest.mark.parametrize(
    "body",
    ["", "hello", "[]", "3", "null", '{"Records": [{}]}', '{"Records": 1}', "[" * 9999, '{"a": 1}'],
)
def test_what_is_no_event_of_a_bucket_is_none(body: str) -> None:
    assert events_of(body) is None


@pytest.mark.parametrize(
    ("sequencer", "other", "expected"),
    [
        ("0055AED6", "0055AED5", True),
        ("0055AED5", "0055AED6", False),
        ("0055AED5", "0055AED5", False),
        ("0055AED5FF", "0055AED5", True),  # the shorter one is filled up at its end
        ("0055AED5", "0055AED500", False),
        ("0055AED6", "0055AED5FF", True),
        ("", "0055AED5", True),
        ("0055AED5", "", True),
    ],
)
def test_the_later_event_of_an_object_has_the_greater_sequencer(
    sequencer: str, other: str, expected: bool
) -> None:
    assert expected == EVENT._replace(sequencer=sequencer).is_later_than(other)
