"""The reason that every mending has: kept with it, with card numbers masked."""

from __future__ import annotations

from flows.core.redaction import redact
from flows.steps.runs import NoReasonError


def given(reason: str) -> str:
    """Return a reason as it is kept; NoReasonError where there is none."""
    told = redact(reason.strip())
    if not told:
        raise NoReasonError
    return told
