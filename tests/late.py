"""What people are told of an issuer's matters, as a watch finds it."""

from __future__ import annotations

from flows.extensions.alerts.telling import write_alerts
from flows.operations.matters import Failure, Matter, holding, watch
from flows.reports.work import Work
from flows.runs.context import IssuerContext


def late(context: IssuerContext) -> list[Work]:
    """Return what is past its time now."""
    return [work for work in holding(context) if work.is_alert]


def told(context: IssuerContext, *failures: Failure) -> list[tuple[Matter, bool]]:
    """Watch and tell as the flow does; return what is late, and what is over (False)."""
    untold = watch(context, failures)
    write_alerts(context)
    opened = [(matter, True) for matter in untold if matter.told is None]
    return opened + [(matter, False) for matter in untold if matter.ended is not None]
