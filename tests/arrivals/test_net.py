"""The schedules beside arrivals, and where an issuer's files are heard of."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from flows.arrivals.targets import Watched, watched
from flows.install import schedules
from tests.night import BANK, issuer

QUEUE = "https://sqs.us-east-1.amazonaws.com/111122223333/arrivals"
ON_S3 = {"root": "s3://bucket/cards", "arrivals": {"queue": QUEUE}}


@pytest.mark.parametrize(
    ("cron", "net"),
    [
        ("30 1 * * *", "30 * * * *"),
        ("0 2 * * mon-fri", "0 * * * mon-fri"),
        ("*/20 1 1 * *", "0 * 1 * *"),
    ],
)
def test_with_arrivals_schedules_are_a_net_of_an_hour_on_the_days_of_the_night(
    cron: str, net: str
) -> None:
    alone = issuer(schedule={"cron": cron})
    with_arrivals = issuer(schedule={"cron": cron}, arrivals={})

    assert {"CARDLINK_CRON": cron, "CARDLINK_INGEST_CRON": "*/10 * * * *"} == schedules(alone)
    assert {"CARDLINK_CRON": net, "CARDLINK_INGEST_CRON": "50 * * * *"} == schedules(with_arrivals)


def test_an_issuer_is_heard_of_through_its_queue_or_its_folder_if_it_wants_that() -> None:
    folder = issuer(arrivals={}, source={"min_age_minutes": 2})

    assert watched(issuer(), "/store") is None
    assert Watched(BANK, "/store", "bank/", None, 120.0) == watched(folder, "/store")
    assert Watched(BANK, "bucket", "cards/bank/", QUEUE) == watched(
        issuer(**ON_S3), "s3://bucket/cards"
    )
    assert Watched(BANK, "bucket", "bank/", QUEUE) == watched(issuer(**ON_S3), "s3://bucket")


@pytest.mark.parametrize(
    "settings",
    [
        {"root": "s3://bucket/cards", "arrivals": {}},
        {"root": "store", "arrivals": {"queue": QUEUE}},
        {**ON_S3, "arrivals": {"queue": "arrivals"}},
    ],
)
def test_a_queue_is_for_a_bucket_and_a_bucket_needs_one(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="queue"):
        issuer(**settings)
