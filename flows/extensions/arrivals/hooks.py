"""What the kernel is told of arrivals: whether runs start when a file arrives."""

from datetime import datetime

from flows.extensions.arrivals.beat import ArrivalsDownError, liveness, read_beat
from flows.extensions.arrivals.settings import Arrivals
from flows.operations.conditions import Condition, Gauge
from flows.runs.context import IssuerContext
from flows.runs.store import Store
from schemas.issuer import Issuer

HOURLY = "50 * * * *"


def condition(issuer: Issuer, store: Store, now: datetime) -> Condition | None:
    """Return what the process last reported; None where it is not wanted."""
    state = liveness(store, issuer, now)
    if state is None:
        return None
    trouble = ArrivalsDownError(state=state.text) if state.is_down else None
    return Condition("arrivals", state.text, trouble)


def gauges() -> list[Gauge]:
    """Return the metric of the last look."""
    return [Gauge("arrivals_timestamp_seconds", "When arrivals last looked.", "", beaten_at)]


def beaten_at(context: IssuerContext) -> dict[str, float]:
    """Return when the process last beat, as an epoch."""
    if context.issuer.table(Arrivals) is None:
        return {}
    beat = read_beat(context.adapters.store, context.issuer.issuer)
    return {"": beat.at.timestamp()} if beat else {}


def schedules(issuer: Issuer) -> dict[str, str]:
    """Return the schedules as a net, where runs start when a file arrives: every hour, the night on
    its days and at its minute.
    """
    if issuer.table(Arrivals) is None:
        return {}
    minute, _, *days = issuer.schedule.cron.split()
    at_minute = minute if minute.isdecimal() else "0"
    return {"CARDLINK_CRON": " ".join([at_minute, "*", *days]), "CARDLINK_INGEST_CRON": HOURLY}
