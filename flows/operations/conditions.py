"""What extensions say to machines: how what runs beside the flows is doing, events and metrics."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from flows.errors import CardlinkError
from flows.extensions import hooks
from flows.runs.store import Store
from schemas.issuer import Issuer


class Condition(NamedTuple):
    """How what runs beside the flows is doing.

    `trouble` is the error that says what to do where somebody has to act; people are told of it.
    """

    name: str
    text: str
    trouble: CardlinkError | None = None


def conditions(issuer: Issuer, store: Store, now: datetime) -> list[Condition]:
    """Return the conditions that somebody wants to know of."""
    states = [condition(issuer, store, now) for condition in hooks("condition")]
    return [state for state in states if state is not None]


class Event(NamedTuple):
    """What an automation may wait for: its name, of what it is, and which of that in order.

    `labels`: what else its resource has; nothing of it is about a person.
    """

    name: str
    resource: str
    number: int
    labels: Mapping[str, str]
    payload: Mapping[str, Any]


class Gauge(NamedTuple):
    """A number of an issuer: name, help, label ("" for none), and how it is read by its label.

    What an extension has is read from an IssuerContext.
    """

    name: str
    text: str
    label: str
    read: Callable[[Any], Mapping[str, float]]
    kind: Literal["gauge", "counter"] = "gauge"
