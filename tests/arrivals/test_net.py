"""The schedules beside arrivals."""

from __future__ import annotations

import pytest

from flows.install import schedules
from tests.night import issuer


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
