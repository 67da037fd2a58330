"""Events of objects, as messages hold them: of S3 or EventBridge, each also through SNS."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

REMOVALS = ("ObjectRemoved", "LifecycleExpiration", "Object Deleted")
TEST = "s3:TestEvent"  # sent once, where notifications are configured


class ObjectEvent(NamedTuple):
    """What happened to one object; `sequencer` orders the events of one object, where there is one.

    `place` is a bucket, or the folder of a directory store.
    """

    place: str
    key: str
    sequencer: str = ""
    is_removal: bool = False

    def is_later_than(self, sequencer: str) -> bool:
        """Whether it happened after the event of that sequencer, of the same object.

        Sequencers are hexadecimal and of different lengths: the shorter one is filled up at its
        end. True where one of them is not known.
        """
        if not self.sequencer or not sequencer:
            return True
        length = max(len(self.sequencer), len(sequencer))
        return self.sequencer.ljust(length, "0") > sequencer.ljust(length, "0")


def events_of(body: str) -> list[ObjectEvent] | None:
    """Return the events of a message, None where it is not one about objects of a bucket."""
    try:
        return _events(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _events(content: Any) -> list[ObjectEvent] | None:
    if content.get("Type") == "Notification":  # SNS, unless it delivers raw
        return events_of(content["Message"])
    if content.get("source") == "aws.s3":
        return [_of_event_bridge(content)]
    if content.get("Event") == TEST:
        return [ObjectEvent(content["Bucket"], "")]
    return _of_s3(content["Records"])


def _of_event_bridge(content: Mapping[str, Any]) -> ObjectEvent:
    detail = content["detail"]
    stored = detail["object"]
    return ObjectEvent(
        detail["bucket"]["name"],
        stored["key"],
        stored.get("sequencer", ""),
        content["detail-type"].startswith(REMOVALS),
    )


def _of_s3(records: Iterable[Mapping[str, Any]]) -> list[ObjectEvent]:
    return [
        ObjectEvent(
            record["s3"]["bucket"]["name"],
            unquote_plus(record["s3"]["object"]["key"]),
            record["s3"]["object"].get("sequencer", ""),
            record["eventName"].removeprefix("s3:").startswith(REMOVALS),
        )
        for record in records
    ]
