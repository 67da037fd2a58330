"""The reason that every mending has: kept with it, with card numbers masked."""

from __future__ import annotations

from flows.core.errors import OperatorError
from flows.core.redaction import redact


class NoReasonError(OperatorError):
    """Something is to be put right and nobody said why."""

    says = "No reason given."
    then = "Say it with --reason; it is kept with what is done, with your name and the time."

    def __init__(self) -> None:
        super().__init__()


def given(reason: str) -> str:
    """Return a reason as it is kept; NoReasonError where there is none."""
    told = redact(reason.strip())
    if not told:
        raise NoReasonError
    return told
