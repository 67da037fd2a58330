"""How the service says no: a status and faults, which `app` turns into an answer.

interface.md 7 leaves both open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flows.extensions.simulator.validation import Fault


class RefusedRequestError(Exception):
    """The service does not do what was requested; nothing has changed."""

    def __init__(self, status: int, faults: Sequence[Fault]) -> None:
        super().__init__(status, faults)
        self.status = status
        self.faults = tuple(faults)


class Disturbance(NamedTuple):
    """What the service answers instead of what was requested: a status, and a body as it is."""

    status: int
    body: str = ""


class DisturbedError(Exception):
    """The service answers a disturbance; nothing has changed."""

    def __init__(self, disturbance: Disturbance) -> None:
        super().__init__(disturbance.status)
        self.disturbance = disturbance


def refused(
    status: int, entity: str, name: str, message: str, field: str = ""
) -> RefusedRequestError:
    """Return the refusal with one fault: what is wrong with an entity (and field), no value."""
    return RefusedRequestError(status, (Fault(entity, field, name, message),))
